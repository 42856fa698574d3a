#include "harness/diagnosis/likeness.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include "harness/diagnosis/altered.h"
#include "harness/diagnosis/mistake.h"
#include "harness/judge/exemptions.h"
#include "harness/judge/judge.h"
#include "spec/contains.h"

namespace attest {
namespace {

// Beyond that many products, for each mistake, all of them would take long.
constexpr double kMostProducts = 5e7;

double products(const Problem& p) {
  double pairs = 0;
  for (Index b = 0; b < p.batch; ++b) {
    const Lengths lengths = p.lengths(b);
    pairs += static_cast<double>(lengths.query) * static_cast<double>(lengths.key);
  }
  return (p.backward ? 4 : 1) * pairs * static_cast<double>(p.query_heads) *
         static_cast<double>(p.head_dim + p.value_dim);
}

// A mistake changes one row in so many, at most, that is right, of each head in which it is made: a
// few rows may be so by another way.
constexpr Index kLeastShare = 2;

// A part of a tensor: row `row` of `channels` elements.
TensorVerdict judge_row(const Returned& tensor, const Expected& expected, std::size_t row,
                        Rounding rounding) {
  const auto channels = static_cast<std::size_t>(tensor.shape[kChannel]);
  const auto cut = [&](const auto& list) {
    using List = std::decay_t<decltype(list)>;
    if (list.empty()) return List{};
    const auto begin = list.begin() + static_cast<std::ptrdiff_t>(row * channels);
    return List(begin, begin + static_cast<std::ptrdiff_t>(channels));
  };
  const Expected part = {cut(expected.value), cut(expected.rest), cut(expected.bound),
                         cut(expected.recommended)};
  return judge(cut(tensor.bits), tensor.dtype, {1, 1, 1, tensor.shape[kChannel]}, part, rounding);
}

// A tensor that is wrong, and which of its rows are.
struct Wrong {
  const Returned* tensor;
  Expected right;
  std::vector<bool> unjudged;  // elements
  std::vector<std::size_t> rows = {};
  std::size_t all_rows = 0;
};

void leave_out(Expected& expected, const std::vector<bool>& unjudged) {
  for (std::size_t at = 0; at < unjudged.size(); ++at) {
    if (unjudged[at]) expected.value[at] = std::numeric_limits<double>::quiet_NaN();
  }
}

// Whether no value lies within both bounds.
bool tells(const Expected& a, const Expected& b, std::size_t at) {
  if (std::isnan(a.value[at]) || std::isnan(b.value[at])) return false;
  if (std::isinf(a.value[at]) || std::isinf(b.value[at])) return a.value[at] != b.value[at];
  return std::abs(a.value[at] - b.value[at]) > a.bound[at] + b.bound[at];
}

// Of a problem what its forward pass is.
Problem forward_of(Problem problem) {
  problem.backward = problem.d_lse = false;
  return problem;
}

// The groups that a row of a tensor lies in; nothing if it belongs to no query or key.
std::optional<Excerpt> excerpt_around(const Problem& p, TensorName tensor, std::size_t row) {
  if (tensor == TensorName::dbias || tensor == TensorName::dsink) return std::nullopt;
  const bool of_key = tensor == TensorName::dk || tensor == TensorName::dv;
  const Index heads = of_key ? p.key_heads : p.query_heads;
  const SequenceLengths& lens = of_key ? p.key_lens : p.query_lens;
  const Index rows = p.packed ? lens.sum() : of_key ? p.key_len : p.query_len;
  auto [b, h, s, d] = coordinates({p.batch, heads, rows, 1}, static_cast<Index>(row));
  if (p.packed) {
    b = lens.element_of(s);
    s -= lens.start(b);
  }
  const Lengths lengths = p.lengths(b);
  if (s >= (of_key ? lengths.key : lengths.query)) return std::nullopt;
  Excerpt excerpt = excerpt_of_all(p, {}, {});
  auto& groups = of_key ? excerpt.key_groups : excerpt.query_groups;
  groups[static_cast<std::size_t>(b * heads + h)].push_back(s / 8);
  return excerpt;
}

// Without a row's part in all gradients.
void clear_row(Setting& setting, std::size_t row) {
  const Index channels = setting.problem.value_dim;
  const auto begin = setting.inputs.d_o.data.begin() + static_cast<std::ptrdiff_t>(row) * channels;
  std::fill(begin, begin + channels, 0.0);
  if (setting.problem.d_lse) setting.inputs.d_lse.data[row] = 0;
}

// The clause of a mistake, as it is where it bites.
std::string clause_of(const Mistake& mistake, const Problem& problem, bool backward) {
  if (mistake.clause == "SCORE-1" && !(problem.scale > 0)) return "SCORE-5";
  if (backward && mistake.clause == "HEAD-1") return "HEAD-2";
  return backward && mistake.clause == "DROP-1" ? "DROP-2" : mistake.clause;
}

auto rank(const Likeness& each) {
  return std::tuple(each.is_sure(), each.whole(), each.tensors.size());
}

class Search {
 public:
  Search(PreparedCase& prepared, const Description& testee, const Arithmetic& arithmetic,
         const Trial& trial)
      : prepared_(prepared), arithmetic_(arithmetic) {
    const Exemptions exemptions(prepared.problem(), prepared.inputs(), testee);
    for (const Returned& tensor : trial.returned) {
      // Gradients say nothing where the forward pass that they follow is wrong.
      if (is_gradient(tensor.name) && !wrong_.empty() && !is_gradient(wrong_[0].tensor->name))
        break;
      Wrong wrong = {&tensor, expected_of(tensor.name, prepared, arithmetic), {}};
      for (std::size_t at = 0; at < tensor.bits.size(); ++at) {
        wrong.unjudged.push_back(exemptions.unjudged(tensor.name, tensor.shape, at));
      }
      leave_out(wrong.right, wrong.unjudged);
      find_rows(wrong);
      if (!wrong.rows.empty()) wrong_.push_back(std::move(wrong));
    }
  }

