#include "harness/oracle/least_bias.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace attest {
namespace {

// Shares of the softmax's largest number: a bias below minus the first hides, and one of at most
// the second is a key's that is there.
constexpr double kHides = 0.25, kIsThere = 0.125;

}  // namespace

void hide_by_least_bias(const Problem& p, Values& bias) {
  const double largest = largest_finite(p.lse_dtype());
  const auto hides = [&](double b) { return b < -kHides * largest && !std::isinf(b); };
  if (!p.bias_shape || std::none_of(bias.data.begin(), bias.data.end(), hides)) return;
  const Shape of_rows = {bias.shape[0], bias.shape[1], bias.shape[2], 1};
  std::vector<bool> stays(static_cast<std::size_t>(element_count(of_rows)));
  for (Index row = 0; row < element_count(p.lse_shape()); ++row) {
    auto [b, h, i, channel] = coordinates(p.lse_shape(), row);
    if (p.packed) {
      b = p.query_lens.element_of(i);
      i -= p.query_lens.start(b);
    }
    bool sees_some = false, sees_one_that_is_there = false;
    for (Index j = 0; j < p.lengths(b).key && !sees_one_that_is_there; ++j) {
      const Position at = {b, h, i, j};
      if (!visible(p, at)) continue;
      sees_some = true;
      sees_one_that_is_there =
          std::abs(bias.data[broadcast_index(bias.shape, at)]) <= kIsThere * largest;
    }
    if (sees_some && !sees_one_that_is_there) stays[broadcast_index(of_rows, {b, h, i, 0})] = true;
  }
  for (std::size_t at = 0; at < bias.data.size(); ++at) {
    const auto [b, h, i, j] = coordinates(bias.shape, static_cast<Index>(at));
    if (!hides(bias.data[at]) || stays[broadcast_index(of_rows, {b, h, i, 0})]) continue;
    bias.data[at] = -std::numeric_limits<double>::infinity();
  }
}

}  // namespace attest
