// How close the tile engine comes to the processor's limit, on one thread.
//
// Every figure is a median over repetitions, each with its own measurement of what it is compared
// with: `peak_fraction` is the rate over that of multiply-adds in registers, measured just before
// and after; `ratio` is the time of the one named over ours, in turn. Causal work counts half.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "impl/engine/engine.h"
#include "tests/bench/fma_peak.h"
#include "tests/bench/prototype.h"
#include "tests/bench/rivals.h"

namespace attest {
namespace {

using Index = std::int64_t;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// How often others took the processor from this thread. They leave its caches cold.
long interruptions() {
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

template <class Work>
double seconds_of(const Work& work) {
  const double begin = thread_seconds();
  work();
  return thread_seconds() - begin;
}

// Repeats work() of so many operations, beside measurements of the peak.
template <class Work>
void against_peak(benchmark::State& state, double operations, const Work& work) {
  work();  // brings the data into the caches
  std::vector<double> rates;
  Figures fractions;
  for (auto _ : state) {
    fractions.take([&] {
      const double before = fma_peak(), seconds = seconds_of(work), after = fma_peak();
      state.SetIterationTime(seconds);
      rates.push_back(operations / seconds);
      return operations / seconds / ((before + after) / 2);
    });
  }
  state.counters["gflops"] = 1e-9 * median(rates);
  state.counters["peak_fraction"] = fractions.median();
}

// Repeats theirs() and ours() in turn.
template <class Theirs, class Ours>
void against_rival(benchmark::State& state, const Theirs& theirs, const Ours& ours) {
  ours();
  Figures ratios;
  for (auto _ : state) {
    ratios.take([&] {
      const double their_seconds = seconds_of(theirs), our_seconds = seconds_of(ours);
      state.SetIterationTime(their_seconds + our_seconds);
      return their_seconds / our_seconds;
    });
  }
  state.counters["ratio"] = ratios.median();
}

Numbers normal(Index count) {
  static std::mt19937_64 random(1);
  std::normal_distribution<float> distribution;
  Numbers numbers(count);
  for (Index n = 0; n < count; ++n) numbers[n] = distribution(random);
  return numbers;
}

// The tensors of one head.
struct Head {
  Head(Index length, Index dim)
      : q(normal(length * dim)),
        k(normal(length * dim)),
        v(normal(length * dim)),
        d_o(normal(length * dim)),
        o(length * dim),
        lse(length),
        dq(length * dim),
        dk(length * dim),
        dv(length * dim) {}

  Numbers q, k, v, d_o, o, lse, dq, dk, dv;
};

// The fastest sizes of blocks, of those that were tried: long rows for the softmax, and scores that
// stay in the second-level cache.
Prototype prototype(const impl::Engine<float>& engine, Index length, Index dim, bool causal,
                    bool backward) {
  return Prototype(engine, {.length = length,
                            .dim = dim,
                            .causal = causal,
                            .query_block = 96,
                            .key_block = !backward && dim == 64 ? 512 : 256});
}

// ---- Steps -------------------------------------------------------------------------------------

// The products of one block: 96 queries, 256 keys.
void products(benchmark::State& state, const impl::Engine<float>& engine, std::string_view step) {
  const Index rows = 96, keys = 256, dim = state.range(0), stride = keys + 16;
  Numbers left = normal(rows * stride), right = normal(std::max(rows, keys) * engine.padded(dim));
  Numbers result(keys * stride);
  const impl::Tile<float> query = {left, rows, dim, dim}, weights = {left, rows, keys, stride};
  const double operations = 2.0 * static_cast<double>(rows * keys * dim);
  const auto repeat = [&](const auto& product) {
    against_peak(state, 10 * operations, [&] {
      for (int n = 0; n < 10; ++n) product();
    });
  };
  if (step == "scores") {
    repeat([&] { engine.multiply(query, {right, dim}, 0.125f, {result, rows, keys, stride}); });
  } else if (step == "values") {
    repeat([&] { engine.add_product(weights, {right, keys}, false, {result, rows, dim, dim}); });
  } else {
    repeat([&] {
      engine.add_transposed_product(weights, {right, rows}, false, {result, keys, dim, dim});
    });
  }
}

// The softmax of one block of scores. `ns_per_score` is the processor time of each.
void softmax(benchmark::State& state, const impl::Engine<float>& engine) {
  const Index rows = 96, keys = 256, stride = keys + 16;
  const Numbers scores = normal(rows * stride);
  Numbers tile(rows * stride), max(rows), sum(rows), o(rows * engine.panel);
  Figures seconds;
  for (auto _ : state) {
    std::copy_n(static_cast<const float*>(scores), rows * stride, static_cast<float*>(tile));
    std::fill_n(static_cast<float*>(max), rows, -std::numeric_limits<float>::infinity());
    seconds.take([&] {
      const double elapsed = seconds_of([&] {
        engine.absorb({tile, rows, keys, stride}, {max, sum, {o, rows, 1, engine.panel}});
      });
      state.SetIterationTime(elapsed);
      return elapsed;
    });
  }
  state.counters["ns_per_score"] = 1e9 * seconds.median() / static_cast<double>(rows * keys);
}

// Packing of keys, as channels by keys or as keys by channels. `ns_per_element` is the processor
// time of each.
void packing(benchmark::State& state, const impl::Engine<float>& engine, attest_dtype dtype,
             bool transposed) {
  const Index rows = 1024, columns = 64;
  Numbers from(rows * columns), panels(engine.padded(rows) * engine.padded(columns));
  const impl::Stored stored = {from, dtype, rows, columns, columns, 1};
  Figures seconds;
  for (auto _ : state) {
    seconds.take([&] {
      const double elapsed = seconds_of([&] {
        if (transposed) {
          engine.pack_transposed(stored, 1, panels);
        } else {
          engine.pack(stored, panels);
        }
      });
      state.SetIterationTime(elapsed);
      return elapsed;
    });
  }
  state.counters["ns_per_element"] = 1e9 * seconds.median() / static_cast<double>(rows * columns);
}

// ---- Kernels -----------------------------------------------------------------------------------

void forward(benchmark::State& state, const impl::Engine<float>& engine, bool causal) {
  const Index length = state.range(0), dim = state.range(1);
  Head head(length, dim);
  Prototype kernel = prototype(engine, length, dim, causal, false);
  const double pairs = static_cast<double>(length * length) / (causal ? 2 : 1);
  against_peak(state, 4 * pairs * static_cast<double>(dim),
               [&] { kernel.forward(head.q, head.k, head.v, head.o, head.lse); });
}

void backward(benchmark::State& state, const impl::Engine<float>& engine, bool causal) {
  const Index length = state.range(0), dim = state.range(1);
  Head head(length, dim);
  Prototype kernel = prototype(engine, length, dim, causal, true);
  kernel.forward(head.q, head.k, head.v, head.o, head.lse);
  const double pairs = static_cast<double>(length * length) / (causal ? 2 : 1);
  against_peak(state, 10 * pairs * static_cast<double>(dim), [&] {
    kernel.backward(head.q, head.k, head.v, head.o, head.lse, head.d_o, head.dq, head.dk, head.dv);
  });
}

// ---- Comparisons -------------------------------------------------------------------------------

using Rival = void (*)(const RivalCall&);

void forward_of_rival(benchmark::State& state, const impl::Engine<float>& engine, Rival rival) {
  const Index length = state.range(0), dim = state.range(1);
  Head head(length, dim);
  Prototype kernel = prototype(engine, length, dim, false, false);
  Numbers workspace(rival_workspace(length));
  against_rival(
      state,
      [&] {
        rival({engine, length, dim, head.q, head.k, head.v, head.o, workspace});
      },
      [&] { kernel.forward(head.q, head.k, head.v, head.o, head.lse); });
}

void full_over_causal(benchmark::State& state, const impl::Engine<float>& engine,
                      bool of_backward) {
  const Index length = state.range(0), dim = state.range(1);
  Head head(length, dim);
  Prototype full = prototype(engine, length, dim, false, of_backward);
  Prototype causal = prototype(engine, length, dim, true, of_backward);
  const auto run = [&](Prototype& kernel) {
    if (of_backward) {
      kernel.backward(head.q, head.k, head.v, head.o, head.lse, head.d_o, head.dq, head.dk,
                      head.dv);
    } else {
      kernel.forward(head.q, head.k, head.v, head.o, head.lse);
    }
  };
  causal.forward(head.q, head.k, head.v, head.o, head.lse);
  against_rival(
      state, [&] { run(full); }, [&] { run(causal); });
}

// ---- The list ----------------------------------------------------------------------------------

template <class Function, class... Arguments>
benchmark::internal::Benchmark* add(const std::string& name, Function function,
                                    Arguments... arguments) {
  return benchmark::RegisterBenchmark(
             name.c_str(), [=](benchmark::State& state) { function(state, arguments...); })
      ->UseManualTime()
      ->MinTime(0.25)
      ->Unit(benchmark::kMicrosecond);
}

void add_engine(const impl::Engine<float>& engine) {
  const auto ref = std::cref(engine);
  const std::string target(engine.target);
  for (const char* step : {"scores", "values", "transposed"}) {
    add("step/" + std::string(step) + "/" + target, products, ref, std::string_view(step))
        ->ArgName("D")
        ->Arg(64)
        ->Arg(128);
  }
  add("step/softmax/" + target, softmax, ref);
  const std::pair<const char*, attest_dtype> formats[] = {
      {"f32", ATTEST_F32}, {"f16", ATTEST_F16}, {"bf16", ATTEST_BF16}};
  for (const auto& [name, dtype] : formats) {
    add("step/pack/" + target + "/" + name, packing, ref, dtype, false);
    add("step/pack_transposed/" + target + "/" + name, packing, ref, dtype, true);
  }
  for (const bool causal : {false, true}) {
    const std::string mask = causal ? "/causal" : "/full";
    add("fwd/prototype/" + target + "/f32" + mask, forward, ref, causal)
        ->ArgNames({"S", "D"})
        ->ArgsProduct({{512, 1024, 2048, 4096}, {64, 128}});
    add("bwd/prototype/" + target + "/f32" + mask, backward, ref, causal)
        ->ArgNames({"S", "D"})
        ->ArgsProduct({{512, 1024, 2048, 4096}, {64, 128}});
  }
}

void add_comparisons(const impl::Engine<float>& engine) {
  const auto ref = std::cref(engine);
  const auto sizes = [](benchmark::internal::Benchmark* benchmark, std::vector<Index> lengths) {
    benchmark->ArgNames({"S", "D"})->ArgsProduct({std::move(lengths), {64, 128}});
  };
  sizes(add("ratio/textbook", forward_of_rival, ref, &textbook_forward), {1024, 2048});
#ifdef ATTEST_BENCH_BLAS
  // The scores as one matrix, and in pieces that stay in the cache.
  sizes(add("ratio/blas", forward_of_rival, ref, &blas_forward<kLongestRival>), {2048, 4096});
  sizes(add("ratio/blas_in_blocks", forward_of_rival, ref, &blas_forward<256>), {2048, 4096});
#endif
  sizes(add("ratio/causal/fwd", full_over_causal, ref, false), {2048, 4096});
  sizes(add("ratio/causal/bwd", full_over_causal, ref, true), {2048, 4096});
}

[[maybe_unused]] const bool registered = [] {
  for (const impl::Engine<float>& engine : impl::engines<float>()) {
    if (engine.target != "scalar") add_engine(engine);
  }
  add_comparisons(impl::engines<float>().front());
  return true;
}();

}  // namespace
}  // namespace attest
