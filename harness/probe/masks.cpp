// Which keys a row sees, in what it is told of masks: the corner of a causal mask, the ends of a
// window, what lies behind a mask; and what rows without keys hold.
//
// Values are unit vectors, key j having the channel j: so O is P itself.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "harness/probe/questions.h"

namespace attest {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A problem of equal scores whose O tells what is seen.
struct Sight {
  Problem problem;
  Inputs inputs;
};
Sight sight(const Bench& bench, Index queries, Index keys) {
  const DType dtype = bench.telling_format();
  const Plain& plain = bench.plain(dtype);
  Sight sight = {.problem = {.dtype = dtype,
                             .query_heads = plain.query_heads,
                             .key_heads = plain.key_heads,
                             .query_len = queries,
                             .key_len = keys,
                             .head_dim = plain.head_dim,
                             .value_dim = plain.value_dim},
                 .inputs = {}};
  const Layout layout = Layout::parse(plain.order);
  for (const TensorName tensor : kLaidOut) {
    if (tensor != TensorName::bias) sight.problem.layouts[tensor] = layout;
  }
  sight.inputs = zero_inputs(sight.problem);
  for (Index j = 0; j < keys; ++j) sight.inputs.v.at(0, 0, j, j % plain.value_dim) = 1;
  return sight;
}

// The keys that a row sees, as "..xxx."; of what was not taken, why.
struct View {
  std::vector<std::string> rows;
  std::string refused;
};
View look(Bench& bench, const Sight& sight) {
  const Problem& p = sight.problem;
  if (p.value_dim < p.key_len) return {{}, "values have too few channels to tell keys apart"};
  const Reaction reaction = bench.ask(p, sight.inputs);
  View view = {.rows = {}, .refused = reaction.refused};
  for (Index i = 0; reaction.taken() && i < p.query_len; ++i) {
    std::string row;
    for (Index j = 0; j < p.key_len; ++j) {
      const double weight = reaction.at(TensorName::o, 0, 0, i, j);
      row += std::isnan(weight) ? '?' : weight > 0 ? 'x' : '.';
    }
    view.rows.push_back(row);
  }
  return view;
}

std::string rows_by_mask(const Problem& p, const Mask& mask, Index row) {
  std::string text;
  for (Index j = 0; j < p.key_len; ++j) {
    text +=
        mask.allows({.query = row, .key = j}, {.query = p.query_len, .key = p.key_len}) ? 'x' : '.';
  }
  return text;
}
bool shows(const View& view, const Problem& p, const Mask& mask) {
  for (Index i = 0; i < p.query_len; ++i) {
    if (view.rows[static_cast<std::size_t>(i)] != rows_by_mask(p, mask, i)) return false;
  }
  return true;
}

// ---- Causal masks ------------------------------------------------------------------------------

void ask_corner(Bench& bench, Anchor anchor, Answers& answers) {
  const char* const asked = anchor == Anchor::top_left ? "top_left" : "bottom_right";
  Answer answer = {.key = fmt::format("causal {}", asked), .is_key = false};
  Sight it = sight(bench, 8, 12);
  it.problem.mask = Mask::causal(anchor);
  const View view = look(bench, it);
  answer.inputs = to_string(it.problem);
  if (!view.refused.empty()) {
    answer.value = "refused";
    answer.words = view.refused;
  } else {
    for (const Anchor seen : {Anchor::top_left, Anchor::bottom_right}) {
      if (shows(view, it.problem, Mask::causal(seen))) {
        answer.value = seen == Anchor::top_left ? "top_left" : "bottom_right";
      }
    }
    const bool admitted = !exclusion(it.problem, bench.testee().description);
    if (admitted && answer.value != asked) answer.against = fmt::format("\"{}\"", asked);
    answer.words = fmt::format("of 12 keys the first of 8 queries sees {}, the last {}",
                               view.rows.front(), view.rows.back());
  }
  answers.push_back(std::move(answer));
}

// ---- Windows -----------------------------------------------------------------------------------

// What the middle one of 33 rows and keys sees of a window that is said by these numbers.
struct Reach {
  Index left = -1, right = -1;  // keys before and behind its own
  std::string refused = {};
};
constexpr Index kMiddle = 16;
Reach reach(Bench& bench, Index left, Index right) {
  Sight it = sight(bench, 2 * kMiddle + 1, 2 * kMiddle + 1);
  it.problem.mask = Mask::window(left, right, Anchor::top_left);
  const View view = look(bench, it);
  Reach reach = {.refused = view.refused};
  if (!view.refused.empty()) return reach;
  const std::string& row = view.rows[kMiddle];
  if (row[kMiddle] != 'x') return reach;
  for (reach.left = 0; reach.left < kMiddle;) {
    if (row[static_cast<std::size_t>(kMiddle - reach.left - 1)] != 'x') break;
    ++reach.left;
  }
  for (reach.right = 0; reach.right < kMiddle;) {
    if (row[static_cast<std::size_t>(kMiddle + reach.right + 1)] != 'x') break;
    ++reach.right;
  }
  return reach;
}

void ask_window(Bench& bench, Answers& answers) {
  const Reach seen = reach(bench, 6, 6);
  const std::string inputs = fmt::format(
      "33 rows and keys; the window 6, 6 shows {} keys before the row's own and {} "
      "behind it",
      seen.left, seen.right);
  Answer said = {.key = "window.said_by", .inputs = inputs},
         left = {.key = "window.left", .inputs = inputs},
         right = {.key = "window.right", .inputs = inputs}, unbounded = {.key = "window.unbounded"};
  if (!seen.refused.empty() || seen.left < 0) {
    for (Answer* each : {&said, &left, &right, &unbounded}) {
      each->words = seen.refused.empty() ? "no row sees its own key" : seen.refused;
      each->value = seen.refused.empty() ? nlohmann::json() : nlohmann::json("refused");
      each->declared = Answer::Declared::any;
      answers.push_back(std::move(*each));
    }
    return;
  }
  const bool width = seen.left == 3 && seen.right == 2;
  const auto end = [&](Index keys) -> nlohmann::json {
    if (width) return "inclusive";
    return keys == 6   ? nlohmann::json("inclusive")
           : keys == 5 ? nlohmann::json("exclusive")
                       : nullptr;
  };
  said.value = width ? "width" : "ends";
  left.value = end(seen.left);
  right.value = end(seen.right);
  said.words = left.words = right.words =
      fmt::format("a window of 6 and 6 reaches from -{} to {}", seen.left, seen.right);
  if (width) left.declared = right.declared = Answer::Declared::any;
  unbounded.value = "none";
  for (const Index number : {Index(-1), Index(0)}) {
    // What a window of a width says, it says on both sides.
    const Reach far = reach(bench, number, width ? number : 2);
    unbounded.inputs +=
        fmt::format("{}{} as the left end: {}", unbounded.inputs.empty() ? "" : "; ", number,
                    far.refused.empty() ? fmt::format("{} keys before", far.left) : "refused");
    if (far.refused.empty() && far.left == kMiddle) unbounded.value = number;
  }
  unbounded.words = "a number that shows all keys before a row; -1 and 0 were tried";
  WindowEnds& ends = bench.terms().dialect.window;
  ends = {.left_exclusive = left.value == "exclusive",
          .right_exclusive = right.value == "exclusive",
          .centred = width};
  if (unbounded.value.is_number()) ends.unbounded = unbounded.value;
  for (Answer* each : {&said, &left, &right, &unbounded}) answers.push_back(std::move(*each));
}

// ---- What is hidden ----------------------------------------------------------------------------

// NaN in K and V of keys that no row sees, by a mask or beyond a length.
void ask_hidden(Bench& bench, Answers& answers) {
  struct Hiding {
    const char* key;
    void (*hide)(Sight&);
    Index first;  // the first hidden key
  };
  const Hiding hidings[] = {
      {"NaN behind a mask", [](Sight& it) { it.problem.mask = Mask::causal(Anchor::top_left); }, 8},
      {"NaN behind a table",
       [](Sight& it) {
         DenseMask table = {{1, 1, 1, 12}, std::vector<std::uint8_t>(12, 1)};
         std::fill(table.allowed.begin() + 8, table.allowed.end(), std::uint8_t(0));
         it.problem.mask = Mask::dense(std::move(table));
       },
       8},
      {"NaN beyond a length", [](Sight& it) { it.problem.key_lens = std::vector<Index>{8}; }, 8},
      {"NaN behind a bias of -inf",
       [](Sight& it) {
         it.problem.bias_shape = Shape{1, 1, 1, 12};
         it.inputs.bias = zeros(*it.problem.bias_shape);
         for (Index j = 8; j < 12; ++j)
           it.inputs.bias.at(0, 0, 0, j) = -std::numeric_limits<double>::infinity();
       },
       8}};
  for (const Hiding& hiding : hidings) {
    Answer answer = {.key = hiding.key, .is_key = false};
    Sight it = sight(bench, 8, 12);
    hiding.hide(it);
    const View plain = look(bench, it);
    for (Index j = hiding.first; j < 12; ++j) {
      for (Index c = 0; c < it.problem.head_dim; ++c) it.inputs.k.at(0, 0, j, c) = kNaN;
      for (Index c = 0; c < it.problem.value_dim; ++c) it.inputs.v.at(0, 0, j, c) = kNaN;
    }
    const View view = look(bench, it);
    answer.inputs = fmt::format("{}; NaN in K and V of keys 8 to 11", to_string(it.problem));
    if (!view.refused.empty()) {
      answer.value = "refused";
      answer.words = view.refused;
    } else {
      answer.value = view.rows == plain.rows ? "stays hidden" : "leaks";
      answer.words = fmt::format("the last row sees {}", view.rows.back());
    }
    answers.push_back(std::move(answer));
  }
}

// ---- Rows without keys -------------------------------------------------------------------------

nlohmann::json number_of(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

// By a causal mask from the bottom right, or else by a length of 0.
void ask_empty_rows(Bench& bench, Answers& answers) {
  const bool by_corner = told(answers, "causal bottom_right") == "bottom_right";
  Sight it = sight(bench, 12, 4);
  for (double& x : it.inputs.v.data) x += 1;  // whose mean is not 0
  if (by_corner) {
    it.problem.mask = Mask::causal(Anchor::bottom_right);
  } else {
    it.problem.key_lens = std::vector<Index>{0};
  }
  const Reaction reaction = bench.ask(it.problem, it.inputs);
  Answer o = {.key = "empty_rows.o"}, lse = {.key = "empty_rows.lse"};
  o.inputs = lse.inputs = to_string(it.problem) + "; row 0 sees no key";
  if (!reaction.taken()) {
    o.words = lse.words = "it takes no row without keys: " + reaction.refused;
    o.is_key = lse.is_key = false;
  } else {
    const double value = reaction.at(TensorName::o, 0, 0, 0, 0);
    o.value = number_of(value);
    o.words = std::abs(value - 1.25) < 0.01 ? "the mean of V"
                                            : fmt::format("O is {} there", o.value.dump());
    const LseForm& form = bench.terms().dialect.lse;
    const double log = reaction.at(TensorName::lse, 0, 0, 0, 0);
    if (!bench.returns_lse) {
      lse.words = "it returns no LSE";
    } else if (form.apart) {
      // As it was returned, maximum and sum by themselves.
      const auto& said = reaction.trial.statistics;
      const auto first = [](const Returned& t) { return decode(t.dtype, t.bits[0]); };
      lse.value = number_of(log);
      lse.words = fmt::format("m = {:g}, l = {:g}: LSE is {}", first(said.front()),
                              first(said.back()), lse.value.dump());
      lse.declared = Answer::Declared::any;
    } else {
      const double raw = form.base_2 ? decode(reaction.trial.statistics.front().dtype,
                                              reaction.trial.statistics.front().bits[0])
                                     : log;
      lse.value = number_of(raw);
      lse.words = fmt::format("LSE is {} there", lse.value.dump());
    }
  }
  answers.push_back(std::move(o));
  answers.push_back(std::move(lse));
}

// Rows beyond a query length.
void ask_padding(Bench& bench, Answers& answers) {
  Answer answer = {.key = "leaves_padding_unwritten"};
  Sight it = sight(bench, 12, 12);
  it.problem.query_lens = std::vector<Index>{8};
  const Reaction reaction = bench.ask(it.problem, it.inputs);
  answer.inputs = to_string(it.problem) + "; rows 8 to 11 lie beyond the length";
  if (!reaction.taken()) {
    answer.value = false;
    answer.words = "it takes no query lengths";
    answer.declared = Answer::Declared::any;
  } else {
    const Returned& o = *reaction.find(TensorName::o);
    const auto row = static_cast<std::size_t>(11 * it.problem.value_dim);
    answer.value = o.bits[row] == o.poison;
    answer.words = answer.value ? "they are as they were" : "they are written";
  }
  answers.push_back(std::move(answer));
}

}  // namespace

void ask_masks(Bench& bench, Answers& answers) {
  ask_corner(bench, Anchor::top_left, answers);
  ask_corner(bench, Anchor::bottom_right, answers);
  ask_window(bench, answers);
  ask_hidden(bench, answers);
  ask_empty_rows(bench, answers);
  ask_padding(bench, answers);
}

}  // namespace attest
