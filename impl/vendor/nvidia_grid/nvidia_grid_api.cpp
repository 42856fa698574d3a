// Version 2: what its host code checks and sets before a launch, then the launches.
#include "impl/vendor/nvidia_grid/nvidia_grid_api.h"

#include <cmath>

#include "impl/vendor/nvidia_grid/host_tensor.h"
#include "impl/vendor/nvidia_grid/kernels.h"

namespace attest::vendor::nvidia_grid {
namespace {

// A problem of either layout.
struct Call {
  std::int64_t batch, heads, heads_k, head_dim, max_seqlen_q, max_seqlen_k;
  const Varlen* varlen;  // null: not packed

  // Of queries or keys, with so many heads.
  Sizes sizes(std::int64_t total, std::int64_t seqlen, std::int64_t nheads) const {
    if (varlen) return {total, nheads, head_dim};
    return {batch, seqlen, nheads, head_dim};
  }
  Sizes lse_sizes(std::int64_t total_q) const {
    if (varlen) return {heads, total_q};
    return {batch, heads, max_seqlen_q};
  }
};

Call call_of(const Gpu& gpu, const Tensor& q, const Tensor& k, const Varlen* varlen) {
  gpu.device().check_format(name(q.dtype));
  gpu.device().check_layout(varlen ? "thd" : "bshd");
  const std::size_t axes = varlen ? 3 : 4;
  check(q.sizes.size() == axes && k.sizes.size() == axes,
        "q and k must have " + std::to_string(axes) + " axes");
  const Call call = {.batch = varlen ? varlen->cu_seqlens_q.sizes.at(0) - 1 : q.sizes[0],
                     .heads = q.sizes[axes - 2],
                     .heads_k = k.sizes[axes - 2],
                     .head_dim = q.sizes[axes - 1],
                     .max_seqlen_q = varlen ? varlen->max_seqlen_q : q.sizes[1],
                     .max_seqlen_k = varlen ? varlen->max_seqlen_k : k.sizes[1],
                     .varlen = varlen};
  check(call.batch > 0, "batch size must be positive");
  check(call.head_dim <= 256, "FlashAttention only supports head dimension at most 256");
  check(call.heads_k > 0 && call.heads % call.heads_k == 0,
        "Number of heads in key/value must divide number of heads in query");
  return call;
}

void check_like(const Tensor& tensor, const char* what, const Tensor& q, const Sizes& sizes) {
  check(tensor.dtype == q.dtype, std::string("query and ") + what + " must have the same dtype");
  check_shape(tensor, what, sizes);
}

void set_alibi(Params& params, const FlashAttnOptions& options) {
  if (!options.alibi_slopes) return;
  const Tensor& slopes = *options.alibi_slopes;
  const bool of_batch = slopes.sizes.size() == 2;
  check_dense_floats(slopes, "ALiBi slopes",
                     of_batch ? Sizes{params.b, params.h} : Sizes{params.h});
  params.alibi_slopes = static_cast<const float*>(slopes.data);
  params.alibi_batch_stride = of_batch ? params.h : 0;
}

// An end that reaches all keys is none; an end without limit beside one that has it is as long as
// the keys are. (On the right neither holds where queries outnumber keys.)
void set_window(Params& params, bool causal, std::pair<int, int> window) {
  std::int64_t left = window.first, right = causal ? 0 : window.second;
  if (left >= params.seqlen_k) left = -1;
  if (right >= params.seqlen_k) right = -1;
  params.causal = left < 0 && right == 0;
  if (left < 0 && right >= 0) left = params.seqlen_k;
  if (left >= 0 && right < 0) right = params.seqlen_k;
  params.window_left = left, params.window_right = right;
}

Params params_of(Gpu& gpu, const Call& call, const Tensor& q, const FlashAttnOptions& options) {
  check(options.dropout_p == 0, "This build does not support dropout.");
  Params params = {.gpu = &gpu,
                   .dtype = q.dtype,
                   .b = call.batch,
                   .h = call.heads,
                   .h_k = call.heads_k,
                   .seqlen_q = call.max_seqlen_q,
                   .seqlen_k = call.max_seqlen_k,
                   .d = ceil_div(call.head_dim, 8) * 8};
  if (call.varlen) {
    params.cu_seqlens_q = cu_seqlens(call.varlen->cu_seqlens_q, "cu_seqlens_q", call.batch);
    params.cu_seqlens_k = cu_seqlens(call.varlen->cu_seqlens_k, "cu_seqlens_k", call.batch);
  }
  const double scale =
      options.softmax_scale.value_or(1 / std::sqrt(static_cast<double>(call.head_dim)));
  const auto softmax_scale = static_cast<float>(scale), cap = static_cast<float>(options.softcap);
  // With a softcap c, scores are tanh(q k scale / c), and c is what scales them.
  params.softcap = cap > 0 ? softmax_scale / cap : 0;
  params.scale_softmax = cap > 0 ? cap : softmax_scale;
  params.scale_softmax_log2 =
      static_cast<float>(static_cast<double>(params.scale_softmax) * kLog2E);
  set_alibi(params, options);
  return params;
}

// LSE and D lie (batch_size, nheads, seqlen_q), or (nheads, total_q).
RowNumbers row_numbers(const Call& call, float* data, std::int64_t total_q) {
  if (call.varlen) return {data, 0, total_q, true};
  return {data, call.heads * call.max_seqlen_q, call.max_seqlen_q};
}

void forward(Gpu& gpu, const Tensor& q, const Tensor& k, const Tensor& v, const Varlen* varlen,
             const Tensor& out, const FlashAttnOptions& options) {
  const Call call = call_of(gpu, q, k, varlen);
  const std::int64_t total_q = q.sizes[0];
  check_like(q, "query", q, call.sizes(total_q, call.max_seqlen_q, call.heads));
  check_like(k, "key", q, call.sizes(k.sizes[0], call.max_seqlen_k, call.heads_k));
  check_like(v, "value", q, call.sizes(k.sizes[0], call.max_seqlen_k, call.heads_k));
  check_like(out, "out", q, q.sizes);
  Params params = params_of(gpu, call, q, options);
  // One query at the bottom right sees all keys.
  const bool causal = options.causal && (call.max_seqlen_q > 1 || options.alibi_slopes);
  set_window(params, causal, options.window_size);

  std::vector<float> own_lse;
  if (options.return_lse) {
    check_dense_floats(*options.return_lse, "softmax_lse", call.lse_sizes(total_q));
  } else {
    own_lse.resize(static_cast<std::size_t>(call.heads * (varlen ? 1 : call.batch) *
                                            (varlen ? total_q : call.max_seqlen_q)));
  }
  params.lse = row_numbers(
      call, options.return_lse ? static_cast<float*>(options.return_lse->data) : own_lse.data(),
      total_q);
  const Input q_in(q), k_in(k), v_in(v);
  const Output padded_out(out);
  params.q = heads_of(q_in.tensor()), params.k = heads_of(k_in.tensor());
  params.v = heads_of(v_in.tensor()), params.out = heads_of(padded_out.tensor());
  v2::run_mha_fwd(params, v2_forward_tile(gpu.rules(), params.d));
  padded_out.finish();
}

// dK or dV of a key head is the sum over its group, each rounded before.
void sum_of_group(const Tensor& expanded, const Tensor& to, std::int64_t group) {
  const Heads from = heads_of(expanded), sums = heads_of(to);
  const std::size_t axes = to.sizes.size();
  const std::int64_t d = to.sizes[axes - 1], batch = axes == 4 ? to.sizes[0] : 1;
  std::vector<float> sum(static_cast<std::size_t>(d)), part(sum.size());
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t row = 0; row < to.sizes[axes - 3]; ++row) {
      for (std::int64_t h = 0; h < to.sizes[axes - 2]; ++h) {
        sum.assign(sum.size(), 0.0f);
        for (std::int64_t n = 0; n < group; ++n) {
          widen(to.dtype, from.matrix(b, row, 1, h * group + n, d).data, part.data(), d);
          for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += part[c];
        }
        narrow(to.dtype, sum.data(), sums.matrix(b, row, 1, h, d).data, d);
      }
    }
  }
}

