// What the mock says of the seed's shapes: what setting a kernel up costs the host, and how long
// the device takes for a step. Counts, and cycles of this model: no claim on hardware.
#pragma once

#include <cstdint>
#include <optional>

#include "impl/vendor/splash/axlearn.h"
#include "impl/vendor/splash/splash_api.h"

namespace attest::vendor::splash {

// Self-attention of AXLearn: causal, within a window if there is one.
struct AttentionShape {
  std::int64_t seq_len;
  std::int64_t heads;
  std::int64_t head_dim = 128;
  std::int64_t batch_size = 1;
  std::optional<std::int64_t> sliding_window_size = {};
  std::int64_t block_size = 512;
};

// Of the mask and the infos of both kernels, as they are made.
HostCount setup_counted(const AttentionShape& shape, MaskForm form);
// The same without making them, for causal masks: what a mask of 32768 x 32768 would cost.
HostCount setup_count(const AttentionShape& shape, MaskForm form);

// How it lies in memory.
struct MaskFootprint {
  std::int64_t scalar_memory = 0;   // bytes, of the tables of the forward kernel
  std::int64_t partial_blocks = 0;  // bytes in HBM
  std::int64_t blocks = 0, blocks_run = 0, blocks_partly = 0;  // of queries by keys
};
MaskFootprint mask_footprint(const AttentionShape& shape, MaskForm form);

struct StepTime {
  device::Cycles forward = 0, backward = 0;
  double forward_ms() const;
  double backward_ms() const;
};
// In bfloat16, on the cores of one chip.
StepTime step_time(const AttentionShape& shape, MaskForm form);

// A layer of the benchmark, "representative of a 1.2b model": its heads.
struct BenchmarkModel {
  const char* name;
  std::int64_t heads;
};
inline constexpr BenchmarkModel kBenchmarkModels[] = {
    {"1.2b", 16}, {"12.6b", 40}, {"29.6b", 56}, {"65.2b", 72}, {"134b", 88}, {"261.7b", 110}};
AttentionShape benchmark_shape(const BenchmarkModel& model);  // 8k, a window of 1k, batch 2

}  // namespace attest::vendor::splash
