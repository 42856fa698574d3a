// Into how many thread blocks each version cuts a problem, and what that makes of the SMs.
//
//   2022        one block for each head of each batch element, however long the sequence is
//   v1 forward  (batch, heads, num_splits): a split takes a share of the rows; how many splits is
//               decided up front, from batch x heads and the number of SMs
//   v2 forward  (row blocks, batch, heads), whatever the number of SMs
//   backward    v1 (batch, heads, key blocks, or 1), v2 (key blocks, batch, heads)
#pragma once

#include <cstdint>

#include "impl/vendor/nvidia_grid/gpu.h"
#include "impl/vendor/nvidia_grid/tiles.h"

namespace attest::vendor::nvidia_grid {

struct GridProblem {
  std::int64_t batch, heads, seqlen_q, seqlen_k, head_dim;
  bool causal = false;
};

// The fewest splits, of at most `max_splits`, that keep 95% of the places busy that can be.
std::int64_t num_splits_heuristic_fwd(std::int64_t batch_nheads, std::int64_t places,
                                      std::int64_t max_splits);

// 1, or one for each key block, where that keeps more places busy than it costs.
std::int64_t num_splits_heuristic_bwd(const GridProblem& problem, std::int64_t places,
                                      std::int64_t key_block);

namespace v1 {
std::int64_t forward_splits(const GpuRules& gpu, const GridProblem& problem);
Dim3 forward_grid(const GpuRules& gpu, const GridProblem& problem);
std::int64_t backward_splits(const GpuRules& gpu, const GridProblem& problem);
Dim3 backward_grid(const GpuRules& gpu, const GridProblem& problem);
}  // namespace v1

namespace v2 {
Dim3 forward_grid(const GpuRules& gpu, const GridProblem& problem);
Dim3 backward_grid(const GpuRules& gpu, const GridProblem& problem, bool deterministic);
}  // namespace v2

}  // namespace attest::vendor::nvidia_grid
