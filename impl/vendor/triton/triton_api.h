// The fused attention of the Triton tutorial, forward, as its users call it:
//
//   const Attended attended = attention(q, k, v, causal, sm_scale);   // q.shape = (Z, H, N_CTX, D)
//
// models the tutorial's calling convention as the seed describes it; no claim on hardware.
//
// What its users have to know, and the seed's text shows:
// - Q, K and V have one shape; D is 16, 32, 64 or 128; N_CTX is a multiple of BLOCK_M, since no
//   load is checked against the end.
// - The mask is causal from the top left. `causal` is kept for a backward pass, and nothing of the
//   forward pass reads it.
// - K and V are read by Q's strides of batch and head.
// - V is f16, for P is rounded to f16 before PV; Q and K are both f16, or both fp8 e5m2.
// - O is like Q: of its format, fp8 included.
// - M, kept for a backward pass, is log2 of the sum of exp of the scores.
#pragma once

#include <cstdint>

#include "impl/vendor/triton/config.h"
#include "impl/vendor/triton/errors.h"
#include "impl/vendor/triton/gpu.h"
#include "impl/vendor/triton/tensor.h"

namespace attest::vendor::triton {

// What autograd keeps of a call.
struct Context {
  Tensor q, k, v, o, M;
  Grid grid;
  double sm_scale;
  std::int64_t BLOCK_DMODEL;
  bool causal;
  device::Elapsed elapsed;      // of the mock
  std::int64_t programs_flops;  // of all matrix products that were made, what the mask hid included
};

struct Attended {
  Tensor o;
  Context ctx;
};

Attended attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, double sm_scale);

// The same on another GPU, and compiled otherwise.
Attended forward(const Gpu& gpu, const Config& config, const Tensor& q, const Tensor& k,
                 const Tensor& v, bool causal, double sm_scale);

}  // namespace attest::vendor::triton
