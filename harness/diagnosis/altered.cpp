#include "harness/diagnosis/altered.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "harness/diagnosis/setting.h"
#include "reference/working.h"

namespace attest {
namespace {

// A key head for each query head.
Setting with_own_key_heads(const Setting& setting) {
  Setting own = setting;
  own.problem.key_heads = setting.problem.query_heads;
  const auto spread = [&](const Values& values) {
    Shape shape = values.shape;
    shape[kHead] = setting.problem.query_heads;
    Values result = zeros(shape);
    for (Index at = 0; at < element_count(shape); ++at) {
      const auto [b, h, s, d] = coordinates(shape, at);
      result.data[static_cast<std::size_t>(at)] =
          values.at(b, setting.key_head[static_cast<std::size_t>(h)], s, d);
    }
    return result;
  };
  own.inputs.k = spread(setting.inputs.k);
  own.inputs.v = spread(setting.inputs.v);
  return own;
}

// The gradients of a key head: the sum of those of the query heads that add to it.
Expected gathered(const Expected& own, const Setting& setting, Shape shape) {
  Expected sum;
  sum.value.assign(static_cast<std::size_t>(element_count(shape)), 0);
  sum.bound = sum.value;
  Shape spread = shape;
  spread[kHead] = setting.problem.query_heads;
  for (Index at = 0; at < element_count(spread); ++at) {
    const auto [b, h, s, d] = coordinates(spread, at);
    const auto head = static_cast<std::size_t>(h);
    const auto into = static_cast<std::size_t>(dense_index(shape, b, setting.key_head[head], s, d));
    // Rounding their sum: a step for each head.
    sum.bound[into] += 2 * own.bound[static_cast<std::size_t>(at)];
    if (!setting.adds.empty() && !setting.adds[head]) continue;
    sum.value[into] += own.value[static_cast<std::size_t>(at)];
  }
  return sum;
}

// The setting whose own backward pass gives the gradients that are wanted of it with O and LSE of
// another forward pass. Weights made with another LSE are those with its own times exp(own LSE -
// LSE): so are dS and dV, if dO and dLSE are. Another D is another dLSE.
Setting with_given(const Setting& setting, const ForwardExpected& own,
                   const ForwardExpected& given) {
  Setting other = setting;
  Problem& p = other.problem;
  if (!p.d_lse) other.inputs.d_lse = zeros(p.lse_shape());
  p.d_lse = true;
  const auto channels = static_cast<std::size_t>(p.value_dim);
  for (std::size_t row = 0; row < own.lse.value.size(); ++row) {
    if (own.lse.value[row] == -kInfinite) continue;
    const double factor = std::exp(own.lse.value[row] - given.lse.value[row]);
    double& d_lse = other.inputs.d_lse.data[row];
    for (std::size_t at = row * channels; at < (row + 1) * channels; ++at) {
      double& d_o = other.inputs.d_o.data[at];
      d_lse += d_o * (own.o.value[at] - given.o.value[at]);
      d_o *= factor;
    }
    d_lse *= factor;
  }
  return other;
}

// What `expect` expects where each query head has its own key head, put together as the setting has
// them.
PassesExpected with_key_heads_of(const Setting& setting,
                                 const std::function<PassesExpected(const Setting&)>& expect) {
  if (setting.key_head.empty()) return expect(setting);
  PassesExpected expected = expect(with_own_key_heads(setting));
  if (setting.problem.backward) {
    PerGradient<Expected>& gradients = expected.backward;
    gradients.dk = gathered(gradients.dk, setting, setting.problem.k_shape());
    gradients.dv = gathered(gradients.dv, setting, setting.problem.v_shape());
  }
  return expected;
}

PassesExpected expect_both(const Setting& setting, const Arithmetic& arithmetic,
                           const Excerpt* excerpt) {
  const Problem& problem = setting.problem;
  if (problem.backward) return expect_passes(problem, setting.inputs, arithmetic, 1, excerpt);
  return {.forward = expect_forward(problem, setting.inputs, arithmetic, 1, excerpt),
          .backward = {}};
}

}  // namespace

PassesExpected expect_altered(const Setting& setting, const Arithmetic& arithmetic,
                              const Excerpt* excerpt) {
  return with_key_heads_of(
      setting, [&](const Setting& used) { return expect_both(used, arithmetic, excerpt); });
}

PassesExpected expect_altered_backward(const Setting& setting, PassesExpected own, const Left& left,
                                       bool takes_lse, const Arithmetic& arithmetic,
                                       const Excerpt* excerpt) {
  ForwardExpected given = left.right;
  if (!takes_lse) given.lse = left.own.lse;
  // Weights are as much larger as the LSE that they are made with is too small.
  const auto& own_lse = left.own.lse.value;
  double larger = 1;
  for (std::size_t row = 0; row < own_lse.size() && row < given.lse.value.size(); ++row) {
    const double rise = own_lse[row] - given.lse.value[row];
    if (std::isfinite(rise)) larger = std::max(larger, std::exp(rise));
  }
  std::optional<PassesExpected> gradients;  // null: its own
  if (given.o.value != left.own.o.value || given.lse.value != own_lse) {
    gradients = with_key_heads_of(setting, [&](const Setting& used) {
      return expect_both(with_given(used, left.own, given), arithmetic, excerpt);
    });
  }
  for (const TensorName tensor : kGradients) {
    Expected& each = own[tensor];
    for (std::size_t at = 0; at < each.value.size(); ++at) {
      if (gradients && !std::isnan(each.value[at])) each.value[at] = (*gradients)[tensor].value[at];
      each.bound[at] *= 2 * larger;
    }
    each.rest.clear();
  }
  return own;
}

}  // namespace attest
