// How benchmarks measure. Every figure is a median over repetitions, each with its own measurement
// of what it is compared with: the peak just before and after, or the other side in turn.
#pragma once

#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "tests/bench/fma_peak.h"

namespace attest {

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// How often others took the processor from this thread. They leave its caches cold.
inline long interruptions() {
  rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

// The figures of one benchmark. Interrupted repetitions count only if there are few others.
class Figures {
 public:
  // Calls measure(), which answers one figure.
  template <class Measure>
  void take(const Measure& measure) {
    const long before = interruptions();
    const double figure = measure();
    all_.push_back(figure);
    if (interruptions() == before) quiet_.push_back(figure);
  }
  double median() const { return attest::median(quiet_.size() >= 5 ? quiet_ : all_); }

 private:
  std::vector<double> all_, quiet_;
};

// How work is timed: the processor time of this thread, or, for work of several threads, real time.
enum class Clock { thread, real };

template <class Work>
double seconds_of(const Work& work, Clock clock = Clock::thread) {
  const auto now = [clock] {
    const std::chrono::duration<double> real = std::chrono::steady_clock::now().time_since_epoch();
    return clock == Clock::thread ? thread_seconds() : real.count();
  };
  const double begin = now();
  work();
  return now() - begin;
}

// Repeats work() of so many operations, by so many threads, beside measurements of the peak.
template <class Work>
void against_peak(benchmark::State& state, double operations, const Work& work, int threads = 1,
                  double (*peak_of_thread)() = &fma_peak) {
  work();  // brings the data into the caches
  std::vector<double> rates;
  Figures fractions;
  for (auto _ : state) {
    state.PauseTiming();
    fractions.take([&] {
      const double before = peak_of_thread();
      state.ResumeTiming();
      const double seconds = seconds_of(work, threads == 1 ? Clock::thread : Clock::real);
      state.PauseTiming();
      const double peak = (before + peak_of_thread()) / 2 * threads;
      rates.push_back(operations / seconds);
      return operations / seconds / peak;
    });
    state.ResumeTiming();
  }
  state.counters["gflops"] = 1e-9 * median(rates);
  state.counters["peak_fraction"] = fractions.median();
}

// Repeats theirs() and ours() in turn: `ratio` is their time over ours.
template <class Theirs, class Ours>
void against_rival(benchmark::State& state, const Theirs& theirs, const Ours& ours,
                   Clock clock = Clock::thread) {
  ours();
  Figures ratios;
  for (auto _ : state) {
    ratios.take([&] {
      const double their_seconds = seconds_of(theirs, clock);
      return their_seconds / seconds_of(ours, clock);
    });
  }
  state.counters["ratio"] = ratios.median();
}

}  // namespace attest
