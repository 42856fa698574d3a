// In which steps a row takes its keys: parts that are merged, an output that is normalised in each
// step, and, where P is rounded, the steps of an online softmax.
//
// Sums of whole numbers are exact in any order, and so is their quotient by the eight keys that
// have a weight: of values that sum to 0 nothing is left. But if seven of them are divided by 7
// before the eighth comes, something is; so where that one is to be for it tells where a step ends.
// (Had they been 3, or 5 or 6, dividing by their number and multiplying with it would be exact.)
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

#include "harness/probe/questions.h"

namespace attest {
namespace {

// The longest row that is tried, and what is longer than any.
Index most_keys(const Bench& bench, DType dtype) {
  return bench.plain(dtype).is_square() ? 1024 : 4096;
}
constexpr Index kNever = Index(1) << 40;

// What values are multiplied with, so that what is left of them is not subnormal in f16.
constexpr double kUp = 128;

// A row of that many keys all of which are far, but those that an experiment brings near.
Stage far_keys(Bench& bench, DType dtype, Index rows, Index keys) {
  Stage stage = bench.stage(dtype, rows, keys, keys);
  const Index last = stage.problem.head_dim - 1;
  for (Index key = 0; key < stage.problem.key_len; ++key) stage.k(key, last) = kFar;
  return stage;
}
void bring_near(Stage& stage, Index key) { stage.k(key, stage.problem.head_dim - 1) = 0; }

// The first of the positions for which `holds`, where all behind it do; none if none does.
std::optional<Index> first_of(Index begin, Index end, const std::function<bool(Index)>& holds) {
  Index last = begin, step = 1;
  if (holds(begin)) return begin;
  while (last + step < end && !holds(last + step)) last += step, step *= 2;
  Index high = std::min(last + step, end);
  if (high == end && !holds(end - 1)) return std::nullopt;
  high = std::min(high, end - 1);
  while (high - last > 1) {
    const Index middle = last + (high - last) / 2;
    (holds(middle) ? high : last) = middle;
  }
  return high;
}

// ---- Parts, and outputs that are normalised in every step --------------------------------------

constexpr Index kTogether = 7;

struct Ends {
  std::string refused = {};
  std::optional<Index> end = {};  // of the first step; none: nothing is divided before all is there
  std::string problem = {};
};

Ends ends_of(Bench& bench, DType dtype, Index keys, int threads) {
  Ends ends;
  ends.end = first_of(kTogether, keys, [&](Index last) {
    Stage stage = far_keys(bench, dtype, 1, keys);
    for (Index key = 0; key < kTogether; ++key) bring_near(stage, key);
    bring_near(stage, last);
    for (Index c = 0; c < stage.problem.value_dim; ++c) {
      double sum = 0;
      for (Index key = 0; key < kTogether; ++key) {
        const auto value = static_cast<double>(1 + (c * (key + 2) + key * key) % 31);
        stage.v(key, c) = kUp * value;
        sum += value;
      }
      stage.v(last, c) = -kUp * sum;
    }
    const Reaction reaction = bench.ask(stage, threads);
    ends.problem = to_string(stage.problem);
    if (!reaction.taken()) ends.refused = reaction.refused;
    for (Index c = 0; reaction.taken() && c < stage.problem.value_dim; ++c) {
      if (Bench::of_row(reaction, TensorName::o, stage, 0, c) != 0) return true;
    }
    return false;
  });
  return ends;
}

// How many parts, and how many keys are in a step that divides; what of both explains where the
// first step ends, at each length.
struct Parts {
  Index splits = 1;
  Index step = kNever;  // after which O is divided

