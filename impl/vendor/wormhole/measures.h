// What the figures are made of: the seed's grid of sizes in the model of time, and what BFP8 does
// to results.
#pragma once

#include <vector>

#include "impl/vendor/wormhole/perf_model.h"

namespace attest::vendor::wormhole {

// head_dim 64, 128, 256 of a hidden dim of 2048, lengths from 512 to 16384 of 16384 tokens in all,
// in bf16 and in BFP8, causal: with the best program config, and with that but for one choice.
struct SizeMeasured {
  Shape shape;  // of Q, K and V
  DataType dtype;
  SDPAProgramConfig config;
  Estimate best;
  double baseline_seconds;
  Estimate contiguous, single_buffered, masked_everywhere;
  bool splits_heads;  // over cores, so that there are two ways to deal out the chunks of one

  double over_baseline() const { return baseline_seconds / best.seconds(); }
  double flops_per_second() const { return causal_flops(shape) / best.seconds(); }
};
const std::vector<SizeMeasured>& measured_sizes();

// How far results are from the exact ones, as the root mean square over that of the exact ones; of
// the same bf16 numbers (normal, 2 heads, 256 x 64, causal), which are rounded once more to become
// BFP8.
struct FormatError {
  double inputs, output;
};
FormatError measured_error(DataType dtype, const DeviceComputeKernelConfig& config);

}  // namespace attest::vendor::wormhole
