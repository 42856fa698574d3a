// What judging costs: exact values and bounds, on one thread. `ns_per_ijc` is the processor
// time for each query, key and channel; a forward pass is to stay below 1.0, a backward pass
// below 3.
#include <benchmark/benchmark.h>

#include <ctime>
#include <random>

#include "reference/working.h"

namespace attest {
namespace {

Values random_values(const Shape& shape, DType dtype, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  Values values = zeros(shape);
  for (double& value : values.data) value = round_to(dtype, normal(random));
  return values;
}

template <class Expect>
void judge(benchmark::State& state, DType dtype, const Mask& mask, Expect expect) {
  const Index length = state.range(0), dim = state.range(1);
  const Problem problem = {.dtype = dtype,
                           .query_len = length,
                           .key_len = length,
                           .head_dim = dim,
                           .value_dim = dim,
                           .scale = 0.125,
                           .mask = mask,
                           .backward = true};
  std::mt19937_64 random(1);
  const Inputs inputs = {.q = random_values(problem.q_shape(), dtype, random),
                         .k = random_values(problem.k_shape(), dtype, random),
                         .v = random_values(problem.v_shape(), dtype, random),
                         .d_o = random_values(problem.o_shape(), dtype, random)};
  Arithmetic arithmetic = loosest(dtype);
  arithmetic.kv_splits = 1;
  arithmetic.key_block = 64;
  const std::clock_t begin = std::clock();
  for (auto _ : state) {
    benchmark::DoNotOptimize(expect(problem, inputs, arithmetic, 1, nullptr, Roundings::all));
  }
  const double elapsed_ns = 1e9 * double(std::clock() - begin) / CLOCKS_PER_SEC;
  state.counters["ns_per_ijc"] =
      elapsed_ns / double(state.iterations()) / double(length * length * dim);
}

void forward(benchmark::State& state, DType dtype, const Mask& mask) {
  judge(state, dtype, mask, expect_forward);
}

void backward(benchmark::State& state, DType dtype, const Mask& mask) {
  judge(state, dtype, mask, expect_backward);
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"S", "D"})->Unit(benchmark::kMillisecond);
  benchmark->Args({16, 8})->Args({128, 64})->Args({1024, 64})->Args({1024, 128});
}

const Mask kCausal = Mask::causal(Anchor::top_left);

BENCHMARK_CAPTURE(forward, f32_full, DType::f32, Mask::full())->Apply(sizes);
BENCHMARK_CAPTURE(backward, f32_full, DType::f32, Mask::full())->Apply(sizes);
BENCHMARK_CAPTURE(forward, f16_full, DType::f16, Mask::full())->Apply(sizes);
BENCHMARK_CAPTURE(backward, f16_full, DType::f16, Mask::full())->Apply(sizes);
BENCHMARK_CAPTURE(forward, bf16_causal, DType::bf16, kCausal)->Apply(sizes);
BENCHMARK_CAPTURE(backward, bf16_causal, DType::bf16, kCausal)->Apply(sizes);
BENCHMARK_CAPTURE(forward, f64_full, DType::f64, Mask::full())->Args({128, 64});
BENCHMARK_CAPTURE(backward, f64_full, DType::f64, Mask::full())->Args({128, 64});

}  // namespace
}  // namespace attest
