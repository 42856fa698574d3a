// What version 2 makes of q k before the softmax, in both passes: softcap, ALiBi, the band of
// visible keys. Scores are those of q k, to be multiplied with scale_softmax yet.
#pragma once

#include <cmath>
#include <cstdlib>

#include "impl/vendor/nvidia_grid/fragment.h"
#include "impl/vendor/nvidia_grid/params.h"

namespace attest::vendor::nvidia_grid::v2 {

// Anchored at the bottom right, where the last row meets the last key.
inline Band band_of(const Params& p, const Sequence& s) {
  const std::int64_t shift = s.keys - s.queries;
  return {.keys = s.keys,
          .has_left = p.is_local(),
          .has_right = p.causal || p.is_local(),
          .left = shift - p.window_left,
          .right = shift + p.window_right};
}

inline void apply_softcap(Fragment& scores, float softcap) {
  for (std::int64_t r = 0; r < scores.rows(); ++r) {
    float* row = scores.row(r);
    for (std::int64_t c = 0; c < scores.columns(); ++c) row[c] = std::tanh(row[c] * softcap);
  }
}

// Under a causal mask all rows are given the same: what differs is a constant of the row, and its
// LSE is off by it.
inline void apply_alibi(Fragment& scores, const Params& p, const HeadAt& at, const Area& area) {
  const float slope = p.alibi_slopes[at.batch * p.alibi_batch_stride + at.head] / p.scale_softmax;
  const std::int64_t shift = at.sequence.keys - at.sequence.queries;
  for (std::int64_t r = 0; r < scores.rows(); ++r) {
    float* row = scores.row(r);
    for (std::int64_t c = 0; c < scores.columns(); ++c) {
      const std::int64_t key = area.key + c;
      if (p.causal) {
        row[c] += slope * static_cast<float>(key);
      } else {
        row[c] -= slope * static_cast<float>(std::abs(area.row + r + shift - key));
      }
    }
  }
}

// The derivative of what apply_softcap returned, but for scale_softmax.
inline Fragment slopes_of_softcap(const Fragment& scores, float softcap) {
  Fragment slopes(scores.rows(), scores.columns());
  for (std::int64_t r = 0; r < scores.rows(); ++r) {
    for (std::int64_t c = 0; c < scores.columns(); ++c) {
      slopes.row(r)[c] = (1 - scores.row(r)[c] * scores.row(r)[c]) * softcap;
    }
  }
  return slopes;
}

}  // namespace attest::vendor::nvidia_grid::v2
