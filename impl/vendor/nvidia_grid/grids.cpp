#include "impl/vendor/nvidia_grid/grids.h"

#include <algorithm>
#include <cmath>

#include "impl/vendor/nvidia_grid/params.h"

namespace attest::vendor::nvidia_grid {
namespace {

double efficiency(std::int64_t blocks, std::int64_t places) {
  const double waves = static_cast<double>(blocks) / static_cast<double>(places);
  return waves / std::ceil(waves);
}

std::int64_t places_of(const GpuRules& gpu, const Resources& resources) {
  return static_cast<std::int64_t>(gpu.sms) * blocks_per_sm(gpu, resources);
}

}  // namespace

std::int64_t num_splits_heuristic_fwd(std::int64_t batch_nheads, std::int64_t places,
                                      std::int64_t max_splits) {
  double best = 0;
  for (std::int64_t splits = 1; splits <= max_splits; ++splits) {
    best = std::max(best, efficiency(batch_nheads * splits, places));
  }
  for (std::int64_t splits = 1; splits <= max_splits; ++splits) {
    if (efficiency(batch_nheads * splits, places) > 0.95 * best) return splits;
  }
  return 1;
}

std::int64_t num_splits_heuristic_bwd(const GridProblem& problem, std::int64_t places,
                                      std::int64_t key_block) {
  const std::int64_t batch_nheads = problem.batch * problem.heads;
  const std::int64_t blocks = ceil_div(problem.seqlen_k, key_block);
  // Parallel blocks share dQ, which is zeroed before and converted after; under a causal mask they
  // make up for some of it, since long ones and short ones run at once.
  if (problem.causal && blocks >= 10) return blocks;
  const double overhead = (problem.causal ? 0.5 : 1.0) / static_cast<double>(blocks);
  const double parallel = efficiency(batch_nheads * blocks, places) / (1 + overhead);
  return efficiency(batch_nheads, places) >= parallel ? 1 : blocks;
}

namespace v1 {

std::int64_t forward_splits(const GpuRules& gpu, const GridProblem& problem) {
  const ForwardTile tile = v1_forward_tile(problem.head_dim, problem.seqlen_k);
  // At most 30; the release means to stop at the number of strips too, but for a parenthesis.
  return num_splits_heuristic_fwd(problem.batch * problem.heads, places_of(gpu, tile.resources()),
                                  std::min<std::int64_t>(30, problem.seqlen_q + tile.rows));
}

Dim3 forward_grid(const GpuRules& gpu, const GridProblem& problem) {
  return {problem.batch, problem.heads, forward_splits(gpu, problem)};
}

std::int64_t backward_splits(const GpuRules& gpu, const GridProblem& problem) {
  const BackwardTile tile = v1_backward_tile(problem.head_dim, problem.seqlen_k);
  return num_splits_heuristic_bwd(problem, places_of(gpu, tile.resources()), tile.keys);
}

Dim3 backward_grid(const GpuRules& gpu, const GridProblem& problem) {
  return {problem.batch, problem.heads, backward_splits(gpu, problem)};
}

}  // namespace v1

namespace v2 {

Dim3 forward_grid(const GpuRules& gpu, const GridProblem& problem) {
  const ForwardTile tile = v2_forward_tile(gpu, problem.head_dim);
  return {ceil_div(problem.seqlen_q, tile.rows), problem.batch, problem.heads};
}

Dim3 backward_grid(const GpuRules& gpu, const GridProblem& problem, bool deterministic) {
  const BackwardTile tile = v2_backward_tile(gpu, problem.head_dim);
  const std::int64_t blocks = deterministic ? ceil_div(gpu.sms, problem.batch * problem.heads)
                                            : ceil_div(problem.seqlen_k, tile.keys);
  return {blocks, problem.batch, problem.heads};
}

}  // namespace v2

}  // namespace attest::vendor::nvidia_grid
