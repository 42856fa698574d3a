// A median, how sure it is, and how both are told.
#pragma once

#include <string>

namespace attest {

struct Interval {
  double median = 0;
  double least = 0, most = 0;  // the median of all that could be measured lies between them
  double level = 0;            // with that probability, at least

  bool is_sure() const { return level >= 0.9; }  // as of five measurements
};

std::string interval_text(const Interval& interval, double unit = 1);  // "1.02 (0.99 to 1.05)"
std::string time_text(const Interval& seconds);  // the same, in the unit of its median

}  // namespace attest
