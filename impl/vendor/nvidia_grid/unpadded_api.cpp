// Version 1: what its host code checks and sets before a launch, then the launches.
#include <algorithm>
#include <cmath>

#include "impl/vendor/nvidia_grid/host_tensor.h"
#include "impl/vendor/nvidia_grid/kernels.h"
#include "impl/vendor/nvidia_grid/nvidia_grid_api.h"

namespace attest::vendor::nvidia_grid {
namespace {

constexpr std::int64_t kStrip = 16;

void check_packed(const Tensor& tensor, const char* what, const Tensor& like) {
  check(tensor.dtype == like.dtype, std::string(what) + " must have the dtype of q");
  check_shape(tensor, what, like.sizes);
  check(tensor.strides.back() == 1, std::string(what) + " must have contiguous channels");
}

Params unpadded_params(Gpu& gpu, const Tensor& q, const Tensor& k, const Varlen& varlen,
                       const UnpaddedOptions& options) {
  gpu.device().check_format(name(q.dtype));
  check(q.sizes.size() == 3 && k.sizes.size() == 3, "q and k must have 3 axes");
  check(options.dropout_p == 0, "dropout is not supported");
  const std::int64_t d = q.sizes[2], batch = varlen.cu_seqlens_q.sizes.at(0) - 1;
  check(batch > 0, "batch_size > 0");
  check(d % 8 == 0 && d <= 128, "(head_size % 8 == 0) && (head_size <= 128)");
  check(k.sizes[1] == q.sizes[1] && k.sizes[2] == d, "q and k must have the same heads");
  const std::int64_t key_block =
      v1_forward_tile(d, varlen.max_seqlen_k).keys;  // lengths are rounded up to it
  const auto scale =
      static_cast<float>(options.softmax_scale.value_or(1 / std::sqrt(static_cast<double>(d))));
  return {
      .gpu = &gpu,
      .dtype = q.dtype,
      .b = batch,
      .h = q.sizes[1],
      .h_k = q.sizes[1],
      .seqlen_q = ceil_div(varlen.max_seqlen_q, kStrip) * kStrip,
      .seqlen_k = ceil_div(std::max<std::int64_t>(varlen.max_seqlen_k, 1), key_block) * key_block,
      .d = d,
      .cu_seqlens_q = cu_seqlens(varlen.cu_seqlens_q, "cu_seqlens_q", batch),
      .cu_seqlens_k = cu_seqlens(varlen.cu_seqlens_k, "cu_seqlens_k", batch),
      .scale_softmax = scale,
      .scale_softmax_log2 = static_cast<float>(static_cast<double>(scale) * kLog2E),
      .causal = options.causal};
}

// (batch_size, nheads, max_seqlen_q).
RowNumbers numbers_of_batch(const Params& p, float* data) {
  return {data, p.h * p.seqlen_q, p.seqlen_q};
}

GridProblem grid_problem(const Params& p) {
  return {p.b, p.h, p.seqlen_q, p.seqlen_k, p.d, p.causal};
}

// (total_q, nheads, headdim) in fp32, zero.
std::vector<float> sums_of(const Params& p, const Tensor& q) {
  return std::vector<float>(static_cast<std::size_t>(q.sizes[0] * p.h * p.d));
}

Partials partials_of(const Params& p, std::vector<float>& sums) {
  return {.data = sums.data(), .batch_stride = 0, .row_stride = p.h * p.d, .head_stride = p.d};
}

}  // namespace

void flash_attn_unpadded_func(Gpu& gpu, const Tensor& q, const Tensor& k, const Tensor& v,
                              const Varlen& varlen, const Tensor& out,
                              const UnpaddedOptions& options) {
  Params params = unpadded_params(gpu, q, k, varlen, options);
  check_packed(q, "q", q);
  check_packed(k, "k", k);
  check_packed(v, "v", k);
  check_packed(out, "out", q);
  std::vector<float> lse(static_cast<std::size_t>(params.b * params.h * params.seqlen_q));
  params.lse = numbers_of_batch(params, lse.data());
  if (options.return_lse) {
    check_dense_floats(*options.return_lse, "softmax_lse", {params.b, params.h, params.seqlen_q});
    params.lse.data = static_cast<float*>(options.return_lse->data);
  }
  if (options.zero_tensors) {
    fill(out, 0);
    std::fill_n(params.lse.data, lse.size(), -kInfinity);
  }
  std::vector<float> o_tmp = sums_of(params, q);
  params.partials = partials_of(params, o_tmp);
  params.q = heads_of(q), params.k = heads_of(k), params.v = heads_of(v);
  params.out = heads_of(out);
  const std::int64_t splits = options.num_splits > 0
                                  ? options.num_splits
                                  : v1::forward_splits(gpu.rules(), grid_problem(params));
  v1::run_fmha_fwd(params, v1_forward_tile(params.d, params.seqlen_k), splits);
}

void flash_attn_unpadded_backward(Gpu& gpu, const Tensor& dout, const Saved& saved,
                                  const Varlen& varlen, const Gradients& to,
                                  const UnpaddedOptions& options) {
  Params params = unpadded_params(gpu, saved.q, saved.k, varlen, options);
  for (const auto& [tensor, what] :
       {std::pair(&saved.out, "out"), {&dout, "dout"}, {&to.dq, "dq"}}) {
    check_packed(*tensor, what, saved.q);
  }
  for (const auto& [tensor, what] : {std::pair(&saved.v, "v"), {&to.dk, "dk"}, {&to.dv, "dv"}}) {
    check_packed(*tensor, what, saved.k);
  }
  check_dense_floats(saved.softmax_lse, "softmax_lse", {params.b, params.h, params.seqlen_q});
  if (options.zero_tensors) {
    for (const Tensor* each : {&to.dq, &to.dk, &to.dv}) fill(*each, 0);
  }
  std::vector<float> softmax_d(static_cast<std::size_t>(params.b * params.h * params.seqlen_q));
  std::vector<float> dq_tmp = sums_of(params, saved.q);
  params.lse = numbers_of_batch(params, static_cast<float*>(saved.softmax_lse.data));
  params.dsoftmax_sum = numbers_of_batch(params, softmax_d.data());
  params.partials = partials_of(params, dq_tmp);
  params.q = heads_of(saved.q), params.k = heads_of(saved.k), params.v = heads_of(saved.v);
  params.out = heads_of(saved.out), params.dout = heads_of(dout);
  params.dq = heads_of(to.dq), params.dk = heads_of(to.dk), params.dv = heads_of(to.dv);

  const BackwardTile tile = v1_backward_tile(params.d, params.seqlen_k);
  // Any number above 1 stands for all blocks of keys.
  std::int64_t splits = options.deterministic ? 1 : options.num_splits;
  if (splits <= 0) splits = v1::backward_splits(gpu.rules(), grid_problem(params));
  if (splits > 1) splits = std::max<std::int64_t>(2, params.seqlen_k / tile.keys);
  v1::run_fmha_bwd(params, tile, splits);
  if (splits == 1) return;
  const std::int64_t total_q = saved.q.sizes[0];  // dq.copy_(dq_tmp)
  for (std::int64_t row = 0; row < total_q; ++row) {
    for (std::int64_t h = 0; h < params.h; ++h) {
      narrow(params.dtype, params.partials.of(0, row, h),
             params.dq.matrix(0, row, 1, h, params.d).data, params.d);
    }
  }
}

}  // namespace attest::vendor::nvidia_grid