  bool divides() const { return step < kNever; }
  bool explains(Index keys, std::optional<Index> end) const {
    const Index first = std::min(step, keys / splits);
    return first >= keys ? !end : end == std::max(first, kTogether);
  }
};

struct SeenParts {
  std::optional<Parts> parts = {};
  bool hides_splits = false;  // other numbers of parts explain as much
  std::string words = {}, inputs = {};
};

SeenParts see_parts(Bench& bench, DType dtype, int threads) {
  const Index most = most_keys(bench, dtype);
  std::vector<Index> lengths = {16, 64, most / 4, most};
  for (Index& keys : lengths) keys = bench.plain(dtype).fitted(1, keys).key;
  std::vector<Ends> ends;
  SeenParts seen;
  std::string where;
  for (const Index keys : lengths) {
    ends.push_back(ends_of(bench, dtype, keys, threads));
    if (!ends.back().refused.empty()) {
      seen.words = ends.back().refused;
      seen.inputs = ends.back().problem;
      return seen;
    }
    const auto& end = ends.back().end;
    where += fmt::format("{}{} of {}", where.empty() ? "" : ", ",
                         end ? fmt::format("from key {} on", *end) : "nowhere", keys);
  }
  seen.inputs = fmt::format(
      "{} and fewer keys, {} threads; seven numbers and minus their sum leave something where the "
      "last is {}",
      ends.back().problem, threads, where);
  // Short rows may have fewer parts.
  for (const std::size_t shortest : {0, 2}) {
    int explained = 0;
    for (Index splits = 1; splits <= 64; ++splits) {
      for (const Index step :
           {kNever, ends[2].end.value_or(kNever), ends[3].end.value_or(kNever)}) {
        const Parts parts = {splits, step};
        bool all = true;
        for (std::size_t n = shortest; n < ends.size(); ++n) {
          all &= parts.explains(lengths[n], ends[n].end);
        }
        if (!all) continue;
        if (!seen.parts) seen.parts = parts;
        explained += splits != seen.parts->splits;
      }
    }
    if (!seen.parts) continue;
    seen.hides_splits = shortest == 0 && explained > 0;
    const std::string steps =
        seen.parts->divides() ? fmt::format("O is divided after steps of {} keys", seen.parts->step)
                              : "O is divided at last";
    seen.words = fmt::format(
        "{}{}", steps,
        seen.parts->splits > 1 ? fmt::format(", in each of {} parts", seen.parts->splits) : "");
    return seen;
  }
  seen.words = "where something is left follows no rule that is known";
  return seen;
}

void ask_parts(Bench& bench, DType dtype, Answers& answers, Parts& found) {
  const std::string rescales = key_of(dtype, "rescales_output"), many = key_of(dtype, "kv_splits");
  if (told(answers, key_of(dtype, "exp_zero")) == "inexact") {
    for (const auto& key : {rescales, many}) {
      answers.push_back(untold(key, "exp(0) is not 1: no sum is exact"));
    }
    return;
  }
  const SeenParts seen = see_parts(bench, dtype, bench.threads());
  const SeenParts more = see_parts(bench, dtype, 4);
  if (!seen.parts) {
    for (const auto& key : {rescales, many}) {
      answers.push_back(untold(key, seen.words, seen.inputs));
    }
    return;
  }
  const bool in_parts = more.parts && (more.parts->divides() || more.parts->splits > 1);
  if ((seen.parts->divides() || seen.parts->splits > 1 || in_parts) &&
      !sums_are_exact(bench, dtype, answers)) {
    for (const auto& key : {rescales, many}) {
      answers.push_back(
          untold(key, "something is left, but exp(0) may not be 1, and no sum exact", seen.inputs));
    }
    return;
  }
  found = *seen.parts;
  answers.push_back(
      {.key = rescales, .value = found.divides(), .words = seen.words, .inputs = seen.inputs});
  if (seen.hides_splits || !more.parts) {
    answers.push_back(
        untold(many, more.parts ? "steps are too short to tell parts from them" : more.words,
               more.inputs));
    return;
  }
  const Index most = std::max(found.splits, more.parts->splits);
  answers.push_back({.key = many,
                     .value = most,
                     .words = fmt::format("{} with {} threads, {} with 4", found.splits,
                                          bench.threads(), more.parts->splits),
                     .inputs = most > found.splits ? more.inputs : seen.inputs,
                     .declared = Answer::Declared::at_least});
}

// ---- The steps of an online softmax ------------------------------------------------------------

// Of two keys with the scores -t and 0: whether the weight of the first was rounded beside the
// second, or was 1 when it came, and was scaled down, unrounded, when the second did.
enum class Met { together, apart, unclear };

class OnlineSteps {
 public:
  OnlineSteps(Bench& bench, DType dtype, const Answers& answers) : bench_(bench), dtype_(dtype) {
    const nlohmann::json units = told(answers, key_of(dtype, "exp_ulp"));
    off_ = (1.25 * (units.is_number() ? units.get<double>() : 0) + 8) * 0x1p-23;
    cuts_ = told(answers, key_of(dtype, "p_rounding")) == "truncated";
  }

