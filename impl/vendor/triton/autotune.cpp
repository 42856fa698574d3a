#include "impl/vendor/triton/autotune.h"

#include "impl/vendor/triton/triton_api.h"

namespace attest::vendor::triton {

Tuned autotune(const Gpu& gpu, std::int64_t N_CTX, std::int64_t Lk, Dtype qk) {
  const Sizes shape = {1, gpu.rules().sms, N_CTX, Lk};
  const Tensor q = Tensor::meta(shape, qk), v = Tensor::meta(shape, Dtype::float16);
  Tuned best = {};
  for (const Config& config : configs(gpu, Lk, qk)) {
    const Cycles cycles = forward(gpu, config, q, q, v, true, 1).ctx.elapsed.longest();
    if (best.cycles == 0 || cycles < best.cycles) best = {config, cycles};
  }
  return best;
}

}  // namespace attest::vendor::triton
