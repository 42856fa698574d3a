// A tensor as the package's users hand it over, and what it throws at those that it can't take.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "impl/vendor/nvidia_grid/element.h"

namespace attest::vendor::nvidia_grid {

struct FlashAttnError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Strides are in elements.
struct Tensor {
  void* data;
  ScalarType dtype;
  std::vector<std::int64_t> sizes, strides;
};

}  // namespace attest::vendor::nvidia_grid
