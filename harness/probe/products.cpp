// How the six products accumulate, and what they make of their operands: by the method of Fasi,
// Higham, Mikaitis and Pranesh (PeerJ Comput. Sci. 7:e330), carried through a kernel's results.
//
// All is made so that each product is a sum of three terms at three places, t0 + t1 + t2, weighted
// by exactly 1, and everything after it is exact:
//
//   A + x - A    x is what came through: all of it, or what the accumulator's last digit left
//
// with x at each of the three places, for which two of the terms come together first is not known.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>

#include "harness/probe/questions.h"

namespace attest {
namespace {

using Terms = std::array<double, 3>;

// A: in all formats, and far enough from the subnormals of f16.
constexpr double kLarge = 0x1.8p12;

// ---- The sums that a product makes of terms ----------------------------------------------------

// An experiment with some sums at a time: `set` puts the terms of sum n onto a stage of `rows` rows
// and `real` keys, `get` reads it.
struct Experiment {
  std::string_view product;
  const char* what;  // the terms are
  bool backward;
  bool by_row;  // each sum has a row of its own; else a channel
  Index rows, real;
  void (*prepare)(Stage&);
  void (*set)(Stage&, Index n, const Terms&);
  double (*get)(const Reaction&, const Stage&, Index n);
};

double scale_of(const Stage& stage) { return stage.problem.scale; }

constexpr Experiment kExperiments[] = {
    {"qk", "Q, K = 1, one key; LSE is the score", false, true, 1, 1,
     [](Stage& s) {
       for (Index c = 0; c < 3; ++c) s.k(0, c) = 1;
     },
     [](Stage& s, Index n, const Terms& t) {
       for (Index c = 0; c < 3; ++c) s.q(n, c) = t[static_cast<std::size_t>(c)];
     },
     [](const Reaction& r, const Stage& s, Index n) {
       return Bench::of_row(r, TensorName::lse, s, n) / scale_of(s);
     }},
    {"pv", "V, four keys of P = 1/4", false, false, 1, 4, [](Stage&) {},
     [](Stage& s, Index n, const Terms& t) {
       for (Index j = 0; j < 3; ++j) s.v(j, n) = t[static_cast<std::size_t>(j)];
     },
     [](const Reaction& r, const Stage& s, Index n) {
       return 4 * Bench::of_row(r, TensorName::o, s, 0, n);
     }},
    {"dp", "dO, V = 1 and -1, two keys; dQ is half of it", true, true, 1, 2,
     [](Stage& s) {
       for (Index c = 0; c < 3; ++c) s.v(0, c) = 1, s.v(1, c) = -1;
       s.k(0, 0) = 1;
     },
     [](Stage& s, Index n, const Terms& t) {
       for (Index c = 0; c < 3; ++c) s.d_o(n, c) = t[static_cast<std::size_t>(c)];
     },
     [](const Reaction& r, const Stage& s, Index n) {
       return 2 * Bench::of_row(r, TensorName::dq, s, n, 0) / scale_of(s);
     }},
    {"dv", "dO, P = 1", true, false, 3, 1, [](Stage&) {},
     [](Stage& s, Index n, const Terms& t) {
       for (Index i = 0; i < 3; ++i) s.d_o(i, n) = t[static_cast<std::size_t>(i)];
     },
     [](const Reaction& r, const Stage&, Index n) { return r.at(TensorName::dv, 0, 0, 0, n); }},
    {"dq", "K, dS = 1, 1, 1, -3", true, false, 1, 4,
     [](Stage& s) {
       for (Index j = 0; j < 4; ++j) s.v(j, 0) = j < 3 ? 1 : -3;
       s.d_o(0, 0) = 4;
     },
     [](Stage& s, Index n, const Terms& t) {
       for (Index j = 0; j < 3; ++j) s.k(j, n) = t[static_cast<std::size_t>(j)];
     },
     [](const Reaction& r, const Stage& s, Index n) {
       return Bench::of_row(r, TensorName::dq, s, 0, n) / scale_of(s);
     }},
    {"dk", "Q, dS = 1", true, false, 3, 2,
     [](Stage& s) {
       s.v(0, 0) = 1, s.v(1, 0) = -1;
       for (Index i = 0; i < 3; ++i) s.d_o(i, 0) = 2;
     },
     [](Stage& s, Index n, const Terms& t) {
       for (Index i = 0; i < 3; ++i) s.q(i, n) = t[static_cast<std::size_t>(i)];
     },
     [](const Reaction& r, const Stage& s, Index n) {
       return r.at(TensorName::dk, 0, 0, 0, n) / scale_of(s);
     }},
};

struct Sums {
  std::vector<double> made;
  std::string problem, refused;
};

Sums sums_of(Bench& bench, DType dtype, const Experiment& experiment, double scale,
             const std::vector<Terms>& all) {
  const Plain& plain = bench.plain(dtype);
  const Index at_once = experiment.by_row ? 256 : std::min(plain.head_dim, plain.value_dim) - 1;
  Sums sums;
  for (std::size_t begin = 0; begin < all.size();) {
    const Index count = std::min(at_once, static_cast<Index>(all.size() - begin));
    Stage stage = bench.stage(dtype, experiment.by_row ? count : experiment.rows, experiment.real,
                              64, experiment.backward);
    stage.problem.scale = scale;
    experiment.prepare(stage);
    for (Index n = 0; n < count; ++n) {
      experiment.set(stage, n, all[begin + static_cast<std::size_t>(n)]);
    }
    const Reaction reaction = bench.ask(stage);
    sums.problem = to_string(stage.problem);
    sums.refused = reaction.refused;
    if (!reaction.taken()) return sums;
    for (Index n = 0; n < count; ++n) sums.made.push_back(experiment.get(reaction, stage, n));
    begin += static_cast<std::size_t>(count);
  }
  return sums;
}

// ---- What they tell ----------------------------------------------------------------------------

// A, x and -A with x at each place, and with both signs of A.
std::vector<Terms> arrangements(double a, double x) {
  std::vector<Terms> all;
  for (const double large : {a, -a}) {
    all.insert(all.end(), {{large, x, -large}, {x, large, -large}, {large, -large, x}});
  }
  return all;
}
constexpr std::size_t kArrangements = 6;

// How many digits came through of A + 2^-k A', for growing k; none if what came is no such sum.
std::optional<int> digits_of(const std::vector<double>& made, int most) {
  int digits = 1;
  bool ended = false;
  for (int k = 1; k <= most; ++k) {
    const double x = std::ldexp(kLarge / 1.5, -k);
    int whole = 0, lost = 0;
    for (std::size_t n = 0; n < kArrangements; ++n) {
      const double sum = made[static_cast<std::size_t>(k - 1) * kArrangements + n];
      whole += near(sum, x);
      lost += sum == 0;
    }
    if (whole + lost < static_cast<int>(kArrangements)) return std::nullopt;
    if (lost == 0) {
      if (ended) return std::nullopt;
      digits = k + 1;
    } else {
      ended = true;
    }
  }
  return digits;
}

// Of f16, which holds no smaller x: what is beyond is 0 and would pass for lost.
constexpr int kReachOfF16 = 30;
// Of what is rounded to its range on the way, where subnormals may be lost as well.
constexpr int kReachOfItsRange = 25;

// Whether a term beyond the range of f16 comes through. Where it does not, something on the way has
// that range: an operand, or the scores.
bool has_range(Bench& bench, DType dtype, const Experiment& experiment, double scale) {
  if (dtype == DType::f16) return true;
  constexpr double kSmall = 0x1p-30;
  const Sums sums = sums_of(bench, dtype, experiment, scale, {{kSmall, 0, 0}, {0, 0, -kSmall}});
  return sums.refused.empty() && near(sums.made[0], kSmall) && near(sums.made[1], -kSmall);
}

enum class Cut { truncated, nearest, neither };

// Of three quarters of the last digit, what was left; none if it is something else.
std::optional<Cut> cut_of(const std::vector<double>& made, double digit) {
  bool lost = false, grew = false;
  for (const double sum : made) {
    const double left = sum / digit;
    if (left == 0) {
      lost = true;
    } else if (near(left, 1)) {
      grew = true;
    } else if (!near(left, 0.75)) {
      return std::nullopt;
    }
  }
  return lost ? Cut::truncated : grew ? Cut::nearest : Cut::neither;
}

struct Accumulation {
  std::optional<int> digits = {};
  std::optional<Cut> cut = {};
  bool has_range = true;
  std::string problem = {}, refused = {};
};

Accumulation see_accumulator(Bench& bench, DType dtype, const Experiment& experiment,
                             double scale) {
  const int most = dtype == DType::f64 ? 70 : 56;
  std::vector<Terms> all;
  for (int k = 1; k <= most; ++k) {
    const auto some = arrangements(kLarge, round_to(dtype, std::ldexp(kLarge / 1.5, -k)));
    all.insert(all.end(), some.begin(), some.end());
  }
  const int reach = dtype == DType::f16 ? kReachOfF16 : most;
  all.resize(static_cast<std::size_t>(reach) * kArrangements);
  Sums sums = sums_of(bench, dtype, experiment, scale, all);
  Accumulation seen = {.problem = sums.problem, .refused = sums.refused};
  if (!sums.refused.empty()) return seen;
  seen.digits = digits_of(sums.made, reach);
  seen.has_range = has_range(bench, dtype, experiment, scale);
  if (!seen.digits || *seen.digits > reach) return seen;
  const double digit = std::ldexp(kLarge / 1.5, 1 - *seen.digits);
  sums = sums_of(bench, dtype, experiment, scale, arrangements(kLarge, 0.75 * digit));
  if (sums.refused.empty()) seen.cut = cut_of(sums.made, digit);
  return seen;
}

void tell_accumulator(DType dtype, const Experiment& experiment, const Accumulation& seen,
                      const std::string& key, Answers& answers) {
  Answer width = {.key = key + ".accumulator"}, cut = {.key = key + ".truncates"};
  width.inputs = cut.inputs =
      fmt::format("{}; {}: A + x - A, A = {:g}", seen.problem, experiment.what, kLarge);
  if (!seen.digits) {
    width.words = cut.words =
        seen.refused.empty() ? "what came through is no sum of these terms" : seen.refused;
  } else {
    const int digits = *seen.digits;
    const bool beyond_reach = (dtype == DType::f16 && digits > kReachOfF16) ||
                              (!seen.has_range && digits > kReachOfItsRange);
    width.words = fmt::format("x came through down to 2^-{} A/1.5: {} digits{}", digits - 1, digits,
                              seen.has_range ? "" : ", and 2^-30 did not, as in f16");
    if (digits < format_of(wide_of(dtype)).digits) {
      width.value = fmt::format("{} digits", digits);  // of no format that may be declared
    } else if (!beyond_reach) {
      width.value = name(digits >= format_of(DType::f64).digits ? DType::f64 : DType::f32);
    }
    if (beyond_reach) {
      cut.words = "it has more digits than f16 can tell";
    } else if (seen.cut == Cut::truncated) {
      cut.value = true;
      cut.words = "3/4 of the last digit was lost";
    } else if (seen.cut == Cut::nearest) {
      cut.value = false;
      cut.words = "3/4 of the last digit became a whole one, and never none";
    } else {
      cut.words = seen.cut ? "3/4 of the last digit came through as it was"
                           : "what came of 3/4 of the last digit is no such sum";
    }
  }
  answers.push_back(std::move(width));
  answers.push_back(std::move(cut));
}

// ---- Operands ----------------------------------------------------------------------------------

constexpr int kMostDigits = 20;  // far from the noise of f32

// 1 + d for d = 2^-m, and for three quarters of that.
std::vector<double> next_to_one() {
  std::vector<double> all;
  for (const double part : {1.0, 0.75}) {
    for (int m = 1; m <= kMostDigits; ++m) all.push_back(1 + std::ldexp(part, -m));
  }
  return all;
}

// What operands are rounded to, by what was left of each (1 + d) - 1.
struct Kept {
  const char* format = nullptr;  // null: none that is known
  std::string words = {};
};
Kept kept_of(const std::vector<double>& left) {
  const auto whole = [&](int m) {
    const double d = std::ldexp(1.0, -m);
    return std::abs(left[static_cast<std::size_t>(m - 1)] - d) <= d / 16;
  };
  int digits = 1;
  while (digits <= kMostDigits && whole(digits)) ++digits;
  const int last = digits - 1;
  if (digits > kMostDigits) return {"exact", fmt::format("d came through down to 2^-{}", last)};
  // The last one that is left of 3/4 of it: none, or a whole one.
  const double rounded =
      last < 1 ? 0 : std::ldexp(left[static_cast<std::size_t>(kMostDigits + last - 1)], last);
  const bool cut = std::abs(rounded) < 0.25, known = cut || std::abs(rounded - 1) < 0.25;
  if (!known || (digits != 11 && digits != 8)) {
    return {nullptr,
            fmt::format("d came through down to 2^-{}, which is no operand that is known", last)};
  }
  const char* const tf32 = cut ? "tf32_truncated" : "tf32";
  const char* const bf16 = cut ? "bf16_truncated" : "bf16";
  return {digits == 11 ? tf32 : bf16,
          fmt::format("d came through down to 2^-{}, and 3/4 of that as {}", last,
                      cut ? "nothing" : "a whole one")};
}

// The same with the other operand, K or V: each number in a channel of its own, 1 in another. Of
// the other products that one is P or dS, which no input is.
Sums other_operands(Bench& bench, const Experiment& experiment, double scale,
                    const std::vector<double>& numbers) {
  const bool is_qk = experiment.product == "qk";
  const Plain& plain = bench.plain(DType::f32);
  const Index at_once = (is_qk ? plain.head_dim : plain.value_dim) - 2;
  Sums sums;
  for (std::size_t begin = 0; begin < numbers.size();) {
    const Index count = std::min(at_once, static_cast<Index>(numbers.size() - begin));
    Stage stage = bench.stage(DType::f32, count, experiment.real, 64, experiment.backward);
    stage.problem.scale = scale;
    if (!is_qk) stage.k(0, 0) = 1;
    for (Index c = 0; c <= count; ++c) {
      const double number = c == 0 ? 1 : numbers[begin + static_cast<std::size_t>(c - 1)];
      (is_qk ? stage.k(0, c) : stage.v(0, c)) = number;
      if (!is_qk) stage.v(1, c) = -number;
    }
    for (Index n = 0; n < count; ++n) {
      (is_qk ? stage.q(n, 0) : stage.d_o(n, 0)) = -1;
      (is_qk ? stage.q(n, n + 1) : stage.d_o(n, n + 1)) = 1;
    }
    const Reaction reaction = bench.ask(stage);
    sums.refused = reaction.refused;
    if (!reaction.taken()) return sums;
    for (Index n = 0; n < count; ++n) sums.made.push_back(experiment.get(reaction, stage, n));
    begin += static_cast<std::size_t>(count);
  }
  return sums;
}

// f32 alone has operands that may be rounded further.
void ask_operands(Bench& bench, const Experiment& experiment, double scale, bool has_range,
                  const std::string& key, Answers& answers) {
  const std::vector<double> numbers = next_to_one();
  std::vector<Terms> all;
  for (const double number : numbers) all.push_back({number, -1, 0});
  const Sums sums = sums_of(bench, DType::f32, experiment, scale, all);
  const std::string inputs = fmt::format("{}; {}: (1 + d) - 1", sums.problem, experiment.what);
  if (!sums.refused.empty()) {
    return answers.push_back(untold(key + ".operands", sums.refused, inputs));
  }
  const Kept kept = kept_of(sums.made);
  Answer answer = {.key = key + ".operands", .words = kept.words, .inputs = inputs};
  if (kept.format) answer.value = kept.format;
  if (!has_range) {
    answer.value = nullptr;
    answer.words += "; a term of 2^-30 did not, as in f16, which may not be declared";
  }
  if (answer.told() && (experiment.product == "qk" || experiment.product == "dp")) {
    const Sums others = other_operands(bench, experiment, scale, numbers);
    const Kept other = others.refused.empty() ? kept_of(others.made) : Kept{kept.format};
    if (!other.format || std::string_view(other.format) != kept.format) {
      answer.value = nullptr;
      answer.words += fmt::format("; of the other operand {}", other.words);
    }
  }
  answers.push_back(std::move(answer));
}

}  // namespace

void ask_products(Bench& bench, DType dtype, Answers& answers) {
  for (const Experiment& experiment : kExperiments) {
    const std::string key = key_of(dtype, fmt::format("products.{}", experiment.product));
    const bool lacks = experiment.backward ? !bench.has_backward
                                           : experiment.product == "qk" && !bench.returns_lse();
    if (lacks) {
      for (const char* of : {".accumulator", ".truncates", ".operands"}) {
        answers.push_back(experiment.backward ? means_nothing(key + of, "it has no backward pass")
                                              : untold(key + of, bench.no_lse));
      }
      continue;
    }
    // Scores in units of log 2 are exact under the second, where the scale is in Q or K.
    double scale = 1;
    Accumulation seen = see_accumulator(bench, dtype, experiment, scale);
    if (seen.refused.empty() && (!seen.digits || !seen.cut)) {
      const double other = round_to(wide_of(dtype), std::log(2.0));
      const Accumulation again = see_accumulator(bench, dtype, experiment, other);
      if (again.digits && (again.cut || !seen.digits)) seen = again, scale = other;
    }
    tell_accumulator(dtype, experiment, seen, key, answers);
    if (dtype == DType::f32) {
      ask_operands(bench, experiment, scale, seen.has_range, key, answers);
    } else {
      answers.push_back({.key = key + ".operands",
                         .value = "exact",
                         .words = "no other may be declared",
                         .declared = Answer::Declared::any});
    }
  }
}

}  // namespace attest
