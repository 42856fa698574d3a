// Random inputs of few digits, which every format holds.
#pragma once

#include <limits>
#include <random>

#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest {

// Multiples of 1/n between -2 and 2; one in eight biases is -inf.
inline Inputs fractions(const Problem& p, int n, unsigned seed) {
  std::mt19937 bits(seed);
  const auto any = [&] {
    const auto steps = static_cast<int>(bits() % (4 * static_cast<unsigned>(n) + 1));
    return (steps - 2 * n) / static_cast<double>(n);
  };
  const auto values = [&](const Shape& shape, const Layout& layout = {}) {
    Values result = zeros(shape);
    for (std::size_t i = 0; i < result.data.size(); ++i) {
      // An element of an expanded axis is the one at its start.
      auto at = coordinates(shape, static_cast<Index>(i));
      for (const Axis axis : {kBatch, kHead, kPosition, kChannel}) {
        if (layout.expands(axis)) at[axis] = 0;
      }
      const auto first = static_cast<std::size_t>(dense_index(shape, at[0], at[1], at[2], at[3]));
      result.data[i] = first < i ? result.data[first] : any();
    }
    return result;
  };
  Inputs in{.q = values(p.q_shape(), p.layouts.q),
            .k = values(p.k_shape(), p.layouts.k),
            .v = values(p.v_shape(), p.layouts.v)};
  if (p.backward) in.d_o = values(p.o_shape(), p.layouts.d_o);
  if (p.d_lse) in.d_lse = values(p.lse_shape());
  if (p.bias_shape) {
    in.bias = values(*p.bias_shape, p.layouts.bias);
    for (double& value : in.bias.data) {
      if (value < -1.5) value = -std::numeric_limits<double>::infinity();
    }
  }
  if (p.slopes_shape) {
    in.slopes = values(*p.slopes_shape);
    for (double& value : in.slopes.data) value /= 8;
  }
  if (p.sink) in.sink = values(p.sink_shape());
  if (p.dropout.mode == Dropout::Mode::given) {
    in.keep.shape = p.keep_shape();
    for (Index k = 0; k < element_count(p.keep_shape()); ++k) in.keep.kept.push_back(bits() % 2);
  }
  return in;
}

inline Inputs eighths(const Problem& p, unsigned seed) { return fractions(p, 8, seed); }
inline Inputs sixteenths(const Problem& p, unsigned seed) { return fractions(p, 16, seed); }

}  // namespace attest
