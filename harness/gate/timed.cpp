#include "harness/gate/timed.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "cases/fit.h"
#include "cases/shape_excerpt.h"
#include "harness/fuzz/dice.h"
#include "harness/judge/checks.h"
#include "harness/run/examine.h"
#include "spec/contains.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

// The stem of their ids.
constexpr const char* kStem = "gate";

// How much of a round the reference may compute, of what it may of a shape (shape_excerpt.h).
constexpr double kShare = 1.0 / 60;

// How many rounds have inputs whose calls are timed.
constexpr int kTimedPercent = 60;

// Classes of inputs that are like those of a model, and those that are not at all.
const std::vector<std::string> kData = {"normal"};
const std::vector<std::string> kUntimed = {
    "std10",     "std50",      "heavy_tail", "near_ties", "all_equal", "one_hot",
    "ascending", "descending", "outliers",   "key_names", "q0int",     "cancelling",
    "halves",    "offset",     "deep",       "low",       "high",      "unbalanced"};

struct Usual {
  const char* name;
  nlohmann::json problem;
};
std::vector<Usual> all_usual(std::uint64_t seed) {
  Dice dice(fmt::format("{}/usual/{}", kStem, seed));
  // A kernel for some sizes alone is slow, or wrong. More keys take the feature "long".
  const Index length = dice.within(768, 1280), keys = dice.within(12288, 16384),
              heads = dice.within(6, 10);
  const auto with = [&](nlohmann::json more) {
    nlohmann::json problem = {{"batch", 1},
                              {"query_heads", heads},
                              {"key_heads", heads},
                              {"query_len", length},
                              {"key_len", length}};
    problem.update(more);
    return problem;
  };
  const char* const causal = "causal bottom_right";
  return {
      {"prefill", with({{"head_dim", 64}})},
      {"causal", with({{"head_dim", 128}, {"mask", causal}})},
      {"decode", with({{"query_len", 1}, {"key_len", keys}, {"head_dim", 128}, {"mask", causal}})},
      {"training", with({{"head_dim", 64}, {"mask", causal}, {"backward", true}})},
  };
}

// Of the formats that it declares those that matter most for speed.
std::vector<DType> timed_formats(const Description& testee) {
  std::vector<DType> formats;
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32, DType::f64}) {
    if (contains(testee.dtypes, dtype) && formats.size() < 2) formats.push_back(dtype);
  }
  return formats;
}

nlohmann::json entry_of(const std::string& problem_name, const nlohmann::json& problem,
                        DType dtype) {
  const std::string because = fmt::format("The problem {}, whose calls are timed.", problem_name);
  return {{"name", problem_name},
          {"clauses", {"NUM-1"}},
          {"because", because},
          {"problem", problem},
          {"dtypes", {std::string(name(dtype))}},
          {"data", {"normal"}},
          {"bits", kStem}};
}

std::optional<PassTime> time_of(const CallFacts& facts, bool on_device) {
  if (!facts.wall_seconds) return std::nullopt;
  PassTime time = {.clock = *facts.wall_seconds, .computed = facts.cpu_seconds};
  // No part of the call takes longer than all of it.
  if (on_device && facts.device_seconds && *facts.device_seconds > 0 &&
      *facts.device_seconds <= time.clock) {
    time.on_device = facts.device_seconds;
  }
  return time;
}

TimedCall call_of(const Contender& contender, PreparedCase& prepared, bool measures, bool told) {
  std::string captured;
  const Calling calling = {.testee = contender.testee.description,
                           .kernel = contender.testee.kernel,
                           .executor = contender.executor,
                           .threads = contender.threads,
                           .captured = captured,
                           .measure = measures};
  if (contender.workers) contender.workers->draw(prepared.test_case().bits, true);
  Trial trial = try_out(calling, prepared.problem(), prepared.inputs(), Placement::end_flush);
  TimedCall call;
  if (!trial.stopped) {
    const bool on_device = contender.on_device();
    call.forward = time_of(trial.forward, on_device);
    if (prepared.problem().backward) {
      call.backward = time_of(trial.backward, on_device);
    }
    for (const CallFacts* facts : {&trial.forward, &trial.backward}) {
      if (facts->running_threads) call.threads.push_back(*facts->running_threads);
    }
    call.forward_bytes = trial.forward.peak_bytes;
    call.backward_bytes = trial.backward.peak_bytes;
  }
  const Description& testee = contender.testee.description;
  const DType dtype = prepared.problem().dtype;
  Examination judged = examine_outputs(prepared, testee, std::move(trial));
  call.verdict = std::move(judged.verdict);
  const Outcome outcome = call.verdict.outcome;
  if (told && (outcome == Outcome::pass || outcome == Outcome::warn) &&
      !testee.beyond_caps.contains(dtype)) {
    // A keep-mask that the testee drew belongs to what it is judged by.
    std::optional<PreparedCase> own;
    if (judged.trial.keep) own = prepared.with_keep(*judged.trial.keep);
    if (const auto zeros =
            check_zeros(own ? *own : prepared, testee.arithmetic_in(dtype), judged.trial)) {
      call.verdict.outcome = zeros->outcome;
      call.verdict.message = zeros->message;
    }
  }
  return call;
}

}  // namespace

