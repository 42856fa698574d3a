// A worker that computes only while a request is out: in between, all of its processes stand still.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <vector>

namespace attest {

class Standstill {
 public:
  using Clock = std::chrono::steady_clock;

  // Stops the leader of a group, the group, and all that descends from it, what those start
  // meanwhile included. Since when it does not compute: whoever had a processor meanwhile had it
  // as long as his clock says, and before that.
  Clock::time_point begin(pid_t leader);

  // Whether there are others by now, which nobody has stopped.
  bool is_joined(pid_t leader) const;

  // False if one of them has computed since, or is there no more: stopped processes do nothing, and
  // who goes on by himself, as by a timer that sends SIGCONT, had a moment of a processor.
  bool has_lasted(pid_t leader) const;

  // Whether the system tells that: not all have a clock of another process's time.
  bool is_told(pid_t leader) const;

  void end(pid_t leader) const;

  // That it had when it was still last; none before that.
  std::vector<pid_t> family() const;

 private:
  struct Stopped {
    std::optional<std::size_t> start = {};  // when it was started, as start_of says
    std::optional<double> computed_s = {};  // by then
  };
  std::map<pid_t, Stopped> stopped_ = {};
};

}  // namespace attest
