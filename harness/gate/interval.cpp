#include "harness/gate/interval.h"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>

#include "spec/assert.h"

namespace attest {

Interval interval_of(std::vector<double> measured) {
  constexpr double kLevel = 0.95;
  ATTEST_ASSERT(!measured.empty());
  std::sort(measured.begin(), measured.end());
  const std::size_t count = measured.size();
  // As many below the median as a coin shows heads: `left` of them are left out at either end.
  const boost::math::binomial_distribution<double> heads(static_cast<double>(count), 0.5);
  const auto level = [&](std::size_t left) {
    return 1 - 2 * boost::math::cdf(heads, static_cast<double>(left));
  };
  std::size_t left = 0;
  while (2 * (left + 2) <= count && level(left + 1) >= kLevel) ++left;
  const std::size_t middle = count / 2;
  return {
      .median = count % 2 == 1 ? measured[middle] : (measured[middle - 1] + measured[middle]) / 2,
      .least = measured[left],
      .most = measured[count - 1 - left],
      .level = std::max(0.0, level(left))};
}

}  // namespace attest