  bool finds_nothing() const { return wrong_.empty(); }

  void consider(const Mistake& mistake) {
    const std::size_t before = found_.size();
    if (says_of(mistake) == Said::nothing && found_.size() == before) open_.insert(mistake.name);
  }

  Testimony testimony() && { return {.explaining = best_ways(), .open = std::move(open_)}; }

 private:
  using Expect = std::function<PassesExpected(const Setting&, const Excerpt*)>;
  enum class Said { no, nothing, yes };  // the later ones of several ways to make it count

  Said says_of(const Mistake& mistake) {
    const auto subject = std::find_if(wrong_.begin(), wrong_.end(), [&](const Wrong& wrong) {
      return speaks_of(mistake, wrong.tensor->name);
    });
    if (subject == wrong_.end()) return Said::no;
    Setting setting = {backward() ? prepared_.problem() : forward_of(prepared_.problem()),
                       prepared_.inputs()};
    if (mistake.alter && !mistake.alter(setting)) return Said::no;
    if (defect_of(setting.problem)) return Said::nothing;
    const std::optional<Excerpt> probe = probe_of(*subject, setting);
    const auto try_it = [&](const Expect& expect) {
      if (probe && refutes(mistake, settled(mistake, expect(setting, &*probe)))) return Said::no;
      const PassesExpected whole = settled(mistake, expect(setting, nullptr));
      const Said said = compare(mistake, whole, whole);
      if (said == Said::yes || !errs_in_rows()) return said;
      return std::max(said, compare(mistake, in_rows(mistake, setting, expect), whole, true));
    };
    std::optional<PassesExpected> of_probe, of_whole;  // each made once
    const auto own = [&](const Setting& it, const Excerpt* excerpt) {
      if (&it != &setting) return expect_altered(it, arithmetic_, excerpt);
      std::optional<PassesExpected>& known = excerpt ? of_probe : of_whole;
      if (!known) known = expect_altered(it, arithmetic_, excerpt);
      return *known;
    };
    Said said = try_it(own);
    if (!backward() || prepared_.problem().dtype == DType::f64) return said;
    const Left left = {.own = forward_pass_of(setting), .right = prepared_.forward(arithmetic_)};
    for (const bool takes_lse : {true, false}) {
      // It doesn't matter whose LSE is taken if they are the same.
      if (!takes_lse && left.own.lse.value == left.right.lse.value) break;
      said = std::max(said, try_it([&](const Setting& it, const Excerpt* excerpt) {
                        return expect_altered_backward(it, own(it, excerpt), left, takes_lse,
                                                       arithmetic_, excerpt);
                      }));
    }
    return said;
  }

