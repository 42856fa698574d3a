// How AXLearn calls splash attention (axlearn/common/flash_attention/tpu_attention.py as it was
// after the seed's change): arrays are [batch, seq, heads, head_dim], the scale is applied outside
// of the kernel, and one block size stands for all. Models that convention; no claim on hardware.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "impl/vendor/splash/splash_api.h"

namespace attest::vendor::splash {

struct SplashAttentionUnsupportedError : NotImplementedError {
  using NotImplementedError::NotImplementedError;
};

// What AXLearn knows of a mask: none, causal, or causal within a window.
struct AttentionBias {
  bool causal = false;
  std::optional<std::int64_t> sliding_window_size = {};
};

// Before the change every mask but the full one was computed on the device and wrapped, all of it;
// since then the objects say it block by block.
enum class MaskForm { kNumpy, kLazy };

// `block_size` in all kernels, dQ in that of dK and dV.
BlockSizes tpu_block_sizes(std::int64_t block_size);
// A window of W keeps the W keys before a query and its own.
MaskPtr to_splash_mask(const AttentionBias& mask, Shape shape, MaskForm form, HostCount& count);
// Throws where AXLearn takes another kernel.
void check_tpu_splash_attention(const AttentionBias& mask, Shape shape, std::int64_t head_dim);

// query *= softmax_scale: in the format of the query, to which the scale is rounded as well.
template <class T>
void apply_softmax_scale(double softmax_scale, std::vector<T>& query) {
  if (softmax_scale == 1) return;
  const auto scale = static_cast<float>(static_cast<T>(static_cast<float>(softmax_scale)));
  for (T& element : query) element = static_cast<T>(static_cast<float>(element) * scale);
}

template <class T>
struct Btnh {
  const T* data = nullptr;
  std::int64_t batch = 0, seq = 0, heads = 0, head_dim = 0;
};

// The context, [batch, seq, heads, head_dim] of the query.
template <class T>
std::vector<T> tpu_flash_attention(const Btnh<T>& query, const Btnh<T>& key, const Btnh<T>& value,
                                   const AttentionBias& mask, double softmax_scale,
                                   std::int64_t block_size, HostSetup& setup);

}  // namespace attest::vendor::splash
