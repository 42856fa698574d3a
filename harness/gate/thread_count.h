// On how many threads timed calls compute, by the time that all their threads had of processors.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/gate/timed.h"

namespace attest {

class ThreadCount {
 public:
  explicit ThreadCount(int granted) : granted_(granted) {}

  // One of the calls of a pass of a problem, which `what` names.
  void add(const std::string& what, const PassTime& call);

  // Of a call that was measured: how many computed or waited for a processor at a time, which tells
  // of a machine with too much to do, too.
  void add_running(double threads);

  // In words, times that are no measure: of what computes on more threads than it is granted, and
  // of what cannot be counted.
  std::vector<std::string> not_believed() const;

  // By their names, those whose calls are too short to tell.
  std::vector<std::string> too_short() const;

 private:
  struct Sum {
    int calls = 0, beyond = 0;  // of these, on more threads
    double wall_s = 0, computed_s = 0;
  };
  static bool is_told(const Sum& sum);

  int granted_;
  bool is_known_ = true;
  int crowded_ = 0;   // calls on more
  double crowd_ = 0;  // the most
  std::map<std::string, Sum> sums_ = {};
};

}  // namespace attest
