// models FlashAttention's calling convention on NVIDIA's GPUs, as the seed describes both; no claim
// on hardware
//
// The operators of both releases, as their own users call them: names, layouts, defaults and errors
// as in the public package (1.0.7, and 2 with the arguments that it has had since 2.6), computed by
// the kernels of kernels.h on a mock GPU. Where Python returns a tensor, it is given here.
//
//   Gpu gpu(a100());
//   flash_attn_func(gpu, q, k, v, out, {.causal = true, .return_lse = lse});
//
// It throws FlashAttnError where the package's checks do, and a DeviceError where the GPU would
// fault, or has no such format.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "impl/vendor/nvidia_grid/gpu.h"
#include "impl/vendor/nvidia_grid/tensor.h"

namespace attest::vendor::nvidia_grid {

// (batch_size + 1) int32 each, and the longest sequences.
struct Varlen {
  Tensor cu_seqlens_q, cu_seqlens_k;
  std::int64_t max_seqlen_q, max_seqlen_k;
};

// ---- Version 2

struct FlashAttnOptions {
  double dropout_p = 0.0;                      // what is not 0 is refused: the mock draws nothing
  std::optional<double> softmax_scale = {};    // None: 1 / sqrt(headdim)
  bool causal = false;                         // aligned to the bottom right
  std::pair<int, int> window_size = {-1, -1};  // inclusive, -1: no limit
  double softcap = 0.0;                        // 0: none
  std::optional<Tensor> alibi_slopes = {};     // fp32, (nheads) or (batch_size, nheads)
  bool deterministic = false;                  // of the backward pass
  std::optional<Tensor> return_lse = {};       // fp32, (batch_size, nheads, seqlen_q), or of
                                               // packed sequences (nheads, total_q)
};

// q, out: (batch_size, seqlen_q, nheads, headdim); k, v: (batch_size, seqlen_k, nheads_k, headdim).
void flash_attn_func(Gpu& gpu, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                     const FlashAttnOptions& options = {});

// Without batch_size, and with total_q or total_k for seqlen.
void flash_attn_varlen_func(Gpu& gpu, const Tensor& q, const Tensor& k, const Tensor& v,
                            const Varlen& varlen, const Tensor& out,
                            const FlashAttnOptions& options = {});

// What the forward pass was given and has returned; `options.return_lse` is ignored.
struct Saved {
  Tensor q, k, v, out, softmax_lse;
};
struct Gradients {
  Tensor dq, dk, dv;
};

void flash_attn_backward(Gpu& gpu, const Tensor& dout, const Saved& saved, const Gradients& to,
                         const FlashAttnOptions& options = {});
void flash_attn_varlen_backward(Gpu& gpu, const Tensor& dout, const Saved& saved,
                                const Varlen& varlen, const Gradients& to,
                                const FlashAttnOptions& options = {});

// ---- Version 1: packed sequences only, as many key heads as query heads, headdim a multiple of 8
// and at most 128.

struct UnpaddedOptions {
  double dropout_p = 0.0;                    // what is not 0 is refused
  std::optional<double> softmax_scale = {};  // None: 1 / sqrt(headdim)
  bool causal = false;                       // aligned to the top left
  bool deterministic = false;                // of the backward pass
  std::int64_t num_splits = 0;               // 0: by heuristic
  bool zero_tensors = false;                 // whether what no kernel writes is 0, and -inf of LSE
  std::optional<Tensor> return_lse = {};     // fp32, (batch_size, nheads, max_seqlen_q), the last
                                             // rounded up to a multiple of 16
};

// q, out: (total_q, nheads, headdim); k, v: (total_k, nheads, headdim).
void flash_attn_unpadded_func(Gpu& gpu, const Tensor& q, const Tensor& k, const Tensor& v,
                              const Varlen& varlen, const Tensor& out,
                              const UnpaddedOptions& options = {});
void flash_attn_unpadded_backward(Gpu& gpu, const Tensor& dout, const Saved& saved,
                                  const Varlen& varlen, const Gradients& to,
                                  const UnpaddedOptions& options = {});

}  // namespace attest::vendor::nvidia_grid
