// How long the host takes to set splash attention up: google-benchmark, no claim is tested here.
// Named as the seed's rows are: model_dim/heads/kv_heads/seq_len. Of a mask as an array 32768 is
// left out, which would take 2 GiB; setup_count() has its figures.
#include <benchmark/benchmark.h>

#include "impl/vendor/splash/models.h"

namespace attest::vendor::splash {
namespace {

void set_up(benchmark::State& state, MaskForm form) {
  const AttentionShape shape{.seq_len = state.range(3),
                             .heads = state.range(1),
                             .head_dim = state.range(0) / state.range(1)};
  HostCount count;
  for (auto _ : state) {
    count = setup_counted(shape, form);
    benchmark::DoNotOptimize(count);
  }
  state.counters["operations"] = static_cast<double>(count.operations());
  state.counters["bytes"] = static_cast<double>(count.bytes());
}
BENCHMARK_CAPTURE(set_up, NumpyMask, MaskForm::kNumpy)
    ->Args({4096, 16, 2, 4096})
    ->Args({4096, 16, 2, 8192})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(set_up, CausalMask, MaskForm::kLazy)
    ->Args({4096, 16, 2, 4096})
    ->Args({4096, 16, 2, 8192})
    ->Args({4096, 16, 2, 32768})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace attest::vendor::splash

BENCHMARK_MAIN();
