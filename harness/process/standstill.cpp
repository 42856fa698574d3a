#include "harness/process/standstill.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "harness/process/processes.h"

namespace attest {
namespace {

// Seconds of a processor that all threads of a process have had, to the nanosecond; nothing if
// there is none.
std::optional<double> computed_seconds(pid_t pid) {
  clockid_t clock = {};
  timespec time = {};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) {
    return std::nullopt;
  }
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

// A thread is told to be stopped a moment before it leaves its processor. `at_once` is false if it
// had more than that: it may have been continued by then.
std::optional<double> settled_seconds(pid_t pid, bool& at_once) {
  constexpr int kMostLooks = 100;
  auto seconds = computed_seconds(pid);
  for (int looks = 1; looks < kMostLooks; ++looks) {
    usleep(1);
    const auto now = computed_seconds(pid);
    if (now == seconds) break;
    at_once = false;
    seconds = now;
  }
  return seconds;
}

}  // namespace

Standstill::Clock::time_point Standstill::begin(pid_t leader) {
  const auto are_still = [](const std::map<pid_t, Stopped>& processes) {
    return std::all_of(processes.begin(), processes.end(),
                       [](const auto& each) { return stands_still(each.first); });
  };
  // Those that are known are told first, since a list takes its time, in which others go on.
  kill(-leader, SIGSTOP);
  for (const auto& [each, about] : stopped_) {
    // Another process may have the number by now.
    if (start_of(each) == about.start) kill(each, SIGSTOP);
  }
  const auto told = Clock::now();
  bool at_once = are_still(stopped_);
  const auto is_late = [asked = Clock::now()] {
    return Clock::now() - asked > std::chrono::seconds(5);
  };
  std::map<pid_t, Stopped> found;
  for (bool more = true; more && !is_late();) {
    more = false;
    for (const pid_t each : family_of(leader)) {
      if (!found.emplace(each, Stopped{start_of(each)}).second) continue;
      kill(each, SIGSTOP);
      at_once &= stopped_.contains(each);
      more = true;
    }
    // A signal waits for what a thread does within the system, which may be to start another.
    while (!are_still(found) && !is_late()) {
      at_once = false;
      usleep(100);
    }
  }
  stopped_ = std::move(found);
  for (auto& [each, about] : stopped_) about.computed_s = settled_seconds(each, at_once);
  return at_once ? told : Clock::now();
}

bool Standstill::is_joined(pid_t leader) const {
  if (stopped_.empty()) return false;
  const std::vector<pid_t> family = family_of(leader);
  return !std::all_of(family.begin(), family.end(),
                      [&](pid_t each) { return stopped_.contains(each); });
}

bool Standstill::has_lasted(pid_t leader) const {
  return std::all_of(stopped_.begin(), stopped_.end(), [&](const auto& each) {
    const auto& [pid, about] = each;
    const auto computed_s = computed_seconds(pid);
    // That the leader has ended is told otherwise.
    return computed_s == about.computed_s || (pid == leader && !computed_s);
  });
}

bool Standstill::is_told(pid_t leader) const {
  const auto about = stopped_.find(leader);
  return about == stopped_.end() || about->second.computed_s;
}

void Standstill::end(pid_t leader) const {
  for (const auto& [each, about] : stopped_) kill(each, SIGCONT);
  kill(-leader, SIGCONT);
}

std::vector<pid_t> Standstill::family() const {
  std::vector<pid_t> family;
  for (const auto& [each, about] : stopped_) family.push_back(each);
  return family;
}

}  // namespace attest
