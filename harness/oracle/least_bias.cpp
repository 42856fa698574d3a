#include "harness/oracle/least_bias.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "harness/oracle/magnitude.h"

namespace attest {
namespace {

// Shares of the largest number: a bias of minus the first or below hides, one within the second is
// a key's that is there, and scores within the third lie nearer to each other than those two.
constexpr double kHides = 0.5, kIsThere = 0.125, kOfScores = 0.125;

class Hiding {
 public:
  Hiding(const Problem& problem, Values& bias)
      : p_(problem), bias_(bias), largest_(largest_finite(problem.dtype)) {}

  bool any() const {
    return std::any_of(bias_.data.begin(), bias_.data.end(), [&](double b) { return hides(b); });
  }
  double largest() const { return largest_; }

  void carry_out() {
    const Shape of_rows = {bias_.shape[0], bias_.shape[1], bias_.shape[2], 1};
    std::vector<bool> stays(static_cast<std::size_t>(element_count(of_rows)));
    for (Index row = 0; row < element_count(p_.lse_shape()); ++row) {
      auto [b, h, i, channel] = coordinates(p_.lse_shape(), row);
      if (p_.packed) {
        b = p_.query_lens.element_of(i);
        i -= p_.query_lens.start(b);
      }
      if (sees_nothing_else({b, h, i, 0})) stays[broadcast_index(of_rows, {b, h, i, 0})] = true;
    }
    for (std::size_t at = 0; at < bias_.data.size(); ++at) {
      if (!hides(bias_.data[at])) continue;
      const auto [b, h, i, j] = coordinates(bias_.shape, static_cast<Index>(at));
      bias_.data[at] = stays[broadcast_index(of_rows, {b, h, i, 0})]
                           ? -largest_finite(p_.lse_dtype())
                           : -std::numeric_limits<double>::infinity();
    }
  }

 private:
  bool hides(double b) const { return b <= -kHides * largest_ && !std::isinf(b); }

  // Whether the row sees keys, and none that is surely there.
  bool sees_nothing_else(Position at) const {
    bool sees_some = false;
    for (at.key = 0; at.key < p_.lengths(at.batch).key; ++at.key) {
      if (!visible(p_, at)) continue;
      sees_some = true;
      const double b = bias_.data[broadcast_index(bias_.shape, at)];
      if (std::abs(b) <= kIsThere * largest_) return false;
    }
    return sees_some;
  }

  const Problem& p_;
  Values& bias_;
  double largest_;
};

}  // namespace

void hide_by_least_bias(const Problem& problem, Inputs& inputs) {
  if (!problem.bias_shape) return;
  Hiding hiding(problem, inputs.bias);
  if (!hiding.any() || std::isnan(largest_in(inputs.v))) return;
  const double score = largest_score(problem, inputs, problem.scale);
  if (score <= kOfScores * hiding.largest()) hiding.carry_out();
}

}  // namespace attest
