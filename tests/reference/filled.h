// Inputs that follow from the shapes alone, the same on every machine.
#pragma once

#include "reference/exact.h"

namespace attest::exact {

// A tensor filled by a function of the coordinates.
template <typename T, typename F>
Tensor<T> filled(const Shape& shape, const F& value) {
  Tensor<T> tensor(shape);
  for (Index n = 0; n < element_count(shape); ++n) {
    const auto [b, h, s, c] = coordinates(shape, n);
    tensor.data[static_cast<std::size_t>(n)] = T(value(b, h, s, c));
  }
  return tensor;
}

// All that the problem has, between -32 and 32 steps; dropout keeps where such a number is below
// `kept_below`.
inline attest::Inputs scattered_inputs(const Problem& problem, double step, double kept_below) {
  int state = 1;
  const auto values = [&](const Shape& shape) {
    Values scattered = zeros(shape);
    for (double& value : scattered.data) value = step * ((state = state * 75 % 65537) % 65 - 32);
    return scattered;
  };
  attest::Inputs inputs = {.q = values(problem.q_shape()),
                           .k = values(problem.k_shape()),
                           .v = values(problem.v_shape()),
                           .d_o = values(problem.o_shape())};
  if (problem.bias_shape) inputs.bias = values(*problem.bias_shape);
  if (problem.slopes_shape) inputs.slopes = values(*problem.slopes_shape);
  if (problem.sink) inputs.sink = values(problem.sink_shape());
  if (problem.d_lse) inputs.d_lse = values(problem.lse_shape());
  if (problem.dropout.mode != Dropout::Mode::none) {
    inputs.keep.shape = problem.keep_shape();
    for (const double x : values(problem.keep_shape()).data) {
      inputs.keep.kept.push_back(x < kept_below);
    }
  }
  return inputs;
}

}  // namespace attest::exact
