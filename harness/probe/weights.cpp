// What becomes of P between the softmax and its product with V.
//
// Of two keys with the scores 0 and -t the weights are 1 and e = exp(-t). With the values -w and 1,
//
//   O = (P1 - w P0) / l
//
// and w so near to e that O tells how P1 was rounded. Each way to compute P is a model with a
// number for O; what fits all rows is told.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "harness/probe/questions.h"

namespace attest {
namespace {

// Towards 0.
double cut_to(DType dtype, double value) {
  const double rounded = round_to(dtype, value);
  return rounded > value ? decode(dtype, encode(dtype, rounded) - 1) : rounded;
}

struct Model {
  std::optional<DType> format;  // none: P stays as wide as it is
  bool first = false;           // divided by the sum before it is rounded
  bool truncates = false;
  bool sums_rounded = false;  // the sum is that of the rounded weights

  double rounded(double p) const {
    return !format ? p : truncates ? cut_to(*format, p) : round_to(*format, p);
  }
  double sum(double e) const { return 1 + (sums_rounded ? rounded(e) : e); }
  double o(double e, double w) const {
    const double l = sum(e);
    return first ? rounded(e / l) - w * rounded(1 / l) : (rounded(e) - w * rounded(1)) / l;
  }
};

std::vector<Model> models(DType dtype) {
  std::vector<Model> all = {{.format = std::nullopt}};
  for (const DType format : kDTypes) {
    if (format_of(format).digits >= format_of(wide_of(dtype)).digits) continue;
    for (const bool truncates : {false, true}) {
      all.push_back({.format = format, .first = true, .truncates = truncates});
      for (const bool sums : {false, true}) {
        all.push_back({.format = format, .truncates = truncates, .sums_rounded = sums});
      }
    }
  }
  return all;
}

// What values are multiplied with, so that what is left of them is not subnormal in f16.
constexpr double kTimes = 64;

// What a row gave, and how far any of its numbers may be off: e by the error of exp.
struct Row {
  double t, w, o, lse;
};
struct Doubt {
  double e;        // relative
  double one;      // of exp(0)
  double wide;     // of the arithmetic that computes O
  double rounded;  // of O, relative, as it is stored
};

enum class Fit { fits, differs, open };

Fit fit(const Model& model, const Row& row, const Doubt& doubt, bool with_lse) {
  const double e = std::exp(-row.t), low = e * (1 - doubt.e), high = e * (1 + doubt.e);
  const double o = model.o(e, row.w);
  const double allowed =
      4 * doubt.wide + 2 * doubt.e * e + doubt.one * e + doubt.rounded * std::abs(o);
  // Where e lies at the edge of a rounding, both sides may be right.
  if (std::abs(model.o(low, row.w) - model.o(high, row.w)) > allowed) return Fit::open;
  if (std::abs(row.o - o) > allowed) return Fit::differs;
  if (with_lse &&
      std::abs(row.lse - std::log(model.sum(e))) > 4 * doubt.wide + 2 * doubt.e * e + doubt.one) {
    return Fit::differs;
  }
  return Fit::fits;
}

struct SeenRows {
  std::vector<Row> rows;
  std::string problem, refused;
};

// Weights of which each has some w, of numbers of the format that are nearest to it.
SeenRows see(Bench& bench, DType dtype) {
  constexpr Index kChannels = 4;
  const Index times = bench.plain(dtype).value_dim / kChannels;
  const bool narrow = dtype != wide_of(dtype);
  Stage stage = bench.stage(dtype, times, 2);
  stage.k(1, 0) = -1;
  std::vector<Row> set;
  for (Index n = 0; n < times; ++n) {
    const double t =
        round_to(dtype, 0.3 + 1.7 * static_cast<double>(n) / static_cast<double>(times));
    stage.q(n, 0) = t;
    for (Index c = 0; c < kChannels; ++c) {
      // Of wide formats, in numbers of 8 and of 11 digits.
      const DType grid = narrow ? dtype : c % 2 == 0 ? DType::bf16 : DType::f16;
      double w = cut_to(grid, std::exp(-t));
      const Index up = narrow ? c : c / 2;
      for (Index k = 1; k < up; ++k) w = decode(grid, encode(grid, w) + 1);
      if (up == 0) w = decode(grid, encode(grid, w) - 1);
      stage.v(0, n * kChannels + c) = -w * kTimes;
      stage.v(1, n * kChannels + c) = kTimes;
      set.push_back({t, w, 0, 0});
    }
  }
  const Reaction reaction = bench.ask(stage);
  SeenRows seen = {.rows = {}, .problem = to_string(stage.problem), .refused = reaction.refused};
  if (!reaction.taken()) return seen;
  for (Index n = 0; n < times * kChannels; ++n) {
    Row& row = set[static_cast<std::size_t>(n)];
    row.o = Bench::of_row(reaction, TensorName::o, stage, n / kChannels, n) / kTimes;
    row.lse = Bench::of_row(reaction, TensorName::lse, stage, n / kChannels);
  }
  seen.rows = std::move(set);
  return seen;
}

std::string describe(const Model& model) {
  if (!model.format) return "P is not rounded";
  return fmt::format("P is {} to {} {}", model.truncates ? "cut" : "rounded", name(*model.format),
                     model.first          ? "once it is normalised"
                     : model.sums_rounded ? "before it is normalised, by the sum of the rounded P"
                                          : "before it is normalised");
}

// Those that fit all rows, and enough of them for certain, if exp is off by so many units at most.
std::vector<Model> fitting_models(const Bench& bench, DType dtype, const SeenRows& seen,
                                  double units, bool inexact) {
  const double u = unit_roundoff(wide_of(dtype)), off = units * 2 * u;
  const Doubt doubt = {.e = off,
                       .one = inexact ? off : 0,
                       .wide = 8 * u,
                       .rounded = dtype == wide_of(dtype) ? 0 : 2 * unit_roundoff(dtype)};
  std::vector<Model> fitting;
  for (const Model& model : models(dtype)) {
    Index fits = 0;
    const bool all = std::all_of(seen.rows.begin(), seen.rows.end(), [&](const Row& row) {
      const Fit how = fit(model, row, doubt, bench.returns_lse());
      fits += how == Fit::fits;
      return how != Fit::differs;
    });
    if (all && fits >= 8) fitting.push_back(model);
  }
  return fitting;
}

// Of so many keys of equal scores, three of which have values that sum to 0, in how many channels O
// is not 0; none if it does not take them.
struct Leftover {
  std::optional<Index> channels = {};
  Index of = 0;
  std::string problem = {}, refused = {};
};
Leftover leftover(Bench& bench, DType dtype, Index keys) {
  Stage stage = bench.stage(dtype, 1, keys);
  Leftover left = {.of = stage.problem.value_dim, .problem = to_string(stage.problem)};
  // With f64 they have digits enough for the product to need more than any accumulator has.
  const Index long_part = dtype == DType::f64 ? (Index(1) << 40) + 1 : 1;
  for (Index c = 0; c < left.of; ++c) {
    const auto a = static_cast<double>((5 + 2 * c % 61) * long_part);
    const auto b = static_cast<double>((3 + 7 * c % 59) * long_part);
    stage.v(0, c) = kTimes * a, stage.v(1, c) = kTimes * b, stage.v(2, c) = -kTimes * (a + b);
  }
  const Reaction reaction = bench.ask(stage);
  left.refused = reaction.refused;
  if (!reaction.taken()) return left;
  left.channels = 0;
  for (Index c = 0; c < left.of; ++c) {
    *left.channels += Bench::of_row(reaction, TensorName::o, stage, 0, c) != 0;
  }
  return left;
}

// Where P is not rounded: weights that are 1/3 each, and values that sum to 0. Divided at last,
// that is 0; products with 1/3 are rounded, unless their sum has digits for all of them.
Answer ask_order(Bench& bench, DType dtype, const Answers& answers) {
  Answer answer = {.key = key_of(dtype, "p_normalised")};
  const Leftover left = leftover(bench, dtype, 3);
  answer.inputs =
      fmt::format("{}; three keys of equal scores, values a, b, -(a + b)", left.problem);
  if (!left.channels) {
    answer.words = left.refused;
    return answer;
  }
  answer.words = fmt::format("sums of 0 are not 0 in {} of {} channels", *left.channels, left.of);
  if (*left.channels > 0 && !sums_are_exact(bench, dtype, answers)) {
    answer.words += ", but exp(0) may not be 1, and no sum exact";
  } else if (*left.channels > 0) {
    answer.value = "first";
  } else if (told(answers, key_of(dtype, "products.pv.accumulator")) == name(wide_of(dtype))) {
    answer.value = "last";
  } else {
    answer.words += ", but they may have digits enough for products with 1/3";
  }
  return answer;
}

}  // namespace

// Of four keys a weight is 1/4, whatever exp(0) is, if it is divided first; if it is divided last,
// sums of 0 are 0 where exp(0) is 1.
bool sums_are_exact(Bench& bench, DType dtype, const Answers& answers) {
  const nlohmann::json exp_zero = told(answers, key_of(dtype, "exp_zero"));
  return exp_zero.is_null() ? leftover(bench, dtype, 4).channels == 0 : exp_zero == "exact";
}

void ask_weights(Bench& bench, DType dtype, Answers& answers) {
  const std::string p = key_of(dtype, "p"), order = key_of(dtype, "p_normalised"),
                    rounding = key_of(dtype, "p_rounding"), sum = key_of(dtype, "row_sum");
  if (dtype == DType::f32 && told(answers, key_of(dtype, "products.pv.operands")) != "exact") {
    for (const std::string& key : {p, order, rounding, sum}) {
      answers.push_back(
          untold(key, "operands of PV may be rounded: P by itself is not told apart"));
    }
    return;
  }
  const SeenRows seen = see(bench, dtype);
  const bool inexact = told(answers, key_of(dtype, "exp_zero")) == "inexact";
  // LSE may have told of an exp that is far off; but sums of rounded weights look the same.
  std::vector<Model> fitting = fitting_models(bench, dtype, seen, 8, inexact);
  const nlohmann::json units = told(answers, key_of(dtype, "exp_ulp"));
  if (fitting.empty() && units.is_number()) {
    fitting = fitting_models(bench, dtype, seen, 1.25 * units.get<double>() + 8, inexact);
  }
  const std::string inputs = fmt::format(
      "{}; scores 0 and -t, t from 0.3 to 2, values -w and 1, w next to exp(-t)", seen.problem);
  if (fitting.size() != 1) {
    std::vector<std::string> words;
    for (const Model& model : fitting) words.push_back(describe(model));
    for (const std::string& key : {p, order, rounding, sum}) {
      answers.push_back(untold(key,
                               !seen.refused.empty() ? seen.refused
                               : fitting.empty()     ? "O fits no way to round P that is known"
                                                 : fmt::format("O fits {}", fmt::join(words, ", ")),
                               inputs));
    }
    return;
  }
  const Model& model = fitting.front();
  const auto say = [&](const std::string& key, const char* value, Answer::Declared declared) {
    answers.push_back(
        {.key = key,
         .value = value,
         .words = fmt::format("{}: fits all {} numbers", describe(model), seen.rows.size()),
         .inputs = inputs,
         .declared = declared});
  };
  using enum Answer::Declared;
  const std::string format(name(model.format.value_or(wide_of(dtype))));
  say(p, format.c_str(), equal);
  if (model.format) {
    say(order, model.first ? "first" : "last", equal);
  } else {
    answers.push_back(inexact ? untold(order, "exp(0) is not 1: no sum is exact")
                              : ask_order(bench, dtype, answers));
  }
  say(rounding, model.truncates ? "truncated" : "nearest", model.format ? equal : any);
  say(sum, model.sums_rounded ? "rounded_p" : "p", model.format ? equal : any);
  if (!model.sums_rounded) return;
  for (Answer& answer : answers) {
    if (answer.key != key_of(dtype, "exp_ulp")) continue;
    answer = untold(answer.key, "LSE is made of rounded weights, which hide the error of exp",
                    answer.inputs);
  }
}

}  // namespace attest
