#include "harness/oracle/magnitude.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attest {

double largest_in(const Values& values) {
  double largest = 0;
  for (const double value : values.data) {
    if (!std::isfinite(value)) return std::numeric_limits<double>::quiet_NaN();
    largest = std::max(largest, std::abs(value));
  }
  return largest;
}

double largest_score(const Problem& p, const Inputs& in, double scale) {
  const double product =
      std::abs(scale) * largest_in(in.q) * largest_in(in.k) * static_cast<double>(p.head_dim);
  const double distance = static_cast<double>(p.query_len + p.key_len);
  return product + (p.slopes_shape ? largest_in(in.slopes) * distance : 0);
}

}  // namespace attest
