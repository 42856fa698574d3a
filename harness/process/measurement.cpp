#include "harness/process/measurement.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace attest {
namespace {

// Of processes that a call starts and ends, less than any declaration has to count.
constexpr std::size_t kUnseenBytes = std::size_t(8) << 20;
// A call of which it can be told how many threads it had, and what the system may add to its time.
constexpr double kEnoughSeconds = 0.1, kTickSeconds = 0.02;
// Where the system keeps no peak, there is no most.
constexpr double kNobodyKnows = std::numeric_limits<double>::infinity();

}  // namespace

Measurement::Measurement(const std::vector<pid_t>& family, std::set<FileId> apart)
    : apart_(std::move(apart)) {
  for (const pid_t pid : family) {
    const bool forgot = forget_peak(pid) && forget_touched(pid);
    before_[pid] = {forgot, resident_bytes(pid), own_bytes(pid), peak_bytes(pid), ended_bytes(pid)};
  }
  unmapped_before_ = unmapped_bytes(family, apart_);
  threads_before_ = thread_times(family);
  cpu_before_ = cpu_seconds(family);
  start_ = Clock::now();
}

void Measurement::look(const std::vector<pid_t>& family) {
  for (const pid_t pid : family) {
    const auto now = resident_bytes(pid), peak = peak_bytes(pid);
    if (!now) continue;
    Seen& seen = seen_[pid];
    seen.resident = std::max(seen.resident, *now);
    seen.peak = std::max(seen.peak, peak);
  }
  unmapped_ = std::max(unmapped_, unmapped_bytes(family, apart_));
  for (const auto& [id, time] : thread_times(family)) {
    const auto then = threads_before_.find(id);
    const ThreadTime before = then == threads_before_.end() ? ThreadTime{} : then->second;
    threads_[id] = {time.cpu_s - before.cpu_s, time.waited_s - before.waited_s};
  }
}

void Measurement::end(const std::vector<pid_t>& family) {
  wall_s_ = std::chrono::duration<double>(Clock::now() - start_).count();
  look(family);
  cpu_s_ = cpu_seconds(family) - cpu_before_;
}

std::vector<double> Measurement::thread_seconds() const {
  std::vector<double> seconds;
  for (const auto& [id, time] : threads_) seconds.push_back(time.cpu_s);
  return seconds;
}

std::optional<double> Measurement::running_threads() const {
  if (wall_s_ < kEnoughSeconds) return std::nullopt;
  double waited = 0;
  for (const auto& [id, time] : threads_) waited += time.waited_s;
  return std::max(0.0, cpu_s_ - kTickSeconds + waited) / wall_s_;
}

// What a process took that was there before: at least, as it was seen to have, and at most, as its
// peak says.
Measurement::Memory Measurement::taken(pid_t pid, const Before& then, const Seen& seen) {
  const auto resident = static_cast<double>(*then.resident);
  double least = static_cast<double>(seen.resident), most = kNobodyKnows;
  if (seen.peak && then.peak) {
    most = static_cast<double>(*seen.peak);
    // A peak of before says nothing of now, but that there was none above it.
    if (then.forgot || *seen.peak > *then.peak) least = most;
  }
  const BytesTaken risen = {std::max(0.0, least - resident), std::max(0.0, most - resident)};
  // All that is its own may have been used, if nothing is told.
  BytesTaken touched = {0, static_cast<double>(then.own.value_or(*then.resident)) + risen.most};
  if (then.forgot) {
    if (const auto used = touched_bytes(pid))
      touched.least = touched.most = static_cast<double>(*used);
  }
  return {.risen = risen, .touched = touched};
}

std::optional<Measurement::Memory> Measurement::memory() const {
  if (!kMemoryTells) return std::nullopt;
  Memory all = {};
  const auto add = [](BytesTaken& sum, const BytesTaken& part) {
    sum.least += part.least;
    sum.most += part.most;
  };
  std::size_t ended = 0, born = 0;
  for (const auto& [pid, then] : before_) {
    const std::optional<std::size_t> over = ended_bytes(pid);
    const auto seen = seen_.find(pid);
    // It is gone, or nothing is told.
    if (!then.resident || !then.ended || !over || seen == seen_.end()) return std::nullopt;
    ended += *over - *then.ended;
    const Memory of_process = taken(pid, then, seen->second);
    add(all.risen, of_process.risen);
    add(all.touched, of_process.touched);
  }
  for (const auto& [pid, seen] : seen_) {
    if (before_.contains(pid)) continue;
    const std::size_t peak = seen.peak.value_or(seen.resident);
    add(all.risen,
        {static_cast<double>(peak), seen.peak ? static_cast<double>(peak) : kNobodyKnows});
    born += peak;
  }
  const double unmapped =
      static_cast<double>(unmapped_) - static_cast<double>(std::min(unmapped_, unmapped_before_));
  add(all.risen, {unmapped, unmapped});
  // Processes that came and went between two looks.
  if (ended > born + kUnseenBytes) return std::nullopt;
  return all;
}

}  // namespace attest