  Met meet(Index low, Index high, Index keys) {
    Stage stage = far_keys(bench_, dtype_, rows(), keys);
    bring_near(stage, low);
    bring_near(stage, high);
    stage.k(low, 0) = -1;
    std::vector<double> left;
    double t = 6;  // beyond what any maximum may lag behind
    for (Index n = 0; n < rows(); t += 1.0 / 32) {
      const double e = std::exp(-t), w = rounded(e);
      if (round_to(dtype_, t) != t || rounded(e * (1 - off_)) != rounded(e * (1 + off_)) ||
          std::abs(w - e) < 8 * off_ * e) {
        if (t > 64) return Met::unclear;
        continue;
      }
      stage.q(n, 0) = t;
      stage.v(low, n) = kUp * 8;
      stage.v(high, n) = -kUp * 8 * w;
      left.push_back(kUp * 8 * (e - w) / (1 + e));
      ++n;
    }
    const Reaction reaction = bench_.ask(stage);
    problem = to_string(stage.problem);
    if (!reaction.taken()) return Met::unclear;
    Index zeros = 0, whole = 0;
    for (Index n = 0; n < rows(); ++n) {
      const double o = Bench::of_row(reaction, TensorName::o, stage, n, n);
      const double expected = left[static_cast<std::size_t>(n)];
      zeros += o == 0;
      whole += std::abs(o - expected) <= 0.25 * std::abs(expected);
    }
    if (zeros == rows()) return Met::together;
    return whole == rows() ? Met::apart : Met::unclear;
  }

  // The largest t, in units of log 2, by which the maximum was exceeded and stayed; 0 if none was.
  // `high` is the first key of the step behind that of key 0. None if it does not take that.
  std::optional<double> lag(Index high, Index keys) {
    Stage stage = far_keys(bench_, dtype_, rows(), keys);
    bring_near(stage, 0);
    bring_near(stage, high);
    stage.k(0, 0) = -1;
    double most = 0;
    for (Index n = 0; n < rows(); ++n) {
      const double t = 0.4375 + 0.34375 * static_cast<double>(n);
      stage.q(n, 0) = t;
      stage.v(0, n) = rounded(std::exp(t));
      stage.v(high, n) = -1;
    }
    const Reaction reaction = bench_.ask(stage);
    if (!reaction.taken()) return std::nullopt;
    for (Index n = 0; n < rows(); ++n) {
      const bool stays = Bench::of_row(reaction, TensorName::o, stage, n, n) == 0;
      const double t = stage.q(n, 0), up = std::exp(t);
      const bool exact = std::abs(rounded(up) - up) < 8 * off_ * up ||
                         rounded(up * (1 - off_)) != rounded(up * (1 + off_));
      if (stays && !exact) most = t / std::log(2.0);
    }
    return most;
  }

  std::string problem = {};

 private:
  double rounded(double value) const {
    const double nearest = round_to(dtype_, value);
    return cuts_ && nearest > value ? decode(dtype_, encode(dtype_, nearest) - 1) : nearest;
  }

  // Each has a channel of its own.
  Index rows() const { return std::min<Index>(16, bench_.plain(dtype_).value_dim); }

