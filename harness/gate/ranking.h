// Kernels of one task side by side, by what the gate found of each.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/gate/gate.h"

namespace attest {

// A pass of a problem in which all were timed that conform.
struct Compared {
  std::string problem, shape, pass;  // as Speed has them

  bool operator==(const Compared&) const = default;
};

struct Ranked {
  std::size_t kernel = 0;                 // of those that were given
  std::optional<std::size_t> place = {};  // from 1, of those that conform and were compared
  // Of what is compared: the geometric mean of the baseline's time by its, and the most that a call
  // takes beyond its tensors.
  std::optional<Interval> speed = {};
  std::optional<BytesTaken> memory = {};
};

struct Ranking {
  std::vector<Compared> compared = {};
  std::vector<Ranked> kernels = {};  // the fastest first, then those that do not conform
};

// Of the results of kernels with the same baseline; a null one could not be asked. Ahead of a
// kernel are those that are faster for sure: whose whole interval lies above its own, both of calls
// enough. So several may share a place.
Ranking ranking_of(const std::vector<const GateResult*>& results);

}  // namespace attest
