// The time that a call takes of a worker: by the clock, of its busiest thread, and idle. Limits are
// on the latter two, so that other work on the machine turns no right kernel into a slow one
// (SPEC.md, chapter "Worker", Time).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/process/processes.h"
#include "spec/verdict.h"

namespace attest {

// A limit is passed when the busiest thread has computed for so long, when the worker has been idle
// for so long, or when kBackstop times as much has gone by.
inline constexpr double kBackstop = 10;

// The limit on a call, where one of a small problem may take `seconds`: a request that has a
// problem gets a second more for each 2e9 products of a query, a key and a channel (B Hq Sq Sk (D +
// Dv)).
double limit_for(const nlohmann::json& request, double seconds);

// One call, watched from its beginning on. What a thread does before the first look, or between its
// last look and its end, is not counted.
class CallTime {
 public:
  using Clock = std::chrono::steady_clock;

  explicit CallTime(double limit_s) : limit_s_(limit_s) {}

  // Looks at the threads of those processes, all that the worker has, unless it did a moment ago.
  // Whoever could not look for long, as the machine had other things to do, does not take the
  // worker for idle all the while: a limit takes several looks to be passed.
  void look(const std::vector<pid_t>& family, Clock::time_point now = Clock::now());
  // Which limit was passed by the last look, in words; nothing before that.
  std::optional<std::string> passed() const;
  const TimeEvidence& spent() const { return spent_; }

 private:
  double limit_s_;
  Clock::time_point start_ = Clock::now();
  std::optional<Clock::time_point> looked_ = {};
  std::map<pid_t, ThreadTime> threads_ = {};  // by then
  std::map<pid_t, double> computed_ = {};     // seconds of each thread since the first look
  double ended_s_ = 0;                        // of threads that ended
  int looks_ = 0, crowded_ = 0;  // those at which the machine had more to do than it can
  TimeEvidence spent_ = {};
};

}  // namespace attest
