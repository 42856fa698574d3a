// Tensors of the exact reference, filled by a function of the coordinates.
#pragma once

#include "reference/exact.h"

namespace attest::exact {

template <typename T, typename F>
Tensor<T> filled(const Shape& shape, const F& value) {
  Tensor<T> tensor(shape);
  for (Index n = 0; n < element_count(shape); ++n) {
    const auto [b, h, s, c] = coordinates(shape, n);
    tensor.data[static_cast<std::size_t>(n)] = T(value(b, h, s, c));
  }
  return tensor;
}

}  // namespace attest::exact