  ForwardExpected forward_pass_of(const Setting& setting) const {
    if (is_right_forward(setting)) return prepared_.forward(arithmetic_);
    Setting forward = setting;
    forward.problem = forward_of(setting.problem);
    return expect_altered(forward, arithmetic_).forward;
  }

  // Whether all that a setting changes is in the backward pass.
  bool is_right_forward(const Setting& setting) const {
    const Inputs &own = setting.inputs, &right = prepared_.inputs();
    return setting.key_head.empty() &&
           forward_of(setting.problem) == forward_of(prepared_.problem()) &&
           own.keep == right.keep &&
           std::all_of(kInputValues.begin(), kInputValues.end(), [&](TensorName tensor) {
             const bool is_upstream = tensor == TensorName::d_o || tensor == TensorName::d_lse;
             return is_upstream || own[tensor] == right[tensor];
           });
  }

  // Of a mistake that explains it in several ways, the best.
  std::vector<Likeness> best_ways() {
    std::vector<Likeness> result;
    for (Likeness& each : found_) {
      const auto known = std::find_if(result.begin(), result.end(),
                                      [&](const auto& other) { return other.name == each.name; });
      if (known == result.end()) {
        result.push_back(std::move(each));
      } else if (rank(*known) < rank(each)) {
        *known = std::move(each);
      }
    }
    return result;
  }

  Rounding rounding(const Wrong& wrong) const {
    return rounding_of(wrong.tensor->name, arithmetic_);
  }

  bool backward() const { return is_gradient(wrong_[0].tensor->name); }

  static bool speaks_of(const Mistake& mistake, TensorName tensor) {
    return mistake.only.empty() || is_among(tensor, mistake.only);
  }

  // A part in which most mistakes are seen not to explain what is wrong, for little work.
  std::optional<Excerpt> probe_of(const Wrong& wrong, const Setting& setting) const {
    const Problem &before = prepared_.problem(), &after = setting.problem;
    const bool moves = !setting.key_head.empty() || after.key_heads != before.key_heads ||
                       after.key_lens != before.key_lens || after.query_lens != before.query_lens;
    if (moves) return std::nullopt;
    return excerpt_around(before, wrong.tensor->name, wrong.rows.front());
  }

  // Of an excerpt: what it leaves out is unspecified, and refutes nothing.
  bool refutes(const Mistake& mistake, PassesExpected expected) const {
    return std::any_of(wrong_.begin(), wrong_.end(), [&](const Wrong& wrong) {
      Expected& each = expected[wrong.tensor->name];
      if (!speaks_of(mistake, wrong.tensor->name)) return false;
      if (each.value.size() != wrong.tensor->bits.size()) return false;
      leave_out(each, wrong.unjudged);
      return !judge_row(*wrong.tensor, each, wrong.rows.front(), rounding(wrong)).passed;
    });
  }

  // Whether the rows of queries tell by themselves which of them the testee gets wrong: dQ of no
  // other is.
  bool errs_in_rows() const {
    return wrong_[0].tensor->name == TensorName::dq && wrong_[0].rows.size() < wrong_[0].all_rows;
  }

  // Of a kernel that makes the mistake in those rows alone: all gradients are sums over rows.
  PassesExpected in_rows(const Mistake& mistake, const Setting& setting,
                         const Expect& expect) const {
    Setting erring = setting, right = {prepared_.problem(), prepared_.inputs()};
    std::vector<bool> errs(wrong_[0].all_rows);
    for (const std::size_t row : wrong_[0].rows) errs[row] = true;
    for (std::size_t row = 0; row < errs.size(); ++row) clear_row(errs[row] ? right : erring, row);
    PassesExpected sum = settled(mistake, expect(erring, nullptr));
    const PassesExpected rest = expect_altered(right, arithmetic_);
    for (const TensorName tensor : kGradients) {
      Expected& each = sum[tensor];
      const Expected& other = rest[tensor];
      if (each.value.size() != other.value.size()) continue;  // as where a bias has other axes
      for (std::size_t at = 0; at < each.value.size(); ++at) {
        each.value[at] += other.value[at];
        each.bound[at] += other.bound[at];
      }
      each.rest.clear();
    }
    return sum;
  }

