// The pieces that a run is dealt in.
#pragma once

#include <cstddef>
#include <vector>

#include "cases/case.h"

namespace attest {

// A case and those who are tried on it one after the other, for what it is compared with is
// computed once.
struct Portion {
  const Case* test_case = nullptr;
  std::size_t first = 0, end = 0;  // of the testees
};

// In the order of the record. Cases that take seconds are as many portions as testees where there
// are more jobs than that many cases keep busy: they would wait for the slowest testee's last.
std::vector<Portion> portions_of(const std::vector<Case>& cases, std::size_t testees, int jobs);

// An order in which the few that take seconds come first, the longest before all, lest the others
// wait for one at the end.
std::vector<std::size_t> longest_first(const std::vector<Portion>& portions);

}  // namespace attest
