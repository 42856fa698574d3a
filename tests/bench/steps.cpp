// How close the steps of the tile engine come to the processor's limit, on one thread, and a kernel
// that has nothing but them. `peak_fraction` is the rate over that of multiply-adds in registers.
// Causal work counts half.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "impl/engine/engine.h"
#include "tests/bench/measure.h"
#include "tests/bench/prototype.h"

namespace attest {
namespace {

using Index = std::int64_t;

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
      return seconds_of([&] {
        engine.absorb({tile, rows, keys, stride}, {max, sum, {o, rows, 1, engine.panel}});
      });
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
      return seconds_of([&] {
        if (transposed) {
          engine.pack_transposed(stored, 1, panels);
        } else {
          engine.pack(stored, panels);
        }
      });
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

// ---- The list ----------------------------------------------------------------------------------

template <class Function, class... Arguments>
benchmark::internal::Benchmark* add(const std::string& name, Function function,
                                    Arguments... arguments) {
  return benchmark::RegisterBenchmark(
             name.c_str(), [=](benchmark::State& state) { function(state, arguments...); })
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

[[maybe_unused]] const bool registered = [] {
  for (const impl::Engine<float>& engine : impl::engines<float>()) {
    if (engine.target != "scalar") add_engine(engine);
  }
  return true;
}();

}  // namespace
}  // namespace attest
