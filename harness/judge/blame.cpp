#include "harness/judge/blame.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/judge/checks.h"
#include "harness/judge/judge.h"
#include "spec/contains.h"
#include "spec/tensor.h"

namespace attest {
namespace {

// Of long problems so many pairs of a query and a key are looked at.
constexpr Index kMostPairs = Index(1) << 22;

// Where results lie beyond their bounds: in the forward pass, or, if that is right, in the
// gradients.
class Misses {
 public:
  Misses(const Subject& subject, const Trial& trial) : problem_(subject.problem()) {
    // What a testee drew is part of its problem.
    std::optional<PreparedCase> own;
    if (trial.keep) own = subject.prepared.with_keep(*trial.keep);
    PreparedCase& prepared = own ? *own : subject.prepared;
    for (const bool gradients : {false, true}) {
      for (const Returned& tensor : trial.returned) {
        if (is_gradient(tensor.name) == gradients) add(subject, prepared, tensor);
      }
      if (!tensors_.empty()) break;
    }
    look_at_rows();
  }

  bool none() const { return tensors_.empty(); }
  bool has(TensorName tensor) const { return tensors_.contains(tensor); }
  bool only(TensorName tensor) const { return tensors_.size() == 1 && has(tensor); }
  bool gradients() const { return !none() && !has(TensorName::o) && !has(TensorName::lse); }
  bool nonfinite() const { return nonfinite_; }

  // Of all misses in tensors that have rows of queries, if there are any.
  bool only_empty_rows() const { return rows_ > 0 && empty_rows_ == rows_ && of_queries_alone_; }
  bool only_beyond_query_lengths() const {
    return rows_ > 0 && beyond_ == rows_ && of_queries_alone_;
  }
  // Whether there are others; those that miss are all there is of misses.
  bool other_rows_are_right() const { return rows_ < all_rows_; }
  bool some_rows_see_all() const { return rows_that_see_all_ > 0; }
  // Whether just those heads fail that would read other keys if groups were interleaved.
  bool only_heads_of_other_groups() const { return heads_of_other_groups_ && of_queries_alone_; }

 private:
  void add(const Subject& subject, PreparedCase& prepared, const Returned& tensor) {
    const Expected& whole = expected_of(tensor.name, prepared, subject.arithmetic);
    const std::optional<Expected> part = without_exempt(subject, whole, tensor);
    const std::vector<std::size_t> missed =
        beyond_bounds(tensor.bits, tensor.dtype, part ? *part : whole,
                      rounding_of(tensor.name, subject.arithmetic));
    if (missed.empty()) return;
    tensors_.insert(tensor.name);
    of_queries_alone_ &= is_of_queries(tensor.name);
    for (const std::size_t i : missed) {
      nonfinite_ |= !std::isfinite(decode(tensor.dtype, tensor.bits[i]));
      if (!is_of_queries(tensor.name)) continue;
      all_rows_ = tensor.shape[0] * tensor.shape[1] * tensor.shape[2];
      const auto place = coordinates(tensor.shape, static_cast<Index>(i));
      missed_rows_.insert({place[0], place[1], place[2]});
    }
  }

  void look_at_rows() {
    std::set<Index> heads;
    for (const auto& [stored_b, h, stored_i] : missed_rows_) {
      heads.insert(h);
      if (rows_ * problem_.key_len >= kMostPairs) continue;
      ++rows_;
      const auto [b, i] = element_and_row(stored_b, stored_i);
      const bool is_beyond = i >= problem_.lengths(b).query;
      beyond_ += is_beyond;
      if (is_beyond) continue;
      const Index keys = visible_keys(b, h, i);
      empty_rows_ += keys == 0;
      rows_that_see_all_ += keys == problem_.lengths(b).key;
    }
    if (problem_.key_heads <= 1 || problem_.key_heads == problem_.query_heads) return;
    const Index group = problem_.query_heads / problem_.key_heads;
    std::set<Index> others;
    for (Index h = 0; h < problem_.query_heads; ++h) {
      if (h / group != h % problem_.key_heads) others.insert(h);
    }
    heads_of_other_groups_ = !heads.empty() && heads == others;
  }

  // Of a packed tensor, whose sequences follow each other.
  std::pair<Index, Index> element_and_row(Index b, Index i) const {
    if (!problem_.packed) return {b, i};
    while (i >= problem_.lengths(b).query) i -= problem_.lengths(b++).query;
    return {b, i};
  }

  Index visible_keys(Index b, Index h, Index i) const {
    Index keys = 0;
    for (Index j = 0; j < problem_.lengths(b).key; ++j) {
      keys += visible(problem_, {.batch = b, .head = h, .query = i, .key = j});
    }
    return keys;
  }

