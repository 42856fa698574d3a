// The arithmetic on rows that the kernels share: powers of two by one fused operation, as the
// compiler of the GPU's programs makes it, and masks that are -inf.
#pragma once

#include <cmath>
#include <cstdint>

#include "impl/vendor/nvidia_grid/fragment.h"
#include "impl/vendor/nvidia_grid/params.h"

namespace attest::vendor::nvidia_grid {

// exp2(x scale - subtrahend), rounded once before exp2: the product is exact in double.
inline float exp2_of(float x, float scale, float subtrahend) {
  return std::exp2(static_cast<float>(static_cast<double>(x) * static_cast<double>(scale) -
                                      static_cast<double>(subtrahend)));
}

// Of scores whose first one belongs to (area.row, area.key).
inline void mask(Fragment& scores, const Band& band, const Area& area) {
  for (std::int64_t r = 0; r < scores.rows(); ++r) {
    const std::int64_t begin = band.begin(area.row + r) - area.key;
    const std::int64_t end = band.end(area.row + r) - area.key;
    float* row = scores.row(r);
    for (std::int64_t c = 0; c < scores.columns(); ++c) {
      if (c < begin || c >= end) row[c] = -kInfinity;
    }
  }
}

// In the backward pass: scores become P again, from LSE.
inline void weigh(Fragment& scores, const float* lse, float scale_log2) {
  for (std::int64_t r = 0; r < scores.rows(); ++r) {
    const float subtrahend = lse[r] * static_cast<float>(kLog2E);
    float* row = scores.row(r);
    for (std::int64_t c = 0; c < scores.columns(); ++c) {
      row[c] = exp2_of(row[c], scale_log2, subtrahend);
    }
  }
}

inline void scale_by(Fragment& numbers, float factor) {
  for (std::int64_t r = 0; r < numbers.rows(); ++r) {
    float* row = numbers.row(r);
    for (std::int64_t c = 0; c < numbers.columns(); ++c) row[c] *= factor;
  }
}

// The larger one, and never a NaN beside a number.
inline float larger(float a, float b) { return a > b || b != b ? a : b; }

}  // namespace attest::vendor::nvidia_grid
