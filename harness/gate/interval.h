// How sure a median is that was measured so many times.
#pragma once

#include <vector>

namespace attest {

struct Interval {
  double median = 0;
  double least = 0, most = 0;  // the median of all that could be measured lies between them
  double level = 0;            // with that probability, at least

  bool is_sure() const { return level >= 0.9; }  // as of five measurements
};

// Of independent measurements, at least one, however they are distributed: between the order
// statistics that a fair coin says (a sign test turned round). The level is 0.95, or what so few
// give, where they are no more than five.
Interval interval_of(std::vector<double> measured);

}  // namespace attest
