// What it takes to judge a shape that is used, the kernel's own time left out: its numbers, the
// exact values and bounds of the excerpt that is compared, and the comparison. 32 heads of 8192 by
// 128, forward and backward: at most 10 s of reference and judge on two cores.
#include <benchmark/benchmark.h>

#include <thread>
#include <vector>

#include "cases/generate.h"
#include "cases/shape_excerpt.h"
#include "harness/judge/judge.h"
#include "harness/judge/prepared.h"
#include "spec/assert.h"

namespace attest {
namespace {

Case shape(DType dtype, Index key_heads, bool causal) {
  Case c = {.id = "shapes/bench/dtype=f32/data=normal/s=1",
            .clauses = {},
            .because = {},
            .problem = {.dtype = dtype,
                        .query_heads = 32,
                        .key_heads = key_heads,
                        .query_len = 8192,
                        .key_len = 8192,
                        .head_dim = 128,
                        .value_dim = 128,
                        .scale = 0.08838834764831843,
                        .mask = causal ? Mask::causal(Anchor::top_left) : Mask::full(),
                        .backward = true},
            .data = "normal"};
  choose_excerpt(c);
  return c;
}

int processors() { return static_cast<int>(std::thread::hardware_concurrency()); }

// Results that hold the exact values, rounded, judged as those of a testee are.
void judge_exact(benchmark::State& state, TensorName tensor, PreparedCase& prepared,
                 const Arithmetic& arithmetic, const Shape& shape, DType dtype) {
  const Expected& expected = expected_of(tensor, prepared, arithmetic);
  state.PauseTiming();
  std::vector<std::uint64_t> bits;
  for (const double value : expected.value) bits.push_back(encode(dtype, value));
  state.ResumeTiming();
  const TensorVerdict verdict = judge(bits, dtype, shape, expected, Rounding::nearest);
  ATTEST_ASSERT(verdict.passed);
}

void judging(benchmark::State& state, DType dtype, Index key_heads, bool causal) {
  const Case c = shape(dtype, key_heads, causal);
  const Arithmetic arithmetic = loosest(dtype);
  for (auto _ : state) {
    state.PauseTiming();
    PreparedCase prepared(c, processors());
    state.ResumeTiming();
    const Problem& p = c.problem;
    judge_exact(state, TensorName::o, prepared, arithmetic, p.o_shape(), dtype);
    judge_exact(state, TensorName::lse, prepared, arithmetic, p.lse_shape(), p.lse_dtype());
    judge_exact(state, TensorName::dq, prepared, arithmetic, p.q_shape(), dtype);
    judge_exact(state, TensorName::dk, prepared, arithmetic, p.k_shape(), dtype);
    judge_exact(state, TensorName::dv, prepared, arithmetic, p.v_shape(), dtype);
  }
  state.counters["query_heads"] = double(c.excerpt_heads->query);
  state.counters["key_heads"] = double(c.excerpt_heads->key);
  state.counters["groups"] = double(c.excerpt);
}

void numbers(benchmark::State& state) {
  const Case c = shape(DType::bf16, 8, true);
  for (auto _ : state) benchmark::DoNotOptimize(generate(c, processors()).q.data.data());
}

#define ATTEST_SHAPE_BENCH(name, ...)           \
  BENCHMARK_CAPTURE(judging, name, __VA_ARGS__) \
      ->Iterations(1)                           \
      ->MeasureProcessCPUTime()                 \
      ->UseRealTime()                           \
      ->Unit(benchmark::kSecond)
ATTEST_SHAPE_BENCH(f32_32_heads_full, DType::f32, 32, false);
ATTEST_SHAPE_BENCH(f32_32_heads_causal, DType::f32, 32, true);
ATTEST_SHAPE_BENCH(bf16_32_on_8_heads_causal, DType::bf16, 8, true);
ATTEST_SHAPE_BENCH(f32_32_on_8_heads_full, DType::f32, 8, false);
BENCHMARK(numbers)->Iterations(1)->MeasureProcessCPUTime()->UseRealTime()->Unit(benchmark::kSecond);

}  // namespace
}  // namespace attest
