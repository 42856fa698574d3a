#include "harness/gate/thread_count.h"

#include <fmt/format.h>

#include <algorithm>

namespace attest {
namespace {

// Threads that a runtime has beside: in the mean, and in a call. One call with more is an accident
// of the machine, several are not.
constexpr double kBeside = 0.1, kBesideInACall = 0.5;
constexpr int kSeen = 3;
// A speed is a median: a quarter of the calls on more threads than in the mean may move it.
constexpr double kBesideInSome = 0.15, kSome = 0.25;
// Of shorter calls most is to start and to stop their worker, on one thread; of all calls together
// the time of processes that ended meanwhile is known to a hundredth or two. Of calls from
// kCallCounts on each is looked at by itself.
constexpr double kCallToldFrom = 1e-3, kToldFrom = 0.2, kTickSeconds = 0.02, kCallCounts = 5e-3;

}  // namespace

void ThreadCount::add(const std::string& what, const PassTime& call) {
  Sum& sum = sums_[what];
  ++sum.calls;
  sum.wall_s += call.clock;
  sum.computed_s += call.computed.value_or(0);
  sum.beyond += call.clock >= kCallCounts &&
                call.computed.value_or(0) > (granted_ + kBesideInSome) * call.clock;
  is_known_ &= call.computed.has_value();
}

void ThreadCount::add_running(double threads) {
  crowded_ += threads > granted_ + kBesideInACall;
  crowd_ = std::max(crowd_, threads);
}

bool ThreadCount::is_told(const Sum& sum) {
  return (sum.calls >= kSeen && sum.wall_s > sum.calls * kCallCounts) ||
         (sum.wall_s >= kToldFrom && sum.wall_s > sum.calls * kCallToldFrom);
}

std::vector<std::string> ThreadCount::not_believed() const {
  std::vector<std::string> all;
  if (!is_known_) {
    all.push_back(
        "on how many threads a call computes cannot be told: its worker ends with the call, or "
        "leaves the end of processes that it starts to nobody");
  }
  for (const auto& [what, sum] : sums_) {
    if (sum.computed_s - kTickSeconds > (granted_ + kBeside) * sum.wall_s) {
      all.push_back(
          fmt::format("{}: its calls compute on {:.1f} threads, where --threads grants {}: "
                      "their times are no measure",
                      what, sum.computed_s / sum.wall_s, granted_));
    } else if (sum.beyond >= std::max<double>(kSeen, kSome * sum.calls)) {
      all.push_back(
          fmt::format("{}: {} of its {} calls compute on more threads than --threads grants, which "
                      "is {}: their times are no measure",
                      what, sum.beyond, sum.calls, granted_));
    }
  }
  if (all.empty() && crowded_ >= kSeen) {
    all.push_back(
        fmt::format("its calls compute on up to {:.1f} threads, where --threads grants {}: "
                    "their times are no measure",
                    crowd_, granted_));
  }
  return all;
}

std::vector<std::string> ThreadCount::too_short() const {
  std::vector<std::string> all;
  for (const auto& [what, sum] : sums_) {
    if (!is_told(sum)) all.push_back(what);
  }
  return all;
}

}  // namespace attest
