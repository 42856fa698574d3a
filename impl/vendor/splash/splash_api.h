// Splash attention on a mock TPU, as its users call it. Models the calling convention of JAX's
// jax/experimental/pallas/ops/tpu/splash_attention as it was when the seed was written (JAX
// 0.4.38), and as AXLearn calls it (axlearn.h); no claim on hardware.
//
//   const MultiHeadMask mask(std::vector<MaskPtr>(16, causal_mask({8192, 8192})));
//   auto attend = make_splash_mha(mask, {.block_sizes = ..., .save_residuals = true}, setup);
//   const auto out = attend(q, k, v);             // q[heads, seq, head_dim], of one sequence
//   const auto grad = attend.vjp({q, k, v, out.out, out.logsumexp}, d_out);
//
// What it does its own way:
// - no scale: whoever calls scales q beforehand;
// - hidden keys get the score mask_value, a large finite number, and no more: a row that sees no
//   key has the mean of V over the keys of the blocks that were visited for others, and NaN if none
//   was;
// - sequences of a batch are mapped over (vmap), with one mask for all;
// - lengths and head_dim are multiples of 128, and lengths of the blocks.
#pragma once

#include <cstdint>
#include <memory>

#include "impl/vendor/splash/host_count.h"
#include "impl/vendor/splash/mask.h"
#include "impl/vendor/splash/mask_info.h"
#include "impl/vendor/splash/splash_types.h"
#include "impl/vendor/splash/tensor_core.h"

namespace attest::vendor::splash {

// What a kernel is made with, beside its arguments: the device, the cache of infos and what it all
// cost the host.
struct HostSetup {
  Tpu tpu = {};
  MaskInfoCache cache = {};
  HostCount count = {};
};

class SplashAttentionKernel {
 public:
  SplashAttentionKernel(const MultiHeadMask& mask, const SplashOptions& options, bool is_mqa,
                        HostSetup& setup);

  // Of float and BFloat16; other formats the device does not have.
  template <class T>
  Output<T> operator()(const Array<const T>& q, const Array<const T>& k, const Array<const T>& v,
                       const SegmentIds* segment_ids = nullptr) const;
  template <class T>
  Gradients<T> vjp(const Residuals<T>& residuals, const Array<const T>& d_out) const;

  std::shared_ptr<const MaskInfo> fwd_mask_info, dq_mask_info, dkv_mask_info;

 private:
  template <class T>
  void check(const Array<const T>& q, const Array<const T>& k, const Array<const T>& v,
             const SegmentIds* segment_ids) const;
  template <class T>
  void check_backward(const Residuals<T>& residuals, const Array<const T>& d_out) const;

  SplashOptions options_;
  BlockSizes block_sizes_;
  bool is_mqa_;
  std::int64_t mask_heads_;
  Tpu tpu_;
};

SplashAttentionKernel make_splash_mha(const MultiHeadMask& mask, const SplashOptions& options,
                                      HostSetup& setup);
// Of one key head.
SplashAttentionKernel make_splash_mqa(const MultiHeadMask& mask, const SplashOptions& options,
                                      HostSetup& setup);

}  // namespace attest::vendor::splash
