#include "harness/diagnosis/altered.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "reference/exact.h"
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

using Real = long double;

// The gradients of the setting, given O and LSE.
PerGradient<std::vector<Real>> gradients_of(const Problem& problem, const Inputs& inputs,
                                            const ForwardExpected& given) {
  exact::Outputs<Real> forward = {.o = exact::Tensor<Real>(problem.o_shape()),
                                  .lse = exact::Tensor<Real>(problem.lse_shape())};
  std::copy(given.o.value.begin(), given.o.value.end(), forward.o.data.begin());
  std::copy(given.lse.value.begin(), given.lse.value.end(), forward.lse.data.begin());
  auto gradients = exact::backward(problem, exact::inputs_as<Real>(inputs), forward);
  return {std::move(gradients.dq.data), std::move(gradients.dk.data), std::move(gradients.dv.data),
          std::move(gradients.dbias.data), std::move(gradients.dsink.data)};
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

PassesExpected expect_both(const Setting& setting, const Arithmetic& arithmetic) {
  if (setting.problem.backward) return expect_passes(setting.problem, setting.inputs, arithmetic);
  return {.forward = expect_forward(setting.problem, setting.inputs, arithmetic), .backward = {}};
}

PassesExpected expect_given(const Setting& setting, const ForwardExpected& right, bool takes_lse,
                            const Arithmetic& arithmetic) {
  PassesExpected expected = expect_both(setting, arithmetic);
  ForwardExpected given = right;
  if (!takes_lse) given.lse = expected.forward.lse;
  // Weights are as much larger as the LSE that they are made with is too small.
  const auto& own_lse = expected.forward.lse.value;
  double larger = 1;
  for (std::size_t row = 0; row < own_lse.size() && row < given.lse.value.size(); ++row) {
    const double rise = own_lse[row] - given.lse.value[row];
    if (std::isfinite(rise)) larger = std::max(larger, std::exp(rise));
  }
  const auto gradients = gradients_of(setting.problem, setting.inputs, given);
  for (const TensorName tensor : kGradients) {
    Expected& each = expected[tensor];
    for (std::size_t at = 0; at < each.value.size(); ++at) {
      if (!std::isnan(each.value[at])) each.value[at] = double(gradients[tensor][at]);
      each.bound[at] *= 2 * larger;
    }
    each.rest.clear();
  }
  return expected;
}

}  // namespace

PassesExpected expect_altered(const Setting& setting, const Arithmetic& arithmetic) {
  return with_key_heads_of(setting,
                           [&](const Setting& used) { return expect_both(used, arithmetic); });
}

PassesExpected expect_altered_backward(const Setting& setting, const ForwardExpected& right,
                                       bool takes_lse, const Arithmetic& arithmetic) {
  return with_key_heads_of(setting, [&](const Setting& used) {
    return expect_given(used, right, takes_lse, arithmetic);
  });
}

}  // namespace attest