// dK and dV as the kernel writes them: of each query head.
class Expanded {
 public:
  Expanded(const Tensor& like, std::int64_t heads) : tensor_(like) {
    const std::size_t axes = like.sizes.size();
    group_ = heads / like.sizes[axes - 2];
    if (group_ == 1) return;
    tensor_.sizes[axes - 2] = heads;
    std::int64_t stride = 1;
    for (std::size_t axis = axes; axis-- > 0; stride *= tensor_.sizes[axis]) {
      tensor_.strides[axis] = stride;
    }
    elements_.resize(static_cast<std::size_t>(stride));
    tensor_.data = elements_.data();
  }
  const Tensor& tensor() const { return tensor_; }
  void finish(const Tensor& to) const {
    if (group_ > 1) sum_of_group(tensor_, to, group_);
  }

 private:
  std::vector<std::uint16_t> elements_;
  Tensor tensor_;
  std::int64_t group_;
};

// dQ's sums in fp32, and D of each row, zero.
struct Workspace {
  std::vector<float> dq_accum, softmax_d;
  v2::DqSum sum;
};
Workspace workspace_of(const Gpu& gpu, const Call& call, const Params& params,
                       const BackwardTile& tile, std::int64_t total_q, bool deterministic) {
  const std::int64_t rows = call.varlen ? total_q : call.batch * call.max_seqlen_q;
  v2::DqSum sum = {.deterministic = deterministic,
                   .blocks = ceil_div(gpu.rules().sms, call.batch * call.heads),
                   .parts = 1,
                   .part_stride = rows * call.heads * params.d};
  // Blocks beyond the last one of keys would leave their parts 0.
  if (deterministic) sum.parts = std::min(sum.blocks, ceil_div(call.max_seqlen_k, tile.keys));
  return {std::vector<float>(static_cast<std::size_t>(sum.parts * sum.part_stride)),
          std::vector<float>(static_cast<std::size_t>(rows * call.heads)), sum};
}

