// The kernels of both versions, as their host code launches them. Params say where everything lies;
// partial sums are the caller's.
#pragma once

#include <cstdint>

#include "impl/vendor/nvidia_grid/grids.h"
#include "impl/vendor/nvidia_grid/params.h"
#include "impl/vendor/nvidia_grid/tiles.h"

namespace attest::vendor::nvidia_grid {

namespace v1 {

// K and V outside: every thread block has each `num_splits`-th strip of 16 rows and goes over all
// of them for each block of keys, with O and LSE of the keys before in global memory.
void run_fmha_fwd(const Params& params, const ForwardTile& tile, std::int64_t num_splits);

// With 1 split a thread block does all keys of a head, one block after the other; with more there
// is a thread block for each, and dQ is summed by atomic additions.
void run_fmha_bwd(const Params& params, const BackwardTile& tile, std::int64_t num_splits);

}  // namespace v1

namespace v2 {

// Q outside: a thread block has one block of rows and all keys that these see.
void run_mha_fwd(const Params& params, const ForwardTile& tile);

// A thread block has one block of keys, or, where that is to be deterministic, each `blocks`-th:
// as many blocks of each head as the GPU has SMs for it, each with a part of dQ of its own.
// `params.partials` has `parts` of them, `part_stride` floats apart.
struct DqSum {
  bool deterministic;
  std::int64_t blocks, parts, part_stride;
};
void run_mha_bwd(const Params& params, const BackwardTile& tile, const DqSum& sum);

}  // namespace v2

}  // namespace attest::vendor::nvidia_grid