  void find_rows(Wrong& wrong) const {
    const Index channels = wrong.tensor->shape[kChannel];
    if (channels == 0) return;
    wrong.all_rows = wrong.tensor->bits.size() / static_cast<std::size_t>(channels);
    for (std::size_t row = 0; row < wrong.all_rows; ++row) {
      if (!judge_row(*wrong.tensor, wrong.right, row, rounding(wrong)).passed) {
        wrong.rows.push_back(row);
      }
    }
  }

  PassesExpected settled(const Mistake& mistake, PassesExpected expected) const {
    if (!mistake.settle) return expected;
    const Setting original = {prepared_.problem(), prepared_.inputs()};
    for (const TensorName tensor : kReturnedTensors) {
      mistake.settle(original, tensor, expected[tensor]);
    }
    return expected;
  }

  // A row of tensors that have the same ones, such as O and LSE.
  struct Row {
    TensorName tensor;
    std::size_t head;  // of all batch elements
    std::size_t row;
    auto operator<=>(const Row&) const = default;
  };
  static Row row_of(const Returned& tensor, std::size_t row) {
    using enum TensorName;
    const bool of_query = tensor.name == lse || tensor.name == dq;
    return {of_query            ? o
            : tensor.name == dk ? dv
                                : tensor.name,
            row / static_cast<std::size_t>(tensor.shape[kPosition]), row};
  }

  // Counts the rows that are explained, of those that would change.
  static void count(const std::set<Row>& rows, const std::set<Row>& changed, Likeness& likeness) {
    using Head = std::pair<TensorName, std::size_t>;
    std::set<Head> heads, of_heads;
    for (const Row& each : rows) heads.insert({each.tensor, each.head});
    for (const Row& each : changed) {
      of_heads.insert({each.tensor, each.head});
      likeness.of += heads.contains({each.tensor, each.head});
    }
    likeness.rows = std::ssize(rows);
    likeness.heads = std::ssize(heads);
    likeness.of_heads = std::ssize(of_heads);
  }

  // Whether the mistake explains all that is wrong of what it speaks of. `whole` is what it gives
  // if it is made in all rows.
  Said compare(const Mistake& mistake, PassesExpected expected, PassesExpected whole,
               bool in_rows = false) {
    Likeness likeness = {.name = mistake.name,
                         .clause = clause_of(mistake, prepared_.problem(), backward()),
                         .tensors = {}};
    likeness.backward_alone = backward();
    likeness.yields_to = mistake.yields_to;
    std::set<Row> rows, changed;
    bool conclusive = true;
    for (const Wrong& wrong : wrong_) {
      const TensorName name = wrong.tensor->name;
      if (!speaks_of(mistake, name)) continue;
      Expected &each = expected[name], &everywhere = whole[name];
      if (each.value.size() != wrong.tensor->bits.size()) return Said::nothing;
      leave_out(each, wrong.unjudged);
      leave_out(everywhere, wrong.unjudged);
      for (const std::size_t row : wrong.rows) {
        const TensorVerdict verdict = judge_row(*wrong.tensor, each, row, rounding(wrong));
        if (!verdict.passed) return Said::no;
        conclusive &= verdict.conclusive;
        likeness.telling += count_telling(wrong, each, row);
      }
      likeness.tensors.push_back(name);
      // All gradients are sums over the rows of queries: of those that err, dQ tells alone.
      if (in_rows && name != TensorName::dq) continue;
      for (std::size_t row = 0, next = 0; row < wrong.all_rows; ++row) {
        const bool is_wrong = next < wrong.rows.size() && wrong.rows[next] == row;
        next += is_wrong;
        if (is_wrong) rows.insert(row_of(*wrong.tensor, row));
        if (is_wrong || !judge_row(*wrong.tensor, everywhere, row, rounding(wrong)).passed) {
          changed.insert(row_of(*wrong.tensor, row));
        }
      }
    }
    count(rows, changed, likeness);
    const bool is_fair_share = kLeastShare * likeness.rows >= likeness.of;
    if (!conclusive || likeness.telling == 0 || !is_fair_share) return Said::nothing;
    found_.push_back(std::move(likeness));
    return Said::yes;
  }

  static Index count_telling(const Wrong& wrong, const Expected& each, std::size_t row) {
    const auto channels = static_cast<std::size_t>(wrong.tensor->shape[kChannel]);
    Index telling = 0;
    for (std::size_t at = row * channels; at < (row + 1) * channels; ++at) {
      telling += tells(wrong.right, each, at);
    }
    return telling;
  }