std::vector<TimedProblem> usual_problems(const Description& testee, std::uint64_t seed) {
  constexpr double kMostWork = 1e11;
  std::vector<TimedProblem> problems;
  std::set<std::tuple<std::string, DType, bool>> seen;
  for (const Usual& usual : all_usual(seed)) {
    for (const DType dtype : timed_formats(testee)) {
      const nlohmann::json entry = entry_of(usual.name, usual.problem, dtype);
      const Fitted fit =
          fitted({read_entry(entry, kStem), entry}, testee.limits, testee.features, kMostWork);
      if (!fit.asked || !undeclared(fit.asked->problem, testee).empty()) continue;
      // Decoding with as many rows as keys would be none, and a problem that is there already.
      const Problem& problem = fit.asked->problem;
      if (problem.query_len > usual.problem["query_len"].get<Index>() ||
          !seen.emplace(to_string(problem), problem.dtype, problem.backward).second) {
        continue;
      }
      const auto changed = fit_of(fit.asked->id);
      problems.push_back({.name = fmt::format("{} {}", usual.name, name(dtype)),
                          .entry = changed.empty()
                                       ? entry
                                       : entry_with_fit({*fit.asked, entry}, Fit::parse(changed)),
                          .data = kData,
                          .untimed = kUntimed});
    }
  }
  return problems;
}

std::vector<TimedProblem> problems_of(const std::vector<CaseWithEntry>& shapes,
                                      const Description& testee, std::vector<std::string>& notes) {
  std::vector<TimedProblem> problems;
  for (const CaseWithEntry& shape : shapes) {
    if (!contains(testee.dtypes, shape.test_case.problem.dtype)) continue;
    const auto format = name(shape.test_case.problem.dtype);
    const std::string& id = shape.test_case.id;
    const std::string called = fmt::format("{} {}", id.substr(0, id.find("/dtype=")), format);
    const auto known = std::find_if(problems.begin(), problems.end(),
                                    [&](const TimedProblem& each) { return each.name == called; });
    if (known != problems.end()) {
      known->data.push_back(shape.test_case.data);
    } else if (const auto excluded = exclusion(shape.test_case.problem, testee)) {
      const std::string note =
          fmt::format("{} is not timed: {} ({})", called, excluded->what, excluded->reason);
      if (!contains(notes, note)) notes.push_back(note);
    } else {
      problems.push_back({called, shape.entry, {shape.test_case.data}, kUntimed});
    }
  }
  return problems;
}

nlohmann::json entry_of_round(const TimedProblem& problem, std::uint64_t seed,
                              std::uint64_t round) {
  const std::string bits = fmt::format("{}/{}/{}/{}", kStem, problem.name, seed, round);
  Dice dice(bits);
  nlohmann::json entry = problem.entry;
  // Which part is compared follows from the name.
  entry["name"] = fmt::format("round_{}", dice.within(0, Index(1) << 31));
  // The first that is not measured has a time in any case.
  const bool told = problem.untimed.empty() || round == 1 || dice.chance(kTimedPercent);
  entry["data"] = {dice.one_of(told ? problem.data : problem.untimed)};
  entry["bits"] = bits;
  // A mask that is drawn once would serve all rounds.
  if (const auto asked = entry.find("problem");
      asked != entry.end() && asked->contains("dropout")) {
    (*asked)["dropout"]["seed"] = dice.within(1, 1 << 30);
  }
  return entry;
}

Round try_round(const nlohmann::json& entry, const Contender& testee, const Contender* baseline,
                bool baseline_first, bool measures, bool told) {
  Case test_case = read_entry(entry, kStem);
  test_case.excerpt = 0;
  test_case.excerpt_heads.reset();
  test_case.laws.clear();
  choose_excerpt(test_case, kShare);
  // Nobody else computes meanwhile: testees are still.
  PreparedCase prepared(test_case, static_cast<int>(std::thread::hardware_concurrency()));
  Round round;
  if (baseline && baseline_first) round.baseline = call_of(*baseline, prepared, measures, told);
  round.testee = call_of(testee, prepared, measures, told);
  if (baseline && !baseline_first) round.baseline = call_of(*baseline, prepared, measures, told);
  return round;
}

double least_seconds(const Problem& problem, bool backward, bool on_device) {
  // A core: two units of sixteen multiply-adds in f32 at 6 GHz, or tiles of 1024 in 16 bits; a
  // device: some more than the fastest of 2026.
  const bool is_narrow = problem.dtype == DType::f16 || problem.dtype == DType::bf16;
  const double of_core = 6e9 * 2 * (is_narrow ? 1024 : problem.dtype == DType::f32 ? 32 : 16);
  const double cores = std::max(1u, std::thread::hardware_concurrency());
  const double most = on_device ? 1e16 : of_core * cores;
  const Mask& mask = problem.mask;
  const bool all = mask.kind == Mask::Kind::full;
  const bool past = mask.kind == Mask::Kind::band && mask.left >= kUnbounded && mask.right >= 0 &&
                    mask.offset == 0;
  double pairs = 0;
  for (Index b = 0; b < problem.batch; ++b) {
    const auto [queries, keys] = problem.lengths(b);
    // At either corner, so many rows see 1, 2, 3 and so on keys.
    const double side = double(std::min(queries, keys));
    pairs += all ? double(queries) * double(keys) : past ? side * side / 2 : 0;
  }
  const double channels = double(problem.head_dim + problem.value_dim);
  return pairs * double(problem.query_heads) * channels * 2 * (backward ? 2 : 1) / most;
}

}  // namespace attest
