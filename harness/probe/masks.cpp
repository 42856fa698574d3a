// Which keys a row sees, in what it is told of masks: the corner of a causal mask, the ends of a
// window, what lies behind a mask; and what rows without keys hold.
//
// Values are unit vectors, each key having a channel of its own: so O is P itself.
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
// With at least so many rows and keys, as lengths are taken.
Sight sight(const Bench& bench, Index queries, Index keys, Index batch = 1) {
  const DType dtype = bench.telling_format();
  const Plain& plain = bench.plain(dtype);
  const Lengths lengths = plain.fitted(queries, keys);
  Sight sight = {.problem = {.dtype = dtype,
                             .batch = batch,
                             .query_heads = plain.query_heads,
                             .key_heads = plain.key_heads,
                             .query_len = lengths.query,
                             .key_len = lengths.key,
                             .head_dim = plain.head_dim,
                             .value_dim = plain.value_dim},
                 .inputs = {}};
  const Layout layout = Layout::parse(plain.order);
  for (const TensorName tensor : kLaidOut) {
    if (tensor != TensorName::bias) sight.problem.layouts[tensor] = layout;
  }
  sight.inputs = zero_inputs(sight.problem);
  return sight;
}

// The keys that a row sees, as "..xxx.", those of a batch element behind those of the one before;
// of what was not taken, why.
struct View {
  std::vector<std::string> rows;
  Reaction reaction;

  bool taken() const { return reaction.taken(); }
};

