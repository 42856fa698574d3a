#include "impl/vendor/triton/triton_api.h"

#include "impl/vendor/triton/attn_fwd.h"

namespace attest::vendor::triton {
namespace {

std::int64_t last_of(const Tensor& tensor) { return tensor.shape().back(); }

void check_shapes(const Tensor& q, const Tensor& k, const Tensor& v) {
  for (const Tensor* tensor : {&q, &k, &v}) {
    if (tensor->shape().size() != 4) throw AssertionError("q, k and v have four axes");
  }
  const std::int64_t Lq = last_of(q), Lk = last_of(k), Lv = last_of(v);
  if (Lq != Lk || Lk != Lv) throw AssertionError("Lq == Lk and Lk == Lv");
  if (Lk != 16 && Lk != 32 && Lk != 64 && Lk != 128) {
    throw AssertionError("Lk in {16, 32, 64, 128}");
  }
}

}  // namespace

Attended forward(const Gpu& gpu, const Config& config, const Tensor& q, const Tensor& k,
                 const Tensor& v, bool causal, double sm_scale) {
  check_shapes(q, k, v);
  const Sizes& shape = q.shape();
  const Sizes rows = {shape[0], shape[1], shape[2]};
  Attended attended = {.o = q.empty_like(), .ctx = {}};
  Context& ctx = attended.ctx;
  ctx.M = q.is_meta() ? Tensor::meta(rows, Dtype::float32) : Tensor::zeros(rows, Dtype::float32);
  ctx.grid = {.x = (shape[2] + config.BLOCK_M - 1) / config.BLOCK_M, .y = shape[0] * shape[1]};

  const AttnFwd arguments = {.Q = q,
                             .K = k,
                             .V = v,
                             .sm_scale = static_cast<float>(sm_scale),
                             .M = ctx.M,
                             .Out = attended.o,
                             .H = shape[1],
                             .N_CTX = shape[2],
                             .BLOCK_DMODEL = last_of(k),
                             .STAGE = 3,  // both, whatever `causal` says
                             .config = config};
  const Launched launched = launch(gpu, ctx.grid, arguments);

  ctx.q = q, ctx.k = k, ctx.v = v, ctx.o = attended.o;
  ctx.sm_scale = sm_scale;
  ctx.BLOCK_DMODEL = last_of(k);
  ctx.causal = causal;
  ctx.elapsed = launched.elapsed;
  ctx.programs_flops = launched.flops;
  return attended;
}

Attended attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                   double sm_scale) {
  static const Gpu gpu(a100());
  if (k.shape().size() != 4) throw AssertionError("q, k and v have four axes");
  return forward(gpu, config_for(last_of(k), gpu.rules().capability), q, k, v, causal, sm_scale);
}

}  // namespace attest::vendor::triton
