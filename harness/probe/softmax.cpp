// The softmax of a format, as LSE tells it: of two keys with the scores 0 and -t, the sum of a row
// is 1 + exp(-t), and LSE its logarithm.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "harness/probe/questions.h"

namespace attest {
namespace {

// LSE of rows with two keys, whose scores are `first` and `first` - t: each t is as near to what is
// asked for as the sum of two numbers of the format is.
struct TwoKeys {
  std::vector<double> t, lse;
  std::string problem, refused;
};

// In numbers that stay as they are where operands are rounded, and where subnormal ones are
// flushed.
double short_number(DType dtype, double value) {
  const DType grid = dtype == DType::f16 ? DType::f16 : DType::bf16;
  const double rounded = round_to(grid, value);
  return std::abs(rounded) < std::max(smallest_normal(grid), smallest_normal(dtype)) ? 0 : rounded;
}

TwoKeys two_keys(Bench& bench, DType dtype, double first, const std::vector<double>& t) {
  Stage stage = bench.stage(dtype, static_cast<Index>(t.size()), 2);
  stage.k(0, 1) = stage.k(1, 1) = 1;
  stage.k(1, 0) = stage.k(1, 2) = -1;
  TwoKeys seen;
  for (std::size_t n = 0; n < t.size(); ++n) {
    const auto row = static_cast<Index>(n);
    const double high = short_number(dtype, t[n]), low = short_number(dtype, t[n] - high);
    stage.q(row, 0) = high;
    stage.q(row, 1) = first;
    stage.q(row, 2) = low;
    seen.t.push_back(high + low);
  }
  const Reaction reaction = bench.ask(stage);
  seen.problem = to_string(stage.problem);
  seen.refused = reaction.refused;
  for (std::size_t n = 0; reaction.taken() && n < t.size(); ++n) {
    seen.lse.push_back(Bench::of_row(reaction, TensorName::lse, stage, static_cast<Index>(n)));
  }
  return seen;
}

// The smallest weight, as a power of two, that the sum of a row with one of 1 still has; none if
// even the smallest that was tried comes through, or none does.
struct Threshold {
  double log2 = 0;
  std::string inputs;
};
std::optional<Threshold> threshold(Bench& bench, DType dtype, double first, int digits) {
  std::vector<double> t = {-kFar};  // whose weight is 0
  for (int n = 0; n <= 128; ++n) {
    t.push_back((digits - 3 + n / 32.0) * std::log(2.0));
  }
  const TwoKeys seen = two_keys(bench, dtype, first, t);
  if (!seen.refused.empty()) return std::nullopt;
  // As long as the sum is none but that of the first key, LSE has these bits.
  for (std::size_t n = 1; n < t.size(); ++n) {
    if (seen.lse[n] != seen.lse[0]) continue;
    if (n == 1) return std::nullopt;
    return Threshold{.log2 = -seen.t[n] / std::log(2.0),
                     .inputs = fmt::format("{}; scores {:g} and {:g} - t: LSE no longer depends on "
                                           "the second from t = {:.6g} on",
                                           seen.problem, first, first, seen.t[n])};
  }
  return std::nullopt;
}

// Whether LSE of two keys with the score 0 is ln 2 in no more digits than that format has.
bool lse_is_rounded(Bench& bench, DType dtype, DType format) {
  const Stage stage = bench.stage(dtype, 1, 2);
  const Reaction reaction = bench.ask(stage);
  return !reaction.taken() || std::abs(Bench::of_row(reaction, TensorName::lse, stage, 0) -
                                       std::log(2.0)) > unit_roundoff(format) / 16;
}

void ask_sum(Bench& bench, DType dtype, Answers& answers) {
  Answer format = {.key = key_of(dtype, "softmax")};
  std::vector<double> t = {-kFar};
  for (int k = 4; k <= 60; ++k) t.push_back(k * std::log(2.0));
  const TwoKeys seen = two_keys(bench, dtype, 0, t);
  if (!seen.refused.empty()) {
    answers.push_back(untold(format.key, seen.refused));
    return;
  }
  int digits = 0;
  for (std::size_t n = 1; n < t.size(); ++n) {
    if (seen.lse[n] != seen.lse[0]) digits = static_cast<int>(n) + 3;
  }
  const bool is_double = digits >= format_of(DType::f64).digits - 2;
  const bool is_single = digits >= format_of(DType::f32).digits - 2;
  format.inputs = fmt::format("{}; scores 0 and -k ln 2: LSE depends on the second for k up to {}",
                              seen.problem, digits);
  if (is_single) {
    format.value = name(is_double ? DType::f64 : DType::f32);
    format.words = fmt::format("the sum of a row keeps 2^-{} beside 1", digits);
  } else {
    format.value = fmt::format("{} digits", digits + 1);
    format.words = "the sum of a row has fewer digits than any that may be declared";
  }
  answers.push_back(std::move(format));
}

// Scores between 4096 and 4296, of products that each format has: where they are stored in a
// narrower one, some are off by half a digit there, in base 2 too, which is more than exp and LSE
// can be. And one score beyond f16.
struct StoredScores {
  double off = 0;  // the most that LSE of one key is
  bool beyond_f16 = false;
  std::string problem, refused;
};
constexpr double kLeastScore = 4096;
constexpr Index kScores = 200;

StoredScores see_stored_scores(Bench& bench, DType dtype) {
  constexpr double kBeyondF16 = 0x1p17;
  Stage stage = bench.stage(dtype, kScores + 1, 1);
  stage.k(0, 0) = stage.k(0, 1) = stage.k(0, 2) = 1;
  stage.k(0, 3) = 0x1p8;
  // More digits than f32 has.
  const double low = dtype == DType::f64 ? 0x1p-20 : 0;
  for (Index n = 0; n < kScores; ++n) {
    stage.q(n, 0) = kLeastScore;
    stage.q(n, 1) = static_cast<double>(n);
    stage.q(n, 2) = low * static_cast<double>(n);
  }
  stage.q(kScores, 3) = kBeyondF16 / 0x1p8;
  const Reaction reaction = bench.ask(stage);
  StoredScores seen = {.problem = to_string(stage.problem), .refused = reaction.refused};
  if (!reaction.taken()) return seen;
  const auto lse = [&](Index n) { return Bench::of_row(reaction, TensorName::lse, stage, n); };
  for (Index n = 0; n < kScores; ++n) {
    const double off = std::abs(lse(n) - kLeastScore - (1 + low) * static_cast<double>(n));
    seen.off = std::isnan(off) ? off : std::max(seen.off, off);
    if (std::isnan(off)) break;
  }
  seen.beyond_f16 = near(lse(kScores), kBeyondF16);
  return seen;
}

void ask_stored_scores(Bench& bench, DType dtype, Answers& answers) {
  const DType wide = wide_of(dtype);
  Answer answer = {.key = key_of(dtype, "scores")};
  const StoredScores seen = see_stored_scores(bench, dtype);
  if (!seen.refused.empty()) return answers.push_back(untold(answer.key, seen.refused));
  answer.inputs = fmt::format("{}; scores 4096 + n, n up to {}, and 2^17", seen.problem, kScores);
  answer.words = fmt::format("LSE of one key is off by up to {:.3g}", seen.off);
  std::optional<DType> format;
  for (const DType narrow : kDTypes) {
    if (format_of(narrow).digits >= format_of(wide).digits) continue;
    const double half_digit = kLeastScore * unit_roundoff(narrow);
    if (seen.off >= half_digit / 2 && seen.off < 4 * half_digit) format = narrow;
  }
  if (seen.off < 1024 * kLeastScore * unit_roundoff(wide)) {
    answer.value = name(wide);
    // A wide format has nothing else to declare.
    if (dtype == wide) answer.declared = Answer::Declared::any;
  } else if (!format) {
    answer.words += ", which is no rounding of scores that is known";
  } else if (lse_is_rounded(bench, dtype, *format)) {
    answer.words += ", and LSE itself may be rounded";
  } else if (format == DType::f16 && seen.beyond_f16) {
    answer.words += ", as in f16, and 2^17 is there, which f16 has not";
  } else {
    answer.value = name(*format);
  }
  answers.push_back(std::move(answer));
}

// Beyond that it is no error of a function.
constexpr double kMostUnits = 1 << 16;

// Beside LSE itself: its logarithm, its conversion, the sum.
constexpr double kNoise = 8;

// The error of exp, in units in the last place of 1 of the wide format.
void ask_exp(Bench& bench, DType dtype, Answers& answers) {
  const double u = unit_roundoff(wide_of(dtype));
  std::vector<double> t;
  for (int n = 0; n < 200; ++n) t.push_back(0.01 + n / 200.0);
  const TwoKeys seen = two_keys(bench, dtype, 0, t);
  const std::string key = key_of(dtype, "exp_ulp");
  if (!seen.refused.empty()) return answers.push_back(untold(key, seen.refused));
  double least = 0, most = 0, worst = 0;
  for (std::size_t n = 0; n < t.size(); ++n) {
    const long double e = std::exp(-static_cast<long double>(seen.t[n]));
    const long double share = e / (1 + e);
    const auto error = static_cast<double>(
        std::abs(static_cast<long double>(seen.lse[n]) - std::log1p(e)) / share);
    const auto noise = static_cast<double>(kNoise * u / share);
    if ((error - noise) / (2 * u) > least) worst = seen.t[n];
    least = std::max(least, (error - noise) / (2 * u));
    most = std::max(most, (error + noise) / (2 * u));
  }
  if (least > kMostUnits) {
    return answers.push_back(untold(key, "LSE of two keys is another", seen.problem));
  }
  answers.push_back(
      {.key = key,
       .value = least > 0 ? std::ceil(4 * least) / 4 : 0.0,
       .words = fmt::format("at least {:.3g} units and at most {:.3g}, of {} arguments "
                            "from -1 to 0",
                            least, most, t.size()),
       .inputs = fmt::format("{}; scores 0 and -t; the worst at t = {:.6g}", seen.problem, worst),
       .declared = Answer::Declared::at_least});
}

void ask_exp_zero(Bench& bench, DType dtype, Answers& answers) {
  Stage stage = bench.stage(dtype, 1, 1);
  const Reaction reaction = bench.ask(stage);
  const std::string key = key_of(dtype, "exp_zero");
  if (!reaction.taken()) return answers.push_back(untold(key, reaction.refused));
  const double lse = Bench::of_row(reaction, TensorName::lse, stage, 0);
  answers.push_back({.key = key,
                     .value = lse == 0 ? "exact" : "inexact",
                     .words = fmt::format("one key with the score 0 has LSE = {:g}", lse),
                     .inputs = to_string(stage.problem)});
}

// tanh(x) = LSE of one key under a softcap of 1.
void ask_tanh(Bench& bench, DType dtype, Answers& answers) {
  const double u = unit_roundoff(wide_of(dtype));
  constexpr Index kRows = 200;
  Stage stage = bench.stage(dtype, kRows, 1);
  stage.problem.softcap = 1;
  stage.k(0, 0) = 1;
  for (Index n = 0; n < kRows; ++n) {
    stage.q(n, 0) = short_number(dtype, 0.25 + static_cast<double>(n) / 80);
  }
  // Of m c and s c in one fma the weight of one key may be that of a number next to 0.
  const nlohmann::json units = told(answers, key_of(dtype, "exp_ulp"));
  const double off = (1.25 * (units.is_number() ? units.get<double>() : 0) + 4) * 2 * u;
  // Far keys are not far any more: none there are.
  stage.problem.key_len = std::max<Index>(1, bench.plain(dtype).key_step);
  const std::string key = key_of(dtype, "tanh_ulp");
  if (stage.problem.key_len > 1 || bench.plain(dtype).mask.kind != Mask::Kind::full) {
    return answers.push_back(untold(key, "it takes no single key under a full mask"));
  }
  Inputs one = zero_inputs(stage.problem);
  one.q = stage.inputs.q;
  one.k.at(0, 0, 0, 0) = 1;
  const Reaction reaction = bench.ask(stage.problem, one);
  if (!reaction.taken()) return answers.push_back(untold(key, reaction.refused));
  double least = 0, most = 0, worst = 0;
  for (Index n = 0; n < kRows; ++n) {
    const long double exact = std::tanh(static_cast<long double>(stage.q(n, 0)));
    const auto lse = static_cast<long double>(Bench::of_row(reaction, TensorName::lse, stage, n));
    const auto error = static_cast<double>(std::abs(lse - exact) / exact);
    const auto noise = static_cast<double>(kNoise * u + off / exact);
    if ((error - noise) / (2 * u) > least) worst = stage.q(n, 0);
    least = std::max(least, (error - noise) / (2 * u));
    most = std::max(most, (error + noise) / (2 * u));
  }
  if (least > kMostUnits) {
    return answers.push_back(untold(key, "LSE of one key is not its score under a softcap"));
  }
  answers.push_back(
      {.key = key,
       .value = least > 0 ? std::ceil(4 * least) / 4 : 0.0,
       .words = fmt::format("at least {:.3g} units and at most {:.3g}, of {} arguments from 0.25 "
                            "to 2.7",
                            least, most, kRows),
       .inputs =
           fmt::format("{}, one key; the worst at x = {:.6g}", to_string(stage.problem), worst),
       .declared = Answer::Declared::at_least});
}

// The weight of the largest score is 1 if the running maximum is that score. If it is a whole power
// of two instead, the last digit of the sum lies elsewhere.
void ask_max_rounding(Bench& bench, DType dtype, Answers& answers) {
  const std::string key = key_of(dtype, "max_rounding");
  const int digits = format_of(wide_of(dtype)).digits;
  const auto usual = threshold(bench, dtype, 0, digits);
  if (!usual) {
    return answers.push_back(untold(key, "no weight is lost beside one of 1, or all are"));
  }
  bool moves = false;
  std::string inputs;
  for (const double first : {0.1875, 0.28125, 0.40625}) {
    const auto other = threshold(bench, dtype, first, digits);
    if (!other) return answers.push_back(untold(key, "LSE does not tell", usual->inputs));
    // By a whole power of two it moves where the weight of 1 is a little less than 1.
    const double by = other->log2 - usual->log2;
    if (std::abs(by - std::round(by)) > 0.1) {
      moves = true;
      inputs = other->inputs;
    }
  }
  answers.push_back({.key = key,
                     .value = moves ? "integer" : "exact",
                     .words = moves ? "the weight of the largest score is not 1"
                                    : "the weight of the largest score is 1, whatever that is",
                     .inputs = moves ? inputs : usual->inputs});
}

}  // namespace

void ask_softmax(Bench& bench, DType dtype, Answers& answers) {
  if (!bench.returns_lse()) {
    for (const char* key :
         {"softmax", "scores", "exp_zero", "exp_ulp", "tanh_ulp", "max_rounding"}) {
      answers.push_back(untold(key_of(dtype, key), bench.no_lse));
    }
    return;
  }
  ask_sum(bench, dtype, answers);
  ask_stored_scores(bench, dtype, answers);
  ask_exp_zero(bench, dtype, answers);
  const std::string exp = key_of(dtype, "exp_ulp"), tanh = key_of(dtype, "tanh_ulp");
  if (told(answers, key_of(dtype, "scores")) != name(wide_of(dtype))) {
    for (const std::string& key : {exp, tanh, key_of(dtype, "max_rounding")}) {
      answers.push_back(untold(key, "scores may be stored in fewer digits than it computes with"));
    }
    return;
  }
  ask_max_rounding(bench, dtype, answers);
  if (told(answers, key_of(dtype, "exp_zero")) != "exact") {
    answers.push_back(untold(exp, "exp(0) is not 1, and LSE is off by that too"));
    answers.push_back(untold(tanh, "exp(0) is not 1, and LSE is off by that too"));
    return;
  }
  ask_exp(bench, dtype, answers);
  if (told(answers, "features.softcap") != true) {
    answers.push_back(means_nothing(tanh, "it takes no softcap"));
  } else if (told(answers, key_of(dtype, "max_rounding")) == "exact") {
    ask_tanh(bench, dtype, answers);
  } else {
    answers.push_back(untold(tanh, "the one weight may not be 1, and LSE is off by exp too"));
  }
}

}  // namespace attest
