#include "impl/vendor/triton/bench.h"

#include <algorithm>
#include <cmath>

namespace attest::vendor::triton {
namespace {

// Attention in f64 by its definition, causal from the top left, of one head, dense.
std::vector<double> exact(const Tensor& q, const Tensor& k, const Tensor& v, double scale) {
  const std::int64_t n = q.shape()[2], d = q.shape()[3];
  std::vector<double> o;
  for (std::int64_t i = 0; i < n; ++i) {
    std::vector<double> weights;
    for (std::int64_t j = 0; j <= i; ++j) {
      double dot = 0;
      for (std::int64_t c = 0; c < d; ++c) dot += double{q.at(0, 0, i, c)} * k.at(0, 0, j, c);
      weights.push_back(scale * dot);
    }
    const double top = *std::max_element(weights.begin(), weights.end());
    double sum = 0;
    for (double& weight : weights) sum += weight = std::exp(weight - top);
    for (std::int64_t c = 0; c < d; ++c) {
      double of_row = 0;
      for (std::int64_t j = 0; j <= i; ++j) {
        of_row += weights[static_cast<std::size_t>(j)] * v.at(0, 0, j, c);
      }
      o.push_back(of_row / sum);
    }
  }
  return o;
}

template <class Of>
double rms_share(const std::vector<double>& right, const Of& of) {
  double off = 0, all = 0;
  for (std::size_t n = 0; n < right.size(); ++n) {
    off += std::pow(of(n) - right[n], 2);
    all += std::pow(right[n], 2);
  }
  return std::sqrt(off / all);
}

}  // namespace

double total_flops(const Bench& b, std::string_view mode) {
  const auto n = static_cast<double>(b.N_CTX);
  const double per_matmul = 2.0 * static_cast<double>(b.BATCH * b.H * b.D_HEAD) * n * n;
  return 2 * per_matmul * (b.causal ? 0.5 : 1) * (mode == "bwd" ? 2.5 : 1);
}

double tflops(double flops, double ms) { return flops / ms * 1e-9; }

const std::vector<Cited>& cited() {
  static const std::vector<Cited> all = {
      {1024, 123, 137}, {2048, 159, 162}, {4096, 163, 159}, {8192, 167, 157}, {16384, 167, 165}};
  return all;
}

Timed timed(const Gpu& gpu, const Bench& b, Dtype qk) {
  const Sizes shape = {b.BATCH, b.H, b.N_CTX, b.D_HEAD};
  const Tensor q = Tensor::meta(shape, qk), v = Tensor::meta(shape, Dtype::float16);
  const Config config = config_for(b.D_HEAD, gpu.rules().capability);
  const Context ctx = forward(gpu, config, q, q, v, b.causal, b.sm_scale).ctx;
  const double counted = total_flops(b, "fwd");
  const double possible = static_cast<double>(ctx.elapsed.longest()) *
                          static_cast<double>(gpu.rules().sms * gpu.rules().flops_per_cycle);
  const std::int64_t keys_read = ctx.grid.y * config.BLOCK_M * ctx.grid.x * (ctx.grid.x + 1) / 2;
  return {.flops_made = static_cast<double>(ctx.programs_flops) / counted,
          .share_of_matrix = counted / possible,
          .programs = ctx.grid.x * ctx.grid.y,
          .key_value_bytes = keys_read * b.D_HEAD * (itemsize(qk) + itemsize(Dtype::float16))};
}

float weight_of_hidden_key(double above) {
  const Sizes shape = {1, 1, 128, 16};
  const Tensor q = Tensor::zeros(shape, Dtype::float16), k = q.empty_like(), v = q.empty_like();
  const std::int64_t key = k.stride(2);  // the first element of key 1
  q.set(0, 200), k.set(key, 200), v.set(key, 1);
  return attention(q, k, v, true, above / (200.0 * 200.0)).o.get(0);
}

Tensor normal_tensor(const Sizes& shape, std::uint64_t seed) {
  Tensor tensor = Tensor::zeros(shape, Dtype::float16);
  std::uint64_t state = seed;
  const auto uniform = [&] {  // above 0, and at most 1
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (static_cast<double>(state >> 40) + 1) * 0x1p-24;
  };
  for (std::int64_t n = 0; n < tensor.elements(); ++n) {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    tensor.set(n, static_cast<float>(radius * std::cos(6.283185307179586 * uniform())));
  }
  return tensor;
}

Fp8Effect fp8_effect(std::int64_t N_CTX, std::int64_t D_HEAD) {
  const Sizes shape = {1, 1, N_CTX, D_HEAD};
  const Tensor q = normal_tensor(shape, 1), k = normal_tensor(shape, 2),
               v = normal_tensor(shape, 3);
  const Tensor q8 = q.to(Dtype::float8_e5m2), k8 = k.to(Dtype::float8_e5m2);
  const double sm_scale = Bench().sm_scale;
  const std::vector<double> right = exact(q, k, v, sm_scale);
  const Tensor o16 = attention(q, k, v, true, sm_scale).o;
  const Tensor o8 = attention(q8, k8, v, true, sm_scale).o;
  // Widening fp8 is exact, so f16 tensors of the same numbers have the same scores.
  const Tensor wide = attention(q8.to(Dtype::float16), k8.to(Dtype::float16), v, true, sm_scale).o;
  const auto off = [&](const Tensor& o) {
    return rms_share(right, [&](std::size_t n) {
      return static_cast<double>(o.get(static_cast<std::int64_t>(n)));
    });
  };
  return {.f16 = off(o16), .fp8 = off(wide), .fp8_and_o = off(o8)};
}

}  // namespace attest::vendor::triton
