// What is rounded on the way to the gradients: dS, the dK and dV of a head or of some rows, the
// terms of dBias. Each by a sum of two parts that cancel: what is left of 1 + d is d, or what
// rounding the 1 + d made of it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "harness/probe/questions.h"

namespace attest {
namespace {

// Three quarters of the last digit that a format has beside 1: left whole, made a whole digit, or
// 0.
double three_quarters(DType dtype) { return 1.5 * unit_roundoff(dtype); }

// What dO is multiplied with, so that what is left of it is not subnormal in f16.
constexpr double kUpwards = 256;

enum class Left { whole, rounded, cut, unclear };
Left left_of(double value, double d) {
  if (near(value, d)) return Left::whole;
  if (near(value, d / 0.75)) return Left::rounded;
  return value == 0 ? Left::cut : Left::unclear;
}

// Two pairs of keys of equal weight, 1/4: dP is 1 + d and -(1 + d), 1 and -1; so dS of keys 0 and 2
// differs by d / 4.
Stage pairs(Bench& bench, DType dtype, Index rows) {
  Stage stage = bench.stage(dtype, rows, 4, 64, true);
  stage.v(0, 0) = stage.v(0, 1) = 1;
  stage.v(1, 0) = stage.v(1, 1) = -1;
  stage.v(2, 0) = 1;
  stage.v(3, 0) = -1;
  return stage;
}

// ---- dS ----------------------------------------------------------------------------------------

void ask_ds(Bench& bench, DType dtype, Answers& answers) {
  const std::string key = key_of(dtype, "ds");
  if (dtype == DType::f32 && told(answers, key_of(dtype, "products.dq.operands")) != "exact") {
    return answers.push_back(
        untold(key, "operands of dS K may be rounded: dS by itself is not told apart"));
  }
  constexpr Index kMost = 16;
  Stage stage = pairs(bench, dtype, kMost + 2);
  stage.k(0, 0) = 1;
  stage.k(2, 0) = -1;
  const auto small = [](Index m) { return std::ldexp(1.0, -static_cast<int>(m)); };
  for (Index m = 1; m <= kMost; ++m) {
    stage.d_o(m, 0) = kUpwards;
    stage.d_o(m, 1) = kUpwards * small(m);
  }
  const auto left = [&](const Reaction& from, Index m) {
    return 4 * Bench::of_row(from, TensorName::dq, stage, m) / kUpwards;
  };
  const Reaction reaction = bench.ask(stage);
  const std::string inputs = fmt::format(
      "{}; dP = 1 + d, -(1 + d), 1, -1, and K = 1, 0, -1, 0: 4 dQ is d", to_string(stage.problem));
  if (!reaction.taken()) return answers.push_back(untold(key, reaction.refused, inputs));
  Index through = 0;
  while (through < kMost && near(left(reaction, through + 1), small(through + 1))) ++through;
  const double next = through == kMost ? 0 : left(reaction, through + 1);
  std::optional<DType> format;
  if (through == kMost) format = wide_of(dtype);
  for (const DType narrow : kDTypes) {
    if (format_of(narrow).digits >= format_of(wide_of(dtype)).digits) continue;
    // The next digit lies halfway, and goes either way where P is a little off.
    const double digit = small(format_of(narrow).digits - 1);
    if (through == format_of(narrow).digits - 1 && (next == 0 || near(next, digit))) {
      format = narrow;
    }
  }
  const std::string words = fmt::format("d came through down to 2^-{}", through);
  if (!format) return answers.push_back(untold(key, words, inputs));
  answers.push_back({.key = key, .value = name(*format), .words = words, .inputs = inputs});
}

// dS of 1 and 3, and K of 3 and -1: nothing is left, unless s and 3 s were rounded.
void ask_scaled(Bench& bench, DType dtype, Answers& answers) {
  const std::string key = key_of(dtype, "ds_scaled");
  std::string inputs;
  Index before = 0, after = 0;
  for (const double scale : {0.7, 0.3, 0.45, 0.57}) {
    const double s = round_to(DType::f32, scale);
    const double expected = 3 * round_to(dtype, s / 4) - round_to(dtype, 3 * s / 4);
    if (std::abs(expected) < unit_roundoff(dtype) / 4) continue;
    Stage stage = bench.stage(dtype, 1, 4, 64, true);
    stage.problem.scale = s;
    const double dp[] = {1, -1, 3, -3};
    for (Index j = 0; j < 4; ++j) stage.v(j, 0) = dp[j];
    stage.d_o(0, 0) = kUpwards;
    stage.k(0, 0) = 3;
    stage.k(2, 0) = -1;
    const Reaction reaction = bench.ask(stage);
    if (!reaction.taken()) return answers.push_back(untold(key, reaction.refused));
    const double dq = Bench::of_row(reaction, TensorName::dq, stage, 0) / kUpwards;
    before += near(dq, expected);
    after += std::abs(dq) < std::abs(expected) / 64;
    inputs = fmt::format(
        "{}, scale {}; dS = 1/4 and 3/4, K = 3 and -1: dQ = {:g}, where rounding "
        "after the scale leaves {:g}",
        to_string(stage.problem), scale, dq, expected);
  }
  if ((before > 0) == (after > 0)) {
    return answers.push_back(untold(key, "what is left follows neither way", inputs));
  }
  answers.push_back({.key = key,
                     .value = before > 0 ? "before_rounding" : "after_rounding",
                     .words = before > 0 ? "what is left is what rounding after the scale leaves"
                                         : "nothing is left, whatever the scale is",
                     .inputs = inputs});
}

// dS = P (dP - D) of a key with a small weight, from P or from the rounded P: read as dQ, which
// holds every number of the format.
void ask_source(Bench& bench, DType dtype, Answers& answers) {
  const std::string key = key_of(dtype, "ds_from");
  constexpr Index kRows = 128;
  const double x = round_to(dtype, 1.41);
  Stage stage = bench.stage(dtype, kRows, 2, 64, true);
  stage.k(1, 0) = -1;
  stage.k(1, 1) = 1;
  stage.v(1, 0) = 1;
  for (Index n = 0; n < kRows; ++n) {
    stage.q(n, 0) = round_to(dtype, 5.5 + static_cast<double>(n) / 64);
    stage.d_o(n, 0) = x;
  }
  const Reaction reaction = bench.ask(stage);
  const std::string inputs = fmt::format("{}; scores 0 and -t, t from 5.5 to 7.5, dP = 0 and {}",
                                         to_string(stage.problem), x);
  if (!reaction.taken()) return answers.push_back(untold(key, reaction.refused, inputs));
  Index from_p = 0, from_rounded = 0, neither = 0, tell = 0;
  const bool cuts = told(answers, key_of(dtype, "p_rounding")) == "truncated";
  for (Index n = 0; n < kRows; ++n) {
    const double e = std::exp(-stage.q(n, 0)), p = e / (1 + e);
    double rounded = round_to(dtype, p);
    if (cuts && rounded > p) rounded = decode(dtype, encode(dtype, rounded) - 1);
    const double away = x * (1 - p);
    // As many units as exp may be off, and D, which may be of the rounded O.
    const double doubt = 2.5e-5;
    const auto sure = [&](double of) {
      return round_to(dtype, of * away * (1 - doubt)) == round_to(dtype, of * away * (1 + doubt));
    };
    if (!sure(p) || !sure(rounded)) continue;
    const double a = round_to(dtype, p * away), b = round_to(dtype, rounded * away);
    if (a == b) continue;
    ++tell;
    const double dq = Bench::of_row(reaction, TensorName::dq, stage, n, 1);
    from_p += dq == a;
    from_rounded += dq == b;
    neither += dq != a && dq != b;
  }
  const std::string words = fmt::format("of {} rows that tell, {} are of P, {} of the rounded P",
                                        tell, from_p, from_rounded);
  if (tell < 5 || neither > 0 || (from_p > 0 && from_rounded > 0)) {
    return answers.push_back(untold(key, words, inputs));
  }
  answers.push_back(
      {.key = key, .value = from_p > 0 ? "p" : "rounded_p", .words = words, .inputs = inputs});
}

// ---- dK and dV ---------------------------------------------------------------------------------

// dV of a key with the weight 1: the sum of dO over the rows of two heads.
void ask_heads(Bench& bench, DType dtype, Answers& answers) {
  const std::string key = key_of(dtype, "grouped_gradients");
  Stage stage = bench.stage(dtype, 2, 1, 64, true);
  Problem& p = stage.problem;
  if (p.query_heads == p.key_heads) p.query_heads = 2 * p.key_heads;
  const Index last = p.head_dim - 1;
  const Inputs one_head = stage.inputs;
  stage.inputs = zero_inputs(p);
  stage.inputs.k = one_head.k;
  for (Index h = 0; h < p.query_heads; ++h) {
    for (Index i = 0; i < p.query_len; ++i) stage.inputs.q.at(0, h, i, last) = 1;
  }
  const double d = three_quarters(dtype);
  stage.d_o(0, 0) = 1;
  stage.d_o(1, 0) = d;
  stage.inputs.d_o.at(0, 1, stage.first, 0) = -1;
  const Reaction reaction = bench.ask(stage);
  if (!reaction.taken()) return answers.push_back(untold(key, reaction.refused));
  const double dv = reaction.at(TensorName::dv, 0, 0, 0, 0);
  const Left left = left_of(dv, d);
  const std::string inputs =
      fmt::format("{}; dO of one head 1 and {:g}, of the other -1: dV = {:g}", to_string(p), d, dv);
  if (left == Left::unclear)
    return answers.push_back(untold(key, "what is left is no such sum", inputs));
  answers.push_back({.key = key,
                     .value = left == Left::whole ? "wide" : "rounded",
                     .words = left == Left::whole ? "the sum of the first head came through whole"
                                                  : "the sum of the first head was rounded",
                     .inputs = inputs});
}

// The rows after which what came together is stored: 1 + d in the first two rows, and -1 in a later
// one, another for each channel.
void ask_rows(Bench& bench, DType dtype, Answers& answers) {
  const std::string key = key_of(dtype, "gradient_block");
  constexpr Index kRows = 512;
  const double d = three_quarters(dtype);
  const Stage stage = bench.stage(dtype, kRows, 1, 64, true);
  const Index channels = stage.problem.value_dim;
  Index whole = 1, rounded = kRows;  // rows of the -1: it came in time, it came too late
  while (rounded - whole > 1) {
    Stage now = stage;
    const Index step = (rounded - whole + channels - 2) / (channels - 1);
    std::vector<Index> rows;
    for (Index row = whole + 1; row < rounded; row += step) rows.push_back(row);
    for (std::size_t c = 0; c < rows.size(); ++c) {
      now.d_o(0, Index(c)) = 1;
      now.d_o(1, Index(c)) = d;
      now.d_o(rows[c], Index(c)) = -1;
    }
    const Reaction reaction = bench.ask(now);
    if (!reaction.taken()) return answers.push_back(untold(key, reaction.refused));
    for (std::size_t c = 0; c < rows.size(); ++c) {
      const Left left = left_of(reaction.at(TensorName::dv, 0, 0, 0, Index(c)), d);
      if (left == Left::unclear) {
        return answers.push_back(untold(key, "what is left is no such sum"));
      }
      Index& bound = left == Left::whole ? whole : rounded;
      bound = left == Left::whole ? std::max(whole, rows[c]) : std::min(rounded, rows[c]);
    }
  }
  const std::string inputs =
      fmt::format("{}; dO of the first rows 1 and {:g}, of a later one -1: dV is {:g} up to row {}",
                  to_string(stage.problem), d, d, whole);
  if (rounded <= whole)
    return answers.push_back(untold(key, "what is left follows no rule", inputs));
  const bool never = rounded == kRows;
  answers.push_back({.key = key,
                     .value = never ? 0 : rounded,
                     .words = never ? fmt::format("nothing is stored within {} rows", kRows)
                                    : fmt::format("what came before row {} was rounded", rounded),
                     .inputs = inputs});
}

// dBias of a key, over all rows: 1 + d and -1, each a dS times 1/4.
void ask_bias_terms(Bench& bench, DType dtype, Answers& answers) {
  const std::string key = key_of(dtype, "dbias_terms");
  Stage stage = pairs(bench, dtype, 2);
  Problem& p = stage.problem;
  p.bias_shape = Shape{1, 1, 1, p.key_len};
  stage.inputs.bias = zeros(*p.bias_shape);
  const double d = three_quarters(dtype);
  stage.d_o(0, 0) = 1;
  stage.d_o(0, 1) = d;
  stage.d_o(1, 0) = -1;
  const Reaction reaction = bench.ask(stage);
  if (!reaction.taken()) return answers.push_back(untold(key, reaction.refused));
  const double dbias = 4 * reaction.at(TensorName::dbias, 0, 0, 0, 0);
  const Left left = left_of(dbias, d);
  const std::string inputs = fmt::format(
      "{}; dS of two rows (1 + {:g}) / 4 and -1/4: 4 dBias = {:g}", to_string(p), d, dbias);
  if (left == Left::unclear)
    return answers.push_back(untold(key, "what is left is no such sum", inputs));
  answers.push_back({.key = key,
                     .value = left == Left::whole ? "wide" : "rounded",
                     .words = left == Left::whole ? "the first term came through whole"
                                                  : "the first term was rounded",
                     .inputs = inputs});
}

}  // namespace

void ask_gradients(Bench& bench, DType dtype, Answers& answers) {
  const char* const keys[] = {
      "ds", "ds_scaled", "ds_from", "gradient_block", "grouped_gradients", "dbias_terms"};
  if (!bench.has_backward) {
    for (const char* key : keys) {
      answers.push_back(means_nothing(key_of(dtype, key), "it has no backward pass"));
    }
    return;
  }
  ask_ds(bench, dtype, answers);
  const bool narrow = dtype != wide_of(dtype);
  const auto say = [&](const char* key, const char* value, const std::string& why) {
    answers.push_back({.key = key_of(dtype, key),
                       .value = value,
                       .words = why,
                       .declared = Answer::Declared::any});
  };
  const bool rounds_ds =
      told(answers, key_of(dtype, "ds")) == nlohmann::json(name(dtype)) && narrow;
  if (rounds_ds) {
    ask_scaled(bench, dtype, answers);
  } else {
    say("ds_scaled", "after_rounding", "dS is not rounded: either comes to the same");
  }
  const bool rounds_p = told(answers, key_of(dtype, "p")) == nlohmann::json(name(dtype)) && narrow;
  if (rounds_ds && rounds_p) {
    ask_source(bench, dtype, answers);
  } else {
    say("ds_from", "p", "dS or P is not rounded: either comes to the same, or nearly");
  }
  if (narrow) {
    ask_rows(bench, dtype, answers);
    ask_heads(bench, dtype, answers);
    if (told(answers, "features.dbias") == true) {
      ask_bias_terms(bench, dtype, answers);
    } else {
      answers.push_back(means_nothing(key_of(dtype, "dbias_terms"), "it has no dBias"));
    }
    return;
  }
  answers.push_back({.key = key_of(dtype, "gradient_block"),
                     .value = 0,
                     .words = "the format is that of the sums",
                     .declared = Answer::Declared::any});
  for (const char* key : {"grouped_gradients", "dbias_terms"}) {
    say(key, "wide", "the format is that of the sums");
  }
}

}  // namespace attest
