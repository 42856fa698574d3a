// The kernel `_attn_fwd`: a program for each block of rows of each head, FlashAttention-2 in
// base 2. Names are the tutorial's.
#pragma once

#include <cstdint>

#include "impl/vendor/triton/config.h"
#include "impl/vendor/triton/gpu.h"
#include "impl/vendor/triton/tensor.h"

namespace attest::vendor::triton {

// Strides are those of the tensors. What the tutorial has as constants of the compiler stands last.
struct AttnFwd {
  Tensor Q, K, V;
  float sm_scale;
  Tensor M, Out;
  std::int64_t H;
  std::int64_t N_CTX, BLOCK_DMODEL;
  int STAGE;  // bit 0: the blocks left of the diagonal; bit 1: those on it
  Config config;
};

struct Launched {
  device::Elapsed elapsed;
  std::int64_t flops;
};

// Compiles it, which may fail, and runs all programs, in order of their numbers.
Launched launch(const Gpu& gpu, const Grid& grid, const AttnFwd& arguments);

}  // namespace attest::vendor::triton