  Bench& bench_;
  DType dtype_;
  double off_;
  bool cuts_;
};

Answer order_of(OnlineSteps& steps, DType dtype, Index block, Index part, Index most) {
  Answer answer = {.key = key_of(dtype, "block_order")};
  const Index count = std::min<Index>(8, part / block);
  if (count < 4) {
    answer.words = fmt::format("there are fewer than 4 steps of {} keys", block);
    return answer;
  }
  Index up = 0, down = 0;
  const Index keys = std::min(most, count * block * most / part);
  for (Index n = 0; n + 1 < count; ++n) {
    const Met met = steps.meet(n * block, (n + 1) * block, keys);
    up += met == Met::apart;
    down += met == Met::together;
  }
  answer.inputs = fmt::format("{}; neighbours among {} steps: {} came upwards, {} downwards",
                              steps.problem, count, up, down);
  if (up + down == count - 1) {
    answer.value = up == 0 || down == 0 ? "monotone" : "any";
    answer.words = fmt::format("of neighbouring steps, {} of {} came upwards", up, count - 1);
  } else {
    answer.words = "which of two steps came first is not clear";
  }
  return answer;
}

void ask_steps(Bench& bench, DType dtype, Index splits, Answers& answers) {
  const std::string block = key_of(dtype, "key_block"), lag = key_of(dtype, "max_lag"),
                    order = key_of(dtype, "block_order");
  OnlineSteps steps(bench, dtype, answers);
  const Index most = most_keys(bench, dtype), part = most / splits;
  bool clear = steps.meet(0, 1, most) != Met::unclear;
  bool descends = false;
  const auto end = [&] {
    const auto apart = [&](bool down) {
      return first_of(1, part, [&](Index key) {
        const Met met = steps.meet(down ? key : 0, down ? 0 : key, most);
        clear &= met != Met::unclear;
        return met == Met::apart;
      });
    };
    const auto upwards = apart(false);
    if (upwards) return upwards;
    descends = true;
    return apart(true);
  }();
  const std::string inputs =
      fmt::format("{}; scores -t and 0 of two keys, t from 6 on", steps.problem);
  // A maximum that is a whole number shifts what is rounded, and changes no digit.
  clear &= end || told(answers, key_of(dtype, "max_rounding")) == "exact";
  if (!clear) {
    for (const auto& key : {block, lag, order}) {
      answers.push_back(untold(key, "the rounding of P does not tell", inputs));
    }
    return;
  }
  if (!end) {
    answers.push_back({.key = block,
                       .value = part,
                       .words = fmt::format("all {} keys have one maximum", part),
                       .inputs = inputs,
                       .declared = Answer::Declared::any});
    for (const auto& [key, value] :
         {std::pair<std::string, nlohmann::json>{lag, 0}, {order, "monotone"}}) {
      answers.push_back({.key = key,
                         .value = value,
                         .words = "there is one step",
                         .inputs = inputs,
                         .declared = Answer::Declared::any});
    }
    return;
  }
  answers.push_back({.key = block,
                     .value = *end,
                     .words = fmt::format("key {} no longer has the maximum of key 0", *end),
                     .inputs = inputs,
                     .declared = Answer::Declared::at_most});
  const auto lagging = descends ? std::nullopt : steps.lag(*end, most);
  if (!lagging) {
    answers.push_back(untold(lag, "the rounding of P does not tell", inputs));
  } else {
    const double seen = *lagging;
    answers.push_back(
        {.key = lag,
         .value = std::floor(100 * seen) / 100,
         .words = seen > 0 ? fmt::format("a maximum that is exceeded by {:.3g} in "
                                         "log2 stays",
                                         seen)
                           : "a maximum that is exceeded by 0.63 in log2 does not stay",
         .inputs = fmt::format("{}; scores -t and 0 of key 0 and of the next step", steps.problem),
         .declared = Answer::Declared::at_least});
  }
  answers.push_back(order_of(steps, dtype, *end, part, most));
}

}  // namespace

void ask_blocks(Bench& bench, DType dtype, Answers& answers) {
  Parts parts;
  ask_parts(bench, dtype, answers, parts);
  const bool rounds = told(answers, key_of(dtype, "p")) == nlohmann::json(name(dtype)) &&
                      dtype != wide_of(dtype) &&
                      told(answers, key_of(dtype, "p_normalised")) == "last";
  // By whole powers of two a whole maximum shifts what is rounded, and changes no digit.
  const bool changes = told(answers, key_of(dtype, "max_rounding")) != "integer";
  if (rounds && changes) return ask_steps(bench, dtype, parts.splits, answers);
  const std::string why =
      "what P is rounded to is the same in every step: none tells itself from another";
  // Of fewer keys there may be several steps before the eighth has to be apart.
  if (parts.divides() && parts.step > 2 * kTogether) {
    answers.push_back({.key = key_of(dtype, "key_block"),
                       .value = parts.step,
                       .words = fmt::format("O is divided after steps of {} keys", parts.step),
                       .declared = Answer::Declared::at_most});
  } else {
    answers.push_back(untold(key_of(dtype, "key_block"), why));
  }
  for (const char* key : {"max_lag", "block_order"}) {
    answers.push_back(untold(key_of(dtype, key), why));
  }
}

}  // namespace attest