// As many keys at a time as there are channels; of those from `hidden` on, K and V are NaN.
View look(Bench& bench, Sight it, Index hidden = kUnbounded) {
  const Problem& p = it.problem;
  View view;
  for (Index b = 0; b < p.batch; ++b) {
    for (Index j = hidden; j < p.key_len; ++j) {
      for (Index c = 0; c < p.head_dim; ++c) it.inputs.k.at(b, 0, j, c) = kNaN;
    }
  }
  view.rows.resize(static_cast<std::size_t>(p.batch * p.query_len));
  for (Index begin = 0; begin < p.key_len; begin += p.value_dim) {
    const Index end = std::min(begin + p.value_dim, p.key_len);
    it.inputs.v = zeros(p.v_shape());
    for (Index b = 0; b < p.batch; ++b) {
      for (Index j = begin; j < end; ++j) it.inputs.v.at(b, 0, j, j - begin) = 1;
      for (Index j = hidden; j < p.key_len; ++j) {
        for (Index c = 0; c < p.value_dim; ++c) it.inputs.v.at(b, 0, j, c) = kNaN;
      }
    }
    view.reaction = bench.ask(p, it.inputs);
    if (!view.taken()) return view;
    for (std::size_t row = 0; row < view.rows.size(); ++row) {
      const auto n = static_cast<Index>(row);
      for (Index c = 0; c < end - begin; ++c) {
        const double weight =
            view.reaction.at(TensorName::o, n / p.query_len, 0, n % p.query_len, c);
        view.rows[row] += std::isnan(weight) ? '?' : weight > 0 ? 'x' : '.';
      }
    }
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
  const Problem& p = it.problem;
  const View view = look(bench, it);
  answer.inputs = to_string(p);
  if (!view.taken()) {
    answer = untaken(std::move(answer), view.reaction);
  } else if (p.query_len == p.key_len) {
    answer.words = "it takes as many keys as queries: both corners are one";
  } else {
    for (const Anchor seen : {Anchor::top_left, Anchor::bottom_right}) {
      if (shows(view, p, Mask::causal(seen))) {
        answer.value = seen == Anchor::top_left ? "top_left" : "bottom_right";
      }
    }
    const bool admitted = !exclusion(p, bench.testee().description);
    if (admitted && answer.value != asked) answer.against = fmt::format("\"{}\"", asked);
    answer.words = fmt::format("of {} keys the first of {} queries sees {}, the last {}", p.key_len,
                               p.query_len, view.rows.front(), view.rows.back());
  }
  answers.push_back(std::move(answer));
}

// ---- Windows -----------------------------------------------------------------------------------

// What the row 16 of 33 rows and keys, or more, sees of a window that is said by these numbers.
struct Reach {
  Index left = 0, right = 0;  // keys before and behind its own
  bool sees_own = false;
  Reaction reaction = {};

  std::string words() const {
    return !reaction.taken() ? "it is not taken"
           : sees_own        ? fmt::format("it reaches from -{} to {}", left, right)
                             : "no row sees its own key";
  }
};
constexpr Index kMiddle = 16;
Reach reach(Bench& bench, Index left, Index right) {
  Sight it = sight(bench, 2 * kMiddle + 1, 2 * kMiddle + 1);
  // Of as many keys as rows both corners are one.
  it.problem.mask = Mask::window(left, right, Anchor::top_left);
  View view = look(bench, it);
  if (!view.taken() && !view.reaction.broke && it.problem.query_len == it.problem.key_len) {
    it.problem.mask.anchor = Anchor::bottom_right;
    view = look(bench, it);
  }
  Reach reach = {.reaction = view.reaction};
  if (!view.taken()) return reach;
  const std::string& row = view.rows[kMiddle];
  reach.sees_own = row[kMiddle] == 'x';
  const auto sees = [&](Index key) { return row[static_cast<std::size_t>(key)] == 'x'; };
  while (reach.left < kMiddle && sees(kMiddle - reach.left - 1)) ++reach.left;
  while (reach.right < kMiddle && sees(kMiddle + reach.right + 1)) ++reach.right;
  return reach;
}

void ask_window(Bench& bench, Answers& answers) {
  const Reach seen = reach(bench, 6, 6);
  const std::string inputs = fmt::format(
      "33 rows and keys, or as many more as it needs; of the window 6, 6 for row 16: {}",
      seen.words());
  Answer said = {.key = "window.said_by", .inputs = inputs},
         left = {.key = "window.left", .inputs = inputs},
         right = {.key = "window.right", .inputs = inputs}, unbounded = {.key = "window.unbounded"};
  if (!seen.reaction.taken() || !seen.sees_own) {
    for (Answer* each : {&said, &left, &right, &unbounded}) {
      each->declared = Answer::Declared::any;
      if (!seen.reaction.taken()) *each = untaken(std::move(*each), seen.reaction);
      if (seen.reaction.taken()) each->words = seen.words();
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
  left.value = end(seen.left);
  right.value = end(seen.right);
  // Whoever shows all keys, or half of them, may not have looked at what is said.
  if (!left.value.is_null() && !right.value.is_null()) said.value = width ? "width" : "ends";
  said.words = left.words = right.words = fmt::format("a window of 6 and 6: {}", seen.words());
  if (width) left.declared = right.declared = Answer::Declared::any;
  const bool looked = left.told() && right.told();
  if (looked) unbounded.value = "none";
  std::string broke;
  for (const Index number : {Index(-1), Index(0)}) {
    if (!looked) break;
    // What a window of a width says, it says on both sides.
    const Reach far = reach(bench, number, width ? number : 2);
    unbounded.inputs += fmt::format("{}{} as the left end: {}",
                                    unbounded.inputs.empty() ? "" : "; ", number, far.words());
    if (far.reaction.taken() && far.sees_own && far.left == kMiddle) unbounded.value = number;
    if (far.reaction.broke) broke = far.reaction.refused;
  }
  unbounded.words = looked ? "a number that shows all keys before a row; -1 and 0 were tried"
                           : "what a window says is not looked at, or not as numbers of keys";
  if (unbounded.value == "none" && !broke.empty()) {
    unbounded.value = nullptr;
    unbounded.words = broke;
  }
  WindowEnds& ends = bench.terms().dialect.window;
  ends = {.left_exclusive = left.value == "exclusive",
          .right_exclusive = right.value == "exclusive",
          .centred = width};
  if (unbounded.value.is_number()) ends.unbounded = unbounded.value;
  for (Answer* each : {&said, &left, &right, &unbounded}) answers.push_back(std::move(*each));
}

// ---- What is hidden ----------------------------------------------------------------------------

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Index kHidden = 4;  // keys, the last ones

// NaN in K and V of keys that rows do not see, by a mask or beyond a length. Whatever it was asked
// for, the rows that see none of them without NaN are those that are looked at.
void ask_hidden(Bench& bench, Answers& answers) {
  struct Hiding {
    const char* key;
    void (*hide)(Sight&, Index first);
  };
  const Hiding hidings[] = {
      {"NaN behind a mask",
       [](Sight& it, Index) { it.problem.mask = Mask::causal(Anchor::top_left); }},
      {"NaN behind a table",
       [](Sight& it, Index first) {
         const Index keys = it.problem.key_len;
         DenseMask table = {{1, 1, 1, keys},
                            std::vector<std::uint8_t>(static_cast<std::size_t>(keys), 1)};
         std::fill(table.allowed.begin() + first, table.allowed.end(), std::uint8_t(0));
         it.problem.mask = Mask::dense(std::move(table));
       }},
      {"NaN beyond a length",
       [](Sight& it, Index first) { it.problem.key_lens = std::vector<Index>{first}; }},
      {"NaN behind a bias of -inf", [](Sight& it, Index first) {
         it.problem.bias_shape = Shape{1, 1, 1, it.problem.key_len};
         it.inputs.bias = zeros(*it.problem.bias_shape);
         for (Index j = first; j < it.problem.key_len; ++j) {
           it.inputs.bias.at(0, 0, 0, j) = -kInfinity;
         }
       }}};
  for (const Hiding& hiding : hidings) {
    Answer answer = {.key = hiding.key, .is_key = false};
    Sight it = sight(bench, 8, 12);
    const Index first = it.problem.key_len - kHidden;
    hiding.hide(it, first);
    View plain = look(bench, it);
    const bool is_causal = it.problem.mask.kind == Mask::Kind::band;
    if (is_causal && !plain.taken() && !plain.reaction.broke) {
      it.problem.mask.anchor = Anchor::bottom_right;
      plain = look(bench, it);
    }
    const View view = plain.taken() ? look(bench, it, first) : plain;
    answer.inputs =
        fmt::format("{}; NaN in K and V of the last {} keys", to_string(it.problem), kHidden);
    Index rows = 0, leaking = 0;
    for (std::size_t row = 0; view.taken() && row < plain.rows.size(); ++row) {
      const bool hides =
          plain.rows[row].find('x', static_cast<std::size_t>(first)) == std::string::npos;
      rows += hides;
      leaking += hides && view.rows[row] != plain.rows[row];
    }
    if (!view.taken()) {
      answer = untaken(std::move(answer), view.reaction);
    } else if (rows == 0) {
      answer.words = "it hides them from no row: the first sees " + plain.rows.front();
    } else {
      answer.value = leaking == 0 ? "stays hidden" : "leaks";
      answer.words = fmt::format("of {} rows that do not see them, {} come to something else", rows,
                                 leaking == 0 ? "none" : std::to_string(leaking));
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

// A row that sees no key, among others that see some.
struct Emptied {
  Sight sight;
  Index row;  // of the first batch element
};

// In all ways that there are to have one. Of lengths a mask has nothing to say.
std::vector<Emptied> emptied(const Bench& bench) {
  std::vector<Emptied> all;
  const Sight tall = sight(bench, 12, 4), square = sight(bench, 4, 4);
  const Index queries = square.problem.query_len, keys = square.problem.key_len;
  if (tall.problem.query_len > tall.problem.key_len + 2) {
    const Index last = tall.problem.query_len - 1;
    const std::pair<Mask, Index> masks[] = {{Mask::causal(Anchor::bottom_right), 0},
                                            {Mask::window(2, 2, Anchor::bottom_right), 0},
                                            {Mask::window(2, 2, Anchor::top_left), last}};
    for (const auto& [mask, row] : masks) {
      all.push_back({tall, row});
      all.back().sight.problem.mask = mask;
    }
  }
  // Nothing for the first row, all but the first key for the second.
  all.push_back({square, 0});
  DenseMask table = {{1, 1, queries, keys},
                     std::vector<std::uint8_t>(static_cast<std::size_t>(queries * keys), 1)};
  std::fill(table.allowed.begin(), table.allowed.begin() + keys + 1, std::uint8_t(0));
  all.back().sight.problem.mask = Mask::dense(std::move(table));
  all.push_back({sight(bench, 4, 4, 2), 0});
  all.back().sight.problem.key_lens = std::vector<Index>{0, 2};
  all.push_back({square, 0});
  Sight& biased = all.back().sight;
  biased.problem.bias_shape = Shape{1, 1, queries, keys};
  biased.inputs.bias = zeros(*biased.problem.bias_shape);
  std::fill_n(biased.inputs.bias.data.begin(), keys + 1, -kInfinity);
  return all;
}

// Whether all rows but the empty ones see what they should: it has looked at what empties them.
bool keeps_to(const View& view, const Sight& it) {
  const Problem& p = it.problem;
  for (std::size_t row = 0; row < view.rows.size(); ++row) {
    const auto n = static_cast<Index>(row);
    std::string expected;
    for (Index j = 0; j < p.key_len; ++j) {
      const Position at = {.batch = n / p.query_len, .query = n % p.query_len, .key = j};
      const bool hidden = has_bias(p) && it.inputs.bias.at(0, 0, at.query, j) == -kInfinity;
      expected += visible(p, at) && !hidden ? 'x' : '.';
    }
    const bool is_empty = expected.find('x') == std::string::npos;
    if (!is_empty && view.rows[row] != expected) return false;
  }
  return true;
}

void tell_empty_o(Bench& bench, const Emptied& it, const Reaction& reaction, Answer& o) {
  const double value = reaction.at(TensorName::o, 0, 0, it.row, 0);
  const double mean = 1 + 1 / static_cast<double>(it.sight.problem.key_len);
  const bool is_mean = std::abs(value - mean) < 0.02 * (mean - 1);
  o.value = is_mean ? "the mean of V" : number_of(value);
  const bool own_number = !is_mean && !std::isnan(value) && value != 0;
  if (own_number) bench.terms().dialect.empty_o = {.differs = true, .value = value};
  o.words = is_mean ? "O is the mean of V there" : fmt::format("O is {} there", o.value.dump());
}

void tell_empty_lse(Bench& bench, const Emptied& it, const Reaction& reaction, Answer& lse) {
  const LseForm& form = bench.terms().dialect.lse;
  if (!bench.returns_lse()) {
    lse.words = bench.no_lse;
  } else if (!reaction.is_written(TensorName::lse, 0, 0, it.row, 0)) {
    lse.words = "LSE is not written there";
  } else {
    const double log = reaction.at(TensorName::lse, 0, 0, it.row, 0);
    const auto raw = [&](const Returned& t) {
      return decode(t.dtype,
                    t.bits[static_cast<std::size_t>(dense_index(t.shape, 0, 0, it.row, 0))]);
    };
    // As it was returned, maximum and sum by themselves.
    const auto& said = reaction.trial.statistics;
    lse.value = number_of(form.base_2 && !form.apart ? raw(said.front()) : log);
    lse.words = form.apart ? fmt::format("m = {:g}, l = {:g}: LSE is {}", raw(said.front()),
                                         raw(said.back()), lse.value.dump())
                           : fmt::format("LSE is {} there", lse.value.dump());
    if (form.apart) lse.declared = Answer::Declared::any;
  }
}

// By the first way that it takes and keeps to.
void ask_empty_rows(Bench& bench, Answers& answers) {
  Answer o = {.key = "empty_rows.o"}, lse = {.key = "empty_rows.lse"};
  std::string refused, broke;
  bool told = false;
  for (Emptied& it : emptied(bench)) {
    const View view = look(bench, it.sight);
    it.sight.inputs.v = zeros(it.sight.problem.v_shape());
    for (double& x : it.sight.inputs.v.data) x = 1;  // whose mean is not 0
    for (Index b = 0; b < it.sight.problem.batch; ++b) it.sight.inputs.v.at(b, 0, 0, 0) = 2;
    const Reaction reaction =
        view.taken() ? bench.ask(it.sight.problem, it.sight.inputs) : view.reaction;
    const std::string problem = to_string(it.sight.problem);
    if (reaction.broke && broke.empty()) broke = reaction.refused;
    if (!reaction.taken() && refused.empty()) refused = reaction.refused;
    if (!reaction.taken() || !keeps_to(view, it.sight)) continue;
    o.inputs = lse.inputs = fmt::format("{}; row {} sees no key", problem, it.row);
    tell_empty_o(bench, it, reaction, o);
    tell_empty_lse(bench, it, reaction, lse);
    told = true;
    break;
  }
  if (!told) {
    o.words = lse.words = !broke.empty()    ? broke
                          : refused.empty() ? "it keeps to nothing that leaves a row without keys"
                                            : "it takes no row without keys: " + refused;
    o.is_key = lse.is_key = !broke.empty();
  }
  answers.push_back(std::move(o));
  answers.push_back(std::move(lse));
}

// Rows beyond a query length.
void ask_padding(Bench& bench, Answers& answers) {
  Answer answer = {.key = "leaves_padding_unwritten"};
  Sight it = sight(bench, 12, 12);
  const Index real = it.problem.query_len - kHidden;
  it.problem.query_lens = std::vector<Index>{real};
  const Reaction reaction = bench.ask(it.problem, it.inputs);
  answer.inputs =
      fmt::format("{}; rows from {} on lie beyond the length", to_string(it.problem), real);
  if (reaction.broke) {
    answer.words = reaction.refused;
  } else if (!reaction.taken()) {
    answer.value = false;
    answer.words = "it takes no query lengths";
    answer.declared = Answer::Declared::any;
  } else {
    bool unwritten = false;
    for (Index row = real; row < it.problem.query_len; ++row) {
      unwritten |= !reaction.is_written(TensorName::o, 0, 0, row, 0);
    }
    answer.value = unwritten;
    answer.words = unwritten ? "they are as they were" : "they are written";
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
