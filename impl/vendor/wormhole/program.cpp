#include "impl/vendor/wormhole/program.h"

#include <algorithm>

namespace attest::vendor::wormhole {

bool Program::masks(std::int64_t query_chunk, std::int64_t key_chunk) const {
  if (given_mask) return true;
  if (!shape.is_causal) return pads_keys() && key_chunk == shape.key_chunks - 1;
  return !choices.mask_diagonal_only || shape.on_diagonal(query_chunk, key_chunk);
}

StepCycles Program::step_cycles() const {
  const TileCosts cost;
  const Cycles intermediate = cost.elementwise(tile_bytes(precision.intermediate));
  const Cycles weights = cost.elementwise(tile_bytes(kWeights));
  const Cycles product = cost.matmul_pass * static_cast<Cycles>(precision.fidelity);
  const std::int64_t rows = shape.query_chunk_tiles, scores = score_tiles(), sums = query_tiles();
  return {.scores = scores * (head_dim_tiles * product + intermediate),  // and the scale
          .mask = scores * intermediate,
          // A row's maximum, with the one so far; exponentials; their sum.
          .softmax =
              scores * (intermediate + std::max(cost.exp, weights) + weights) + rows * intermediate,
          .values = scores * head_dim_tiles * product,
          // What the sums so far are multiplied by, and they and the new ones are added.
          .rescale = rows * (cost.exp + 2 * intermediate) + 2 * sums * intermediate,
          .finish = rows * cost.reciprocal + sums * intermediate +
                    sums * cost.elementwise(tile_bytes(input))};
}

}  // namespace attest::vendor::wormhole
