#include "tests/bench/fma_peak.h"

#include <benchmark/benchmark.h>
#include <time.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bench/fma_peak.cpp"
#include "hwy/foreach_target.h"  // must precede highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attest::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Twelve independent chains: more than two units with a latency of 5 need. They start differently,
// lest the compiler see that they are the same. Answers the operations that it did.
double FmaLoop(float factor, float addend, float* result) {
  constexpr int kChains = 12, kRounds = 150000;
  const hn::ScalableTag<float> d;
  const auto x = hn::Set(d, factor), y = hn::Set(d, addend);
  hn::Vec<decltype(d)> chain[kChains];
  for (int n = 0; n < kChains; ++n) chain[n] = hn::Set(d, addend * static_cast<float>(n));
  for (int round = 0; round < kRounds; ++round) {
    HWY_UNROLL(kChains)
    for (int n = 0; n < kChains; ++n) chain[n] = hn::MulAdd(chain[n], x, y);
  }
  for (int n = 1; n < kChains; ++n) chain[0] = hn::Add(chain[0], chain[n]);
  *result = hn::GetLane(chain[0]);
  return 2.0 * kChains * kRounds * static_cast<double>(hn::Lanes(d));
}

}  // namespace
}  // namespace attest::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {

HWY_EXPORT(FmaLoop);

double thread_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double fma_peak() {
  float factor = 0.999f, addend = 1e-3f, result;
  benchmark::DoNotOptimize(factor);
  benchmark::DoNotOptimize(addend);
  const double begin = thread_seconds();
  const double operations = HWY_DYNAMIC_DISPATCH(FmaLoop)(factor, addend, &result);
  benchmark::DoNotOptimize(result);
  return operations / (thread_seconds() - begin);
}

}  // namespace attest
#endif  // HWY_ONCE
