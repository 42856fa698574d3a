#include "harness/process/stage.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace attest {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array kNames = {"generate", "reference", "encode", "call", "decode",
                               "judge",    "law",       "write",  "rest"};
static_assert(kNames.size() == static_cast<std::size_t>(RunStage::rest) + 1);
constexpr int kNone = -1;

std::array<std::atomic<std::int64_t>, kNames.size()> nanoseconds{};
thread_local int current = kNone;
thread_local Clock::time_point since;

// From now on the thread is in that stage; what it took until now, the one before it took.
void enter(int stage) {
  const Clock::time_point now = Clock::now();
  if (current != kNone) {
    nanoseconds[static_cast<std::size_t>(current)] +=
        std::chrono::duration_cast<std::chrono::nanoseconds>(now - since).count();
  }
  current = stage;
  since = now;
}

}  // namespace

InStage::InStage(RunStage stage) : outer_(current) { enter(static_cast<int>(stage)); }
InStage::~InStage() { enter(outer_); }

std::map<std::string, double> stage_seconds() {
  std::map<std::string, double> seconds;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (nanoseconds[i] > 0) seconds[kNames[i]] = static_cast<double>(nanoseconds[i]) * 1e-9;
  }
  return seconds;
}

}  // namespace attest
