#include "impl/vendor/nvidia_grid/example.h"

namespace attest::vendor::nvidia_grid {
namespace {

enum { kQ, kK, kV, kOut, kDout, kDq, kDk, kDv };

}  // namespace

Example::Example(const ExampleSizes& sizes) : sizes_(sizes) {
  const std::int64_t rows = sizes.batch * sizes.seqlen * sizes.heads;
  for (auto& elements : elements_) elements.resize(static_cast<std::size_t>(rows * sizes.head_dim));
  lse_.resize(static_cast<std::size_t>(sizes.batch * sizes.heads * (sizes.seqlen + 16)));
  for (std::int64_t b = 0; b <= sizes.batch; ++b) {
    running_.push_back(static_cast<std::int32_t>(b * sizes.seqlen));
  }
}

Tensor Example::dense(int which) {
  const std::int64_t row = sizes_.heads * sizes_.head_dim;
  return {elements_[which].data(),
          ScalarType::kBFloat16,
          {sizes_.batch, sizes_.seqlen, sizes_.heads, sizes_.head_dim},
          {sizes_.seqlen * row, row, sizes_.head_dim, 1}};
}

Tensor Example::packed(int which) {
  return {elements_[which].data(),
          ScalarType::kBFloat16,
          {sizes_.batch * sizes_.seqlen, sizes_.heads, sizes_.head_dim},
          {sizes_.heads * sizes_.head_dim, sizes_.head_dim, 1}};
}

Varlen Example::varlen() {
  const Tensor running = {running_.data(), ScalarType::kInt32, {sizes_.batch + 1}, {1}};
  return {running, running, sizes_.seqlen, sizes_.seqlen};
}

Tensor Example::lse_of_v1() {
  const std::int64_t rows = (sizes_.seqlen + 15) / 16 * 16;
  return {lse_.data(),
          ScalarType::kFloat32,
          {sizes_.batch, sizes_.heads, rows},
          {sizes_.heads * rows, rows, 1}};
}

Tensor Example::lse_of_v2() {
  return {lse_.data(),
          ScalarType::kFloat32,
          {sizes_.batch, sizes_.heads, sizes_.seqlen},
          {sizes_.heads * sizes_.seqlen, sizes_.seqlen, 1}};
}

Launch Example::v1_forward(Gpu& gpu, std::int64_t num_splits) {
  flash_attn_unpadded_func(
      gpu, packed(kQ), packed(kK), packed(kV), varlen(), packed(kOut),
      {.causal = sizes_.causal, .num_splits = num_splits, .return_lse = lse_of_v1()});
  return gpu.launched("fmha_fwd_loop_kernel");
}

Launch Example::v1_backward(Gpu& gpu) {
  flash_attn_unpadded_backward(
      gpu, packed(kDout), {packed(kQ), packed(kK), packed(kV), packed(kOut), lse_of_v1()}, varlen(),
      {packed(kDq), packed(kDk), packed(kDv)}, {.causal = sizes_.causal, .num_splits = 2});
  return gpu.launched("fmha_bwd_q_dk_dv_loop_seqparallel_kernel");
}

Launch Example::v2_forward(Gpu& gpu) {
  flash_attn_func(gpu, dense(kQ), dense(kK), dense(kV), dense(kOut),
                  {.causal = sizes_.causal, .return_lse = lse_of_v2()});
  return gpu.launched("flash_fwd_kernel");
}

Launch Example::v2_backward(Gpu& gpu, bool deterministic) {
  flash_attn_backward(gpu, dense(kDout),
                      {dense(kQ), dense(kK), dense(kV), dense(kOut), lse_of_v2()},
                      {dense(kDq), dense(kDk), dense(kDv)},
                      {.causal = sizes_.causal, .deterministic = deterministic});
  return gpu.launched("flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel");
}

}  // namespace attest::vendor::nvidia_grid
