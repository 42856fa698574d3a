// The tiles that each version's kernels are made for, by head dimension: how many rows and keys a
// thread block holds of the score matrix, by how many warps, and what it takes of shared memory.
//
//   forward    v1  16 x 128, 16 x 256     one strip of rows, its keys dealt to 4 warps
//              v2  128 x 128, 128 x 64; 64 x 64 for large head dimensions: rows dealt to warps
//   backward   v1  16 x 128, 16 x 256     8 warps, each with keys of its own: split-K for dQ
//              v2  128 x 128, 64 x 128, 64 x 64     none
#pragma once

#include <cstdint>

#include "impl/vendor/nvidia_grid/gpu_rules.h"
#include "impl/vendor/nvidia_grid/thread_block.h"

namespace attest::vendor::nvidia_grid {

struct ForwardTile {
  std::int64_t rows, keys, head_dim;  // kBlockM, kBlockN, kHeadDim
  int warps;
  bool split_k;       // whether warps share a row's keys, and not the rows
  bool asynchronous;  // whether copies go to shared memory by themselves (cp.async)

  WarpLayout of_scores() const;  // Q K^T
  WarpLayout of_output() const;  // P V
  Resources resources() const;
};

struct BackwardTile {
  std::int64_t rows, keys, head_dim;
  int warps;
  bool split_k;         // whether warps add up dQ through shared memory
  bool v_in_registers;  // V's place in shared memory goes to dS and P
  int buffers_of_q;     // 2: the next Q is copied while this one is used
  bool asynchronous;
  int rows_of_warps_in_scores, keys_of_warps_in_dkv, rows_of_warps_in_dq;

  WarpLayout of_scores() const;  // Q K^T
  WarpLayout of_dp() const;      // dO V^T
  WarpLayout of_dkv() const;     // P^T dO and dS^T Q
  WarpLayout of_dq() const;      // dS K
  std::int64_t split_k_bytes() const;
  Resources resources() const;
};

// Of the releases of 2022 and 2023, for a head of that many channels: up to 128, up to 256.
ForwardTile v1_forward_tile(std::int64_t head_dim, std::int64_t keys);
BackwardTile v1_backward_tile(std::int64_t head_dim, std::int64_t keys);
ForwardTile v2_forward_tile(const GpuRules& gpu, std::int64_t head_dim);
BackwardTile v2_backward_tile(const GpuRules& gpu, std::int64_t head_dim);

}  // namespace attest::vendor::nvidia_grid
