#include "harness/process/standstill.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "harness/process/processes.h"

namespace attest {
namespace {

// A thread is told to be stopped a moment before it leaves its processor.
std::optional<double> settled_seconds(pid_t pid) {
  constexpr int kMostLooks = 100;
  auto seconds = computed_seconds(pid);
  for (int looks = 1; looks < kMostLooks; ++looks) {
    usleep(1);
    const auto now = computed_seconds(pid);
    if (now == seconds) break;
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
  const auto asked = Clock::now();
  const auto is_late = [asked] { return Clock::now() - asked > std::chrono::seconds(5); };
  // Those that are known are told first, since a list takes its time, in which others go on.
  std::map<pid_t, std::optional<double>> by_then;
  for (const auto& [each, about] : stopped_) by_then[each] = computed_seconds(each);
  kill(-leader, SIGSTOP);
  for (const auto& [each, about] : stopped_) {
    // Another process may have the number by now.
    if (start_of(each) == about.start) kill(each, SIGSTOP);
  }
  std::map<pid_t, Stopped> found;
  for (bool more = true; more && !is_late();) {
    more = false;
    for (const pid_t each : family_of(leader)) {
      if (!found.emplace(each, Stopped{start_of(each)}).second) continue;
      kill(each, SIGSTOP);
      more = true;
    }
    // A signal waits for what a thread does within the system, which may be to start another.
    while (!are_still(found) && !is_late()) usleep(100);
  }
  stopped_ = std::move(found);
  const auto still = Clock::now();
  bool is_known = true;
  double went_on_s = 0;  // all of them together, since they were asked
  for (auto& [each, about] : stopped_) {
    about.computed_s = settled_seconds(each);
    const auto before = by_then.find(each);
    is_known &= before != by_then.end() && before->second && about.computed_s;
    if (is_known) went_on_s += *about.computed_s - *before->second;
  }
  if (!is_known) return Clock::now();
  return std::min(still, asked + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(went_on_s)));
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