  PreparedCase& prepared_;
  const Arithmetic& arithmetic_;
  std::vector<Wrong> wrong_;
  std::vector<Likeness> found_;
  std::set<std::string> open_;
};

}  // namespace

std::string without_format(const std::string& case_id) {
  return case_id.substr(0, case_id.find("/dtype="));
}

bool is_plain(const Case& failing) {
  return failing.hidden == Hidden::plain &&
         std::all_of(kLaidOut.begin(), kLaidOut.end(), [&](TensorName tensor) {
           return failing.problem.layouts[tensor] == Layout();
         });
}

bool is_too_large(const Case& failing) {
  return failing.excerpt > 0 || products(failing.problem) > kMostProducts;
}

bool asks_for_names(const Verdict& verdict) {
  return verdict.outcome == Outcome::fail &&
         (verdict.reason == "bound" || verdict.reason == "nonfinite");
}

std::optional<Testimony> alike(PreparedCase& prepared, const Description& testee,
                               const Arithmetic& arithmetic, const Trial& trial,
                               const std::function<bool()>& interrupted) {
  if (is_too_large(prepared.test_case())) return std::nullopt;
  if (trial.stopped || trial.returned.empty()) return std::nullopt;
  std::optional<PreparedCase> own;
  if (trial.keep) own = prepared.with_keep(*trial.keep);
  Search search(own ? *own : prepared, testee, arithmetic, trial);
  if (search.finds_nothing()) return std::nullopt;
  for (const Mistake& mistake : mistakes()) {
    if (interrupted()) return std::nullopt;
    search.consider(mistake);
  }
  return std::move(search).testimony();
}

std::vector<Likeness> best(const std::vector<Likeness>& all) {
  std::vector<Likeness> result;
  for (const Likeness& each : all) {
    if (!result.empty() && rank(each) < rank(result[0])) continue;
    if (!result.empty() && rank(each) > rank(result[0])) result.clear();
    result.push_back(each);
  }
  const std::vector<Likeness> equal = result;
  std::erase_if(result, [&](const Likeness& each) {
    return std::any_of(equal.begin(), equal.end(),
                       [&](const Likeness& other) { return contains(each.yields_to, other.name); });
  });
  return result;
}

std::vector<Likeness> sure(const std::optional<Testimony>& testimony) {
  if (!testimony) return {};
  std::vector<Likeness> all = testimony->explaining;
  std::erase_if(all, [](const Likeness& each) { return !each.is_sure(); });
  return best(all);
}

std::string headline(const std::vector<Likeness>& all) {
  constexpr std::size_t kMostNamed = 3;
  if (all.empty()) return "";
  const Likeness& first = all[0];
  std::vector<std::string> names;
  for (const Likeness& each : all) {
    if (names.size() < kMostNamed) names.push_back(fmt::format("{} ({})", each.name, each.clause));
  }
  std::vector<std::string> tensors;
  for (const TensorName tensor : first.tensors) tensors.emplace_back(name(tensor));
  const std::string last = tensors.back();
  tensors.pop_back();
  const std::string subject =
      tensors.empty() ? last : fmt::format("{} and {}", fmt::join(tensors, ", "), last);
  std::vector<std::string> parts;
  if (first.rows != first.of) parts.push_back(fmt::format("{} of {} rows", first.rows, first.of));
  if (first.heads != first.of_heads) {
    parts.push_back(fmt::format("{} of {} heads", first.heads, first.of_heads));
  }
  const std::string where = parts.empty() ? "" : fmt::format(" in {}", fmt::join(parts, " of "));
  return fmt::format("{} {} exactly what {} gives{}{}", subject,
                     first.tensors.size() == 1 ? "is" : "are", fmt::join(names, ", or "),
                     first.backward_alone ? " in the backward pass" : "", where);
}

std::vector<Likeness> meant_by(PreparedCase& prepared, const Description& testee,
                               const Trial& trial, const std::function<bool()>& interrupted) {
  const Arithmetic arithmetic = testee.arithmetic_in(prepared.problem().dtype);
  return sure(alike(prepared, testee, arithmetic, trial, interrupted));
}

}  // namespace attest