void backward(Gpu& gpu, const Tensor& dout, const Saved& saved, const Varlen* varlen,
              const Gradients& to, const FlashAttnOptions& options) {
  const Call call = call_of(gpu, saved.q, saved.k, varlen);
  const std::int64_t total_q = saved.q.sizes[0];
  for (const auto& [tensor, what] :
       {std::pair(&saved.out, "out"), {&dout, "dout"}, {&to.dq, "dq"}}) {
    check_like(*tensor, what, saved.q, saved.q.sizes);
  }
  for (const auto& [tensor, what] :
       {std::pair(&saved.v, "value"), {&to.dk, "dk"}, {&to.dv, "dv"}}) {
    check_like(*tensor, what, saved.q, saved.k.sizes);
  }
  check_dense_floats(saved.softmax_lse, "softmax_lse", call.lse_sizes(total_q));
  Params params = params_of(gpu, call, saved.q, options);
  set_window(params, options.causal, options.window_size);

  const Input q(saved.q), k(saved.k), v(saved.v), out(saved.out), dout_in(dout);
  const Output dq(to.dq), dk(to.dk), dv(to.dv);
  const Expanded dk_expanded(dk.tensor(), call.heads), dv_expanded(dv.tensor(), call.heads);
  params.q = heads_of(q.tensor()), params.k = heads_of(k.tensor());
  params.v = heads_of(v.tensor()), params.out = heads_of(out.tensor());
  params.dout = heads_of(dout_in.tensor()), params.dq = heads_of(dq.tensor());
  params.dk = heads_of(dk_expanded.tensor()), params.dv = heads_of(dv_expanded.tensor());

  const BackwardTile tile = v2_backward_tile(gpu.rules(), params.d);
  Workspace workspace = workspace_of(gpu, call, params, tile, total_q, options.deterministic);
  params.lse = row_numbers(call, static_cast<float*>(saved.softmax_lse.data), total_q);
  params.dsoftmax_sum = row_numbers(call, workspace.softmax_d.data(), total_q);
  params.partials = {.data = workspace.dq_accum.data(),
                     .batch_stride = varlen ? 0 : call.max_seqlen_q * call.heads * params.d,
                     .row_stride = call.heads * params.d,
                     .head_stride = params.d};
  v2::run_mha_bwd(params, tile, workspace.sum);
  dk_expanded.finish(dk.tensor());
  dv_expanded.finish(dv.tensor());
  for (const Output* each : {&dq, &dk, &dv}) each->finish();
}

}  // namespace

void flash_attn_func(Gpu& gpu, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                     const FlashAttnOptions& options) {
  forward(gpu, q, k, v, nullptr, out, options);
}

void flash_attn_varlen_func(Gpu& gpu, const Tensor& q, const Tensor& k, const Tensor& v,
                            const Varlen& varlen, const Tensor& out,
                            const FlashAttnOptions& options) {
  forward(gpu, q, k, v, &varlen, out, options);
}

void flash_attn_backward(Gpu& gpu, const Tensor& dout, const Saved& saved, const Gradients& to,
                         const FlashAttnOptions& options) {
  backward(gpu, dout, saved, nullptr, to, options);
}

void flash_attn_varlen_backward(Gpu& gpu, const Tensor& dout, const Saved& saved,
                                const Varlen& varlen, const Gradients& to,
                                const FlashAttnOptions& options) {
  backward(gpu, dout, saved, &varlen, to, options);
}

}  // namespace attest::vendor::nvidia_grid
