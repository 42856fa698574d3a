// What stands for LSE. What is no LSE is named, and tells nothing more: all else is told by O.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "cases/generate.h"
#include "harness/probe/drawn_case.h"
#include "harness/probe/questions.h"

namespace attest {
namespace {

// Scores of two keys, the second of which may be far; and what is made of them.
struct Scores {
  double first, second;

  double maximum() const { return std::max(first, second); }
  double sum() const { return std::exp(first - maximum()) + std::exp(second - maximum()); }
  double lse() const { return maximum() + std::log(sum()); }
};
constexpr std::array<Scores, 4> kRows = {{{3, kFar}, {0, 0}, {-2, -3}, {0.5, 5}}};
using Statistics = std::array<double, kRows.size()>;

// What came back as LSE of these rows, in base e if it is in that form.
struct Seen {
  Reaction reaction;
  Statistics lse = {};
  bool written = false;
  std::string problem;
};

Seen see(Bench& bench, const LseForm& form) {
  bench.terms().dialect.lse = form;
  Stage stage = bench.stage(bench.telling_format(), kRows.size(), 2);
  stage.k(0, 0) = stage.k(1, 1) = 1;
  for (std::size_t n = 0; n < kRows.size(); ++n) {
    stage.q(static_cast<Index>(n), 0) = kRows[n].first;
    stage.q(static_cast<Index>(n), 1) = kRows[n].second;
  }
  Seen seen = {.reaction = bench.ask(stage), .problem = to_string(stage.problem)};
  for (std::size_t n = 0; seen.reaction.taken() && n < kRows.size(); ++n) {
    const auto row = static_cast<Index>(n);
    seen.written |= seen.reaction.is_written(TensorName::lse, 0, 0, stage.first + row, 0);
    seen.lse[n] = Bench::of_row(seen.reaction, TensorName::lse, stage, row);
  }
  return seen;
}

// By more than any exp that may be declared is off.
constexpr double kOff = 4e-4;

template <class Expected>
bool is(const Statistics& seen, const Expected& expected) {
  for (std::size_t n = 0; n < kRows.size(); ++n) {
    const double value = expected(kRows[n]);
    if (!(std::abs(seen[n] - value) <= kOff * std::max(1.0, std::abs(value)))) return false;
  }
  return true;
}

bool is_lse(const Seen& seen, double base = 1) {
  return seen.written && is(seen.lse, [&](const Scores& row) { return row.lse() / base; });
}

// What it is that is no LSE.
std::string name_of(const Statistics& seen) {
  const std::pair<const char*, double (*)(const Scores&)> kinds[] = {
      {"in base 10", [](const Scores& row) { return row.lse() / std::log(10.0); }},
      {"with the other sign", [](const Scores& row) { return -row.lse(); }},
      {"the maximum of the scores", [](const Scores& row) { return row.maximum(); }},
      {"the sum of exp(s - maximum)", [](const Scores& row) { return row.sum(); }},
      {"the logarithm of the sum of exp(s - maximum)",
       [](const Scores& row) { return std::log(row.sum()); }},
      {"the sum of exp(s)", [](const Scores& row) { return std::exp(row.lse()); }}};
  for (const auto& [name, expected] : kinds) {
    if (is(seen, expected)) return name;
  }
  if (std::all_of(seen.begin(), seen.end(), [](double x) { return std::isnan(x); })) return "NaN";
  if (is(seen, [&](const Scores&) { return seen[0]; }))
    return fmt::format("always {:.6g}", seen[0]);
  const double more = seen[0] - kRows[0].lse();
  if (is(seen, [&](const Scores& row) { return row.lse() + more; })) {
    return fmt::format("off by {:.3g}", more);
  }
  return "something else";
}

// Right of rows made by hand, LSE may be wrong of others, whose O is right: of other heads, or of
// more keys.
std::optional<std::string> wrong_elsewhere(Bench& bench) {
  for (const nlohmann::json& fields : {nlohmann::json::object(), nlohmann::json{{"batch", 2}}}) {
    const Case it = drawn_case(bench, bench.telling_format(), fields);
    const Inputs inputs = generate(it);
    const Reaction reaction = bench.ask(it.problem, inputs);
    if (!reaction.taken()) continue;
    if (const auto wrong = wrong_in(bench, TensorName::lse, it, inputs, reaction)) {
      return fmt::format("LSE is something else at {}: {}", to_string(it.problem), *wrong);
    }
  }
  return std::nullopt;
}

std::string why_no_lse(const Seen& plain) {
  if (!plain.reaction.taken()) return plain.reaction.refused;
  if (!plain.written) return "it returns no LSE";
  return fmt::format(
      "LSE is {}: of two scores, {{3, -inf}}, {{0, 0}}, {{-2, -3}}, {{0.5, 5}}, it "
      "is {:.6g}; not judged",
      name_of(plain.lse), fmt::join(plain.lse, ", "));
}

}  // namespace

void ask_statistics(Bench& bench, Answers& answers) {
  Answer feature = {.key = "features.lse", .declared = Answer::Declared::promise},
         base = {.key = "lse.base"}, as = {.key = "lse.as"};
  const bool offered = bench.terms().has("lse");
  const Seen plain = see(bench, {}), apart = see(bench, {.apart = true}),
             apart_2 = see(bench, {.base_2 = true, .apart = true});
  const bool lse_e = is_lse(plain), lse_2 = is_lse(plain, std::log(2.0));
  const bool apart_e = is_lse(apart), apart_b2 = is_lse(apart_2);
  LseForm form;
  // Where both are to be had, the backward pass may want what is more.
  form.apart = apart_e || apart_b2;
  form.base_2 = form.apart ? apart_b2 && !apart_e : lse_2;
  bench.terms().dialect.lse = form;
  if (lse_e || lse_2 || form.apart) {
    bench.no_lse = wrong_elsewhere(bench).value_or("");
    if (!bench.no_lse.empty()) bench.no_lse += "; not judged";
  } else if (offered) {
    bench.no_lse = why_no_lse(plain);
  }
  // Whatever stands there is returned to its backward pass as it was.
  feature.value = bench.returns_lse();
  if (plain.reaction.broke) feature.value = nullptr;
  feature.inputs = base.inputs = as.inputs = fmt::format(
      "{}, one key with the score 3: LSE = {:.6g}; as maximum and sum m + ln l = {:.6g}",
      plain.problem, plain.lse[0], apart.lse[0]);
  feature.words = bench.returns_lse() ? "it is returned" : bench.no_lse;
  if (bench.returns_lse()) {
    base.value = form.base_2 ? nlohmann::json(2) : nlohmann::json("e");
    base.words = fmt::format("LSE of a score of 3 is {}", form.base_2 ? "3 / ln 2" : "3");
    const bool both = (lse_e || lse_2) && form.apart;
    as.value = form.apart ? "maximum_and_sum" : "lse";
    as.words = both ? "either, as it is asked" : "the other way nothing is returned";
    if (both) as.declared = Answer::Declared::any;
  } else {
    base.words = as.words = bench.no_lse;
  }
  for (Answer* answer : {&feature, &base, &as}) answers.push_back(std::move(*answer));
}

}  // namespace attest
