#include "harness/process/call_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace attest {
namespace {

double seconds_between(CallTime::Clock::time_point from, CallTime::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

double limit_for(const nlohmann::json& request, double seconds) {
  const auto problem = request.find("problem");
  if (problem == request.end()) return seconds;
  const auto size = [&](const char* name) { return problem->value(name, 0.0); };
  const double pairs = size("batch") * size("query_heads") * size("query_len") * size("key_len");
  return seconds + pairs * (size("head_dim") + size("value_dim")) / 2e9;
}

void CallTime::look(const std::vector<pid_t>& family, Clock::time_point now) {
  constexpr double kLooks = 100;  // in the time that the limit gives
  constexpr double kLeastLooks = 10;
  if (looked_ && seconds_between(*looked_, now) < limit_s_ / kLooks) return;
  spent_.wall_s = seconds_between(start_, now);
  std::map<pid_t, ThreadTime> threads = thread_times(family);
  const double ended_s = ended_seconds(family);
  if (looked_) {
    double ready = std::max(0.0, ended_s - ended_s_);  // computed, or waited for a processor
    std::size_t computing = 0;
    for (const auto& [id, time] : threads) {
      const auto before = threads_.find(id);
      const ThreadTime then = before == threads_.end() ? ThreadTime{} : before->second;
      const double cpu = std::max(0.0, time.cpu_s - then.cpu_s);
      double& computed = computed_[id];
      computed += cpu;
      spent_.cpu_s = std::max(spent_.cpu_s, computed);
      ready += cpu + std::max(0.0, time.waited_s - then.waited_s);
      computing += cpu > 0;
    }
    const double passed = seconds_between(*looked_, now);
    spent_.idle_s += std::min(passed - std::min(passed, ready), limit_s_ / kLeastLooks);
    // Whoever looks is running, too.
    crowded_ += running_threads() > computing + 1;
    ++looks_;
    spent_.busy = 2 * crowded_ >= looks_;
  }
  looked_ = now;
  threads_ = std::move(threads);
  ended_s_ = ended_s;
}

std::optional<std::string> CallTime::passed() const {
  if (spent_.cpu_s >= limit_s_) {
    return fmt::format("no reply within {} s of its busiest thread", limit_s_);
  }
  if (spent_.idle_s >= limit_s_) {
    return fmt::format("no reply within {} s in which it was idle", limit_s_);
  }
  if (spent_.wall_s >= kBackstop * limit_s_) {
    return fmt::format("no reply within {} s, {} times the limit", kBackstop * limit_s_, kBackstop);
  }
  return std::nullopt;
}

}  // namespace attest
