// What the gate measures beside what a plain benchmark does: the same kernel in this process, warm,
// called twice on the same numbers, of which the second call counts, its caches cleared before, as
// benchmarks of kernels do (triton.testing.do_bench). Interleaved, call by call, in several
// processes.
//
//   bench_gate_bench LIBRARY.so... [--benchmark_filter=...]   (default: the bundled kernels)
//
// Time is the gate's. The counters are the plain time in seconds, the median of the ratio of the
// two, and between what it lies.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/gate/armed.h"
#include "harness/gate/interval.h"
#include "harness/gate/timed.h"
#include "harness/process/in_process.h"
#include "harness/process/installation.h"
#include "harness/process/plugin_host.h"
#include "harness/process/surroundings.h"
#include "harness/process/testee.h"
#include "harness/process/worker.h"

namespace attest {
namespace {

using Clock = std::chrono::steady_clock;

class Plain : public InProcessExecutor {
 public:
  using InProcessExecutor::InProcessExecutor;

  Reply execute(nlohmann::json request) override {
    request["armed"] = true;  // what it works in is made before it is timed, as by the gate
    InProcessExecutor::execute(request);
    Reply reply = InProcessExecutor::execute(std::move(request));
    reply.wall_seconds = std::chrono::duration<double>(Clock::now() - begun_).count();
    return reply;
  }

 private:
  void is_ready() override {
    std::fill(caches_.begin(), caches_.end(), char(++fill_));
    benchmark::DoNotOptimize(caches_.data());
    begun_ = Clock::now();
  }

  Clock::time_point begun_ = {};
  std::vector<char> caches_ = std::vector<char>(std::size_t(128) << 20);  // more than they hold
  int fill_ = 0;
};

struct Times {
  std::vector<double> gate = {}, plain = {}, ratios = {};
};

// Calls of some rounds, the first of which warms up. What went wrong, in words.
std::string add_rounds(const Testee& testee, const attest_plugin& plugin,
                       const TimedProblem& problem, std::uint64_t first, Times& times) {
  constexpr std::uint64_t kRounds = 5;
  const Surroundings around;
  WorkerOptions options = worker_options(testee, {}, around);
  options.still_between_requests = true;
  WorkerExecutor worker(options);
  Armed armed(worker);
  armed.load();
  Plain plain(plugin);
  const auto on_device = [] { return true; };
  const Contender gate = {.testee = testee, .executor = armed, .on_device = on_device},
                  other = {.testee = testee, .executor = plain, .on_device = on_device};
  const bool backward = problem.entry["problem"].contains("backward");
  for (std::uint64_t round = 0; round <= kRounds; ++round) {
    const Round tried =
        try_round(entry_of_round(problem, 1, first + round), gate, &other, round % 2 == 0, false);
    if (tried.testee.verdict.outcome == Outcome::inconclusive) continue;  // no time, as by the gate
    const auto& own = backward ? tried.testee.backward : tried.testee.forward;
    const auto& its = backward ? tried.baseline->backward : tried.baseline->forward;
    if (!own || !its || tried.testee.verdict.outcome != Outcome::pass) {
      return tried.testee.verdict.message;
    }
    if (round == 0) continue;
    times.gate.push_back(own->clock);
    times.plain.push_back(its->clock);
    times.ratios.push_back(own->clock / its->clock);
  }
  return "";
}

void measure(benchmark::State& state, const Testee& testee, const attest_plugin& plugin,
             const TimedProblem& problem) {
  // Where memory lies makes calls that read much of it some percent slower or faster, as long as a
  // process lives.
  constexpr std::uint64_t kStarts = 6;
  Times times;
  for (auto _ : state) {
    for (std::uint64_t start = 0; start < kStarts; ++start) {
      const std::string wrong = add_rounds(testee, plugin, problem, 100 * start, times);
      if (wrong.empty()) continue;
      state.SkipWithError(wrong.c_str());
      return;
    }
    if (!times.gate.empty()) state.SetIterationTime(interval_of(times.gate).median);
  }
  if (times.ratios.empty()) {
    state.SkipWithError("no round tells anything");
    return;
  }
  const Interval ratio = interval_of(times.ratios);
  state.counters["plain"] = interval_of(times.plain).median;
  state.counters["ratio"] = ratio.median;
  state.counters["least"] = ratio.least;
  state.counters["most"] = ratio.most;
}

// That of its tensors, which benchmarks refer to, lasts as long as the program.
void add(const std::string& spec, const Installation& installation) {
  static std::vector<std::vector<Testee>> all;
  all.push_back(find_testees({spec}, installation, {}, {}));
  for (const Testee& testee : all.back()) {
    const attest_plugin* const plugin = load_plugin(testee.plugin);
    for (const TimedProblem& problem : usual_problems(testee.description, 1)) {
      benchmark::RegisterBenchmark(fmt::format("{}/{}", testee.name, problem.name).c_str(),
                                   [&testee, plugin, problem](benchmark::State& state) {
                                     measure(state, testee, *plugin, problem);
                                   })
          ->UseManualTime()
          ->Iterations(1)
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace
}  // namespace attest

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  try {
    const attest::Installation installation = {
        .worker = WORKER, .plugins = ATTEST_PLUGINS, .cases = {}};
    std::vector<std::string> specs(argv + 1, argv + argc);
    if (specs.empty()) specs = attest::bundled_names(installation);
    for (const std::string& spec : specs) attest::add(spec, installation);
    benchmark::RunSpecifiedBenchmarks();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