  const Problem& problem_;
  std::set<TensorName> tensors_ = {};
  std::set<std::array<Index, 3>> missed_rows_ = {};
  bool nonfinite_ = false, of_queries_alone_ = true, heads_of_other_groups_ = false;
  Index rows_ = 0, all_rows_ = 0, empty_rows_ = 0, beyond_ = 0, rows_that_see_all_ = 0;
};

// What the case hides, if what came back shows it.
std::string_view clause_of_hidden(const Case& c, const Misses& misses) {
  switch (c.hidden) {
    case Hidden::plain:
      return "";
    case Hidden::huge:
      return "HIDE-1";
    case Hidden::nan:
      return c.problem.paging.page_size > 0 ? "PAGE-2" : "HIDE-2";
    case Hidden::nan_rows:
      return "HIDE-2";
    case Hidden::nan_masked:
      return "HIDE-3";
    case Hidden::nan_query:
      return misses.gradients() ? "FINITE-3" : "FINITE-1";
    case Hidden::nan_key:
    case Hidden::nan_value:
    case Hidden::nan_gradient:
      return "FINITE-2";
  }
  return "";
}

// Of a backward pass whose forward pass is right.
std::string_view of_gradients(const Problem& p, const Misses& misses) {
  using enum TensorName;
  const bool drops = p.dropout.mode != Dropout::Mode::none;
  if (misses.only(dsink)) return "SINK-2";
  if (misses.only(dbias)) return "GRAD-4";
  if (misses.only(dv)) return drops ? "DROP-2" : "GRAD-3";
  // dV doesn't know of dS; dBias and dSink know of it before the softcap's slope.
  const bool beside_the_cap = misses.has(dbias) || misses.has(dsink);
  if (!misses.has(dv)) {
    if (p.softcap > 0 && !beside_the_cap) return "GRAD-6";
    if (drops) return "DROP-2";
    if (p.d_lse) return "GRAD-5";
  }
  if (drops) return "DROP-2";
  const bool of_keys_alone = !misses.has(dq);
  if (of_keys_alone && p.key_heads != p.query_heads) return "HEAD-2";
  if (misses.has(dq)) return "GRAD-1";
  return misses.has(dk) ? "GRAD-2" : "GRAD-3";
}

// What of a problem is likelier to be amiss, where all that is known is that O is: what few
// problems have before what many have, for a fault of the latter shows in a simpler case.
constexpr std::array<std::string_view, 31> kRarestFirst = {
    "DROP-1",   "SINK-1",  "SCORE-4",   "SCORE-3",   "SCORE-2",  "MASK-14", "MASK-9",   "MASK-8",
    "MASK-12",  "MASK-13", "MASK-11",   "MASK-10",   "MASK-7",   "MASK-4",  "SCORE-5",  "MASK-3",
    "MASK-2",   "PAGE-1",  "LAYOUT-5",  "MASK-5",    "LAYOUT-3", "HEAD-1",  "LAYOUT-4", "LAYOUT-1",
    "LAYOUT-2", "SCORE-1", "SOFTMAX-2", "SOFTMAX-1", "MASK-1",   "MASK-6",  "SHAPE-1"};

bool is_of_a_mask(std::string_view clause) {
  return clause.starts_with("MASK-") && clause != "MASK-1" && clause != "MASK-5" &&
         clause != "MASK-6";
}

std::string_view of_outputs(const Case& c, const Misses& misses) {
  for (const std::string_view clause : kRarestFirst) {
    if (!contains(c.clauses, clause)) continue;
    if (is_of_a_mask(clause) && misses.some_rows_see_all()) continue;
    return clause;
  }
  return "SOFTMAX-1";
}

std::string_view of_numbers(const Case& c, const Misses& misses) {
  using enum TensorName;
  if (misses.only_beyond_query_lengths()) return c.hidden == Hidden::nan_rows ? "HIDE-2" : "MASK-6";
  if (misses.only_empty_rows() && misses.other_rows_are_right()) {
    if (misses.gradients()) return "EMPTY-3";
    if (c.problem.sink) return "EMPTY-4";
    return misses.has(o) ? "EMPTY-1" : "EMPTY-2";
  }
  const std::string_view hidden = clause_of_hidden(c, misses);
  const bool shows = misses.nonfinite() || c.hidden == Hidden::huge;
  if (shows && contains(c.clauses, hidden)) return hidden;
  if (misses.gradients()) return of_gradients(c.problem, misses);
  if (misses.only_heads_of_other_groups()) return "HEAD-1";
  if (misses.only(lse)) return "LSE-1";
  return of_outputs(c, misses);
}

}  // namespace

std::string blamed_clause(const Subject& subject, const Finding& finding, const Trial& first,
                          const Trial& second) {
  if (!is_fault(finding.outcome) && finding.outcome != Outcome::warn) return "";
  if (!finding.clause.empty()) return finding.clause;
  if (finding.reason == "statistical") return "NUM-3";
  if (finding.reason != "bound" && finding.reason != "nonfinite") {
    const auto& cited = subject.test_case().clauses;
    return cited.empty() ? "" : cited.front();
  }
  for (const Trial* trial : {&first, &second}) {
    const Misses misses(subject, *trial);
    if (!misses.none()) return std::string(of_numbers(subject.test_case(), misses));
  }
  return "NUM-1";
}

}  // namespace attest
