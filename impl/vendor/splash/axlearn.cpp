#include "impl/vendor/splash/axlearn.h"

#include <fmt/format.h>

namespace attest::vendor::splash {
namespace {

// btnh -> bnth, of one batch element.
template <class T>
std::vector<T> heads_first(const Btnh<T>& array, std::int64_t batch) {
  std::vector<T> to;
  to.reserve(static_cast<std::size_t>(array.seq * array.heads * array.head_dim));
  for (std::int64_t h = 0; h < array.heads; ++h) {
    for (std::int64_t t = 0; t < array.seq; ++t) {
      const T* const row =
          array.data + ((batch * array.seq + t) * array.heads + h) * array.head_dim;
      to.insert(to.end(), row, row + array.head_dim);
    }
  }
  return to;
}

template <class T>
Array<const T> as_array(const Btnh<T>& shape, const std::vector<T>& data) {
  return {.data = data.data(), .heads = shape.heads, .seq = shape.seq, .dim = shape.head_dim};
}

}  // namespace

BlockSizes tpu_block_sizes(std::int64_t block_size) {
  return {.block_q = block_size,
          .block_kv = block_size,
          .block_kv_compute = block_size,
          .block_q_dkv = block_size,
          .block_kv_dkv = block_size,
          .block_kv_dkv_compute = block_size,
          .use_fused_bwd_kernel = true};
}

MaskPtr to_splash_mask(const AttentionBias& mask, Shape shape, MaskForm form, HostCount& count) {
  if (!mask.causal) return full_mask(shape);
  const MaskPtr lazy = mask.sliding_window_size
                           ? local_mask(shape, {mask.sliding_window_size, 0}, 0)
                           : causal_mask(shape);
  const MaskPtr made = form == MaskForm::kLazy ? lazy : numpy_mask(dense(*lazy, count));
  count.mask_bytes += made->held_bytes();
  return made;
}

void check_tpu_splash_attention(const AttentionBias& mask, Shape shape, std::int64_t head_dim) {
  for (const std::int64_t size : {shape.q_seq_len, shape.kv_seq_len, head_dim}) {
    if (size % kNumLanes == 0) continue;
    throw SplashAttentionUnsupportedError(fmt::format(
        "lengths and head_dim must be multiples of {}, and {} is none", kNumLanes, size));
  }
  if (mask.causal && shape.q_seq_len != shape.kv_seq_len) {
    throw SplashAttentionUnsupportedError("under a mask query and key have the same length");
  }
}

template <class T>
std::vector<T> tpu_flash_attention(const Btnh<T>& query, const Btnh<T>& key, const Btnh<T>& value,
                                   const AttentionBias& mask, double softmax_scale,
                                   std::int64_t block_size, HostSetup& setup) {
  const Shape shape{query.seq, key.seq};
  for (const std::int64_t seq : {query.seq, key.seq}) {
    if (seq % block_size == 0) continue;
    throw ValueError(fmt::format("{} must be divisible by block size {}", seq, block_size));
  }
  check_tpu_splash_attention(mask, shape, query.head_dim);
  const MultiHeadMask masks(
      std::vector<MaskPtr>(static_cast<std::size_t>(query.heads),
                           to_splash_mask(mask, shape, MaskForm::kLazy, setup.count)));
  const SplashAttentionKernel kernel =
      make_splash_mha(masks, {.block_sizes = tpu_block_sizes(block_size)}, setup);
  std::vector<T> context(
      static_cast<std::size_t>(query.batch * query.seq * query.heads * query.head_dim));
  for (std::int64_t b = 0; b < query.batch; ++b) {
    std::vector<T> q = heads_first(query, b);
    apply_softmax_scale(softmax_scale, q);
    const std::vector<T> k = heads_first(key, b), v = heads_first(value, b);
    const Output<T> found = kernel(as_array(query, q), as_array(key, k), as_array(value, v));
    const T* from = found.out.data();
    for (std::int64_t h = 0; h < query.heads; ++h) {
      for (std::int64_t t = 0; t < query.seq; ++t, from += query.head_dim) {
        std::copy_n(from, query.head_dim,
                    context.data() + ((b * query.seq + t) * query.heads + h) * query.head_dim);
      }
    }
  }
  return context;
}

template std::vector<float> tpu_flash_attention(const Btnh<float>&, const Btnh<float>&,
                                                const Btnh<float>&, const AttentionBias&, double,
                                                std::int64_t, HostSetup&);
template std::vector<BFloat16> tpu_flash_attention(const Btnh<BFloat16>&, const Btnh<BFloat16>&,
                                                   const Btnh<BFloat16>&, const AttentionBias&,
                                                   double, std::int64_t, HostSetup&);

}  // namespace attest::vendor::splash
