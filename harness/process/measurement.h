// What one call of a worker takes, of memory and of threads, as the system counts it from outside.
//
//   Measurement measured(family_of(worker), files_of_the_arena);   // begins here
//   ... measured.look(family_of(worker));                          // as often as can be
//   measured.end(family_of(worker));                               // once it has answered
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "harness/process/executor.h"
#include "harness/process/processes.h"

namespace attest {

class Measurement {
 public:
  // Memory in `apart`, the tensors, is not the processes' own.
  Measurement(const std::vector<pid_t>& family, std::set<FileId> apart);

  void look(const std::vector<pid_t>& family);
  void end(const std::vector<pid_t>& family);

  double wall_seconds() const { return wall_s_; }

  // What each thread computed.
  std::vector<double> thread_seconds() const;

  // How many threads there were at a time; nothing of a call that is too short to tell.
  std::optional<double> running_threads() const;

  struct Memory {
    BytesTaken risen;    // beyond what there was when it began
    BytesTaken touched;  // of whatever age
  };
  // Nothing where the system doesn't tell, or not of all processes.
  std::optional<Memory> memory() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Before {
    bool forgot;  // its peak counts from here, and the pages it touches
    std::optional<std::size_t> resident, own, peak, ended;
  };
  struct Seen {
    std::size_t resident = 0;              // bytes, the most at any look
    std::optional<std::size_t> peak = {};  // that the system kept
  };
  static Memory taken(pid_t pid, const Before& then, const Seen& seen);

  std::set<FileId> apart_;
  std::map<pid_t, Before> before_;
  std::map<pid_t, ThreadTime> threads_before_;
  std::size_t unmapped_before_ = 0;
  double cpu_before_ = 0;
  Clock::time_point start_;
  std::map<pid_t, Seen> seen_;                // of each process
  std::map<pid_t, ThreadTime> threads_ = {};  // of each thread, meanwhile
  std::size_t unmapped_ = 0;                  // bytes of files in memory, the most at any look
  double wall_s_ = 0, cpu_s_ = 0;             // that it took
};

}  // namespace attest
