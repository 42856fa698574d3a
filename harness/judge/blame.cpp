#include "harness/judge/blame.h"

#include <algorithm>
#include <array>
#include <vector>

#include "harness/judge/checks.h"
#include "harness/judge/misses.h"
#include "spec/contains.h"
#include "spec/feature.h"

namespace attest {

std::span<const std::string_view> suspects() {
  static constexpr std::array kRarestFirst = std::to_array<std::string_view>(
      {"MASK-14",  "SHAPE-2", "FORMAT-8", "FORMAT-6", "FORMAT-7", "FORMAT-5",  "SCORE-5",
       "SCORE-1",  "DROP-1",  "DROP-3",   "SINK-1",   "SCORE-2",  "SCORE-4",   "SCORE-3",
       "MASK-9",   "MASK-8",  "MASK-12",  "MASK-13",  "MASK-11",  "MASK-10",   "MASK-7",
       "MASK-4",   "MASK-3",  "MASK-2",   "PAGE-1",   "PAGE-2",   "LAYOUT-5",  "MASK-5",
       "LAYOUT-3", "HEAD-1",  "LAYOUT-4", "LAYOUT-1", "LAYOUT-2", "SOFTMAX-1", "SOFTMAX-2",
       "MASK-1",   "MASK-6",  "SHAPE-1",  "LSE-1"});
  return kRarestFirst;
}

namespace {

// What the case hides, if what came back shows it.
std::string_view clause_of_hidden(const Case& c, const Misses& misses) {
  switch (c.hidden) {
    case Hidden::plain:
      return "";
    case Hidden::huge:
    case Hidden::large:
      return "HIDE-1";
    case Hidden::nan:
    case Hidden::nan_scales:
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
  const bool groups = p.key_heads != p.query_heads;
  if (misses.only(dsink)) return "SINK-2";
  if (misses.only(dbias)) return "GRAD-4";
  if (misses.only(dv)) return drops ? "DROP-2" : "GRAD-3";
  // dV doesn't know of dS; dBias and dSink know of it before the softcap's slope.
  const bool beside_the_cap = misses.has(dbias) || misses.has(dsink);
  const bool of_one = misses.only(dq) || misses.only(dk);  // of the same dS the other is right
  if (!misses.has(dv)) {
    if (p.softcap > 0 && !beside_the_cap) return "GRAD-6";
    // dSink knows of dLSE, but not of the keep-mask in dP.
    if (p.d_lse && !of_one && (!p.sink || !drops || misses.has(dsink))) return "GRAD-5";
  }
  if (drops) return "DROP-2";
  if (misses.has(dk) && misses.has(dv) && !misses.has(dq) && groups) return "HEAD-2";
  if (misses.has(dq)) return "GRAD-1";
  return misses.has(dk) ? "GRAD-2" : "GRAD-3";
}

bool is_of_a_mask(std::string_view clause) {
  return clause.starts_with("MASK-") && clause != "MASK-1" && clause != "MASK-5" &&
         clause != "MASK-6";
}

// Whether a causal mask lies as MASK-2 has it, at the top left; or otherwise, as MASK-3 has it.
bool has_causal(const Mask& mask, bool at_top_left) {
  const bool causal = mask.kind == Mask::Kind::band && mask.left == kUnbounded && mask.right == 0;
  if (causal && (mask.anchor == Anchor::top_left && mask.offset == 0) == at_top_left) return true;
  return std::any_of(mask.parts.begin(), mask.parts.end(),
                     [&](const Mask& part) { return has_causal(part, at_top_left); });
}

// Whether that problem has what the clause speaks of.
bool concerns(std::string_view clause, const Problem& problem) {
  if (clause == "MASK-2" || clause == "MASK-3") {
    return has_causal(problem.mask, clause == "MASK-2");
  }
  const std::vector<const Feature*> speakers = features_with(clause);
  const std::vector<const Feature*> needed = needed_by(problem);
  return speakers.empty() ||
         std::any_of(speakers.begin(), speakers.end(), [&](const Feature* each) {
           return std::find(needed.begin(), needed.end(), each) != needed.end();
         });
}

// Whether a bias adds the same to all scores of a row, of which LSE alone knows.
bool is_of_a_row(const std::optional<Shape>& bias) { return bias && (*bias)[3] == 1; }

bool has_table_of_heads(const Mask& mask) {
  return (mask.table && mask.table->shape[1] > 1) ||
         std::any_of(mask.parts.begin(), mask.parts.end(), has_table_of_heads);
}

// Whether what came back is otherwise than what follows from a breach of that clause.
bool is_cleared(std::string_view clause, const Problem& problem, const Misses& misses) {
  if (!concerns(clause, problem)) return true;
  const bool of_mask = is_of_a_mask(clause) && clause != "MASK-14";
  const bool of_score = clause.starts_with("SCORE-") || clause == "SINK-1";
  if (of_mask && misses.full_rows_lack_nothing()) return true;
  if (of_mask && misses.heads_differ() && !has_table_of_heads(problem.mask)) return true;
  // LSE knows of the scores, the sink and what is visible; dropout and V come after it.
  if ((of_mask || of_score) && misses.sums_are_right()) return true;
  if (of_score && misses.some_rows_are_right() && !misses.heads_differ()) return true;
  const bool of_values = clause.starts_with("DROP-") || clause == "SHAPE-1";
  if (of_values && misses.has(TensorName::lse)) return true;
  if (clause == "MASK-5") {
    return misses.of_longest_element() || (problem.batch == 1 && misses.some_sums_are_low());
  }
  // Scores of no channels are wrong in all rows, or in none.
  if (clause == "SHAPE-2") return problem.head_dim == 0 && misses.some_rows_are_right();
  if (clause == "LAYOUT-5") return !misses.spares_first_element();
  return clause == "HEAD-1" && misses.all_heads();
}

// Of numbers that are chosen to overflow, or that lack digits: what sums them up.
std::string_view of_sums(const Case& c, const Misses& misses) {
  using Clauses = std::vector<std::string_view>;
  if (misses.nonfinite() && c.hidden == Hidden::plain && c.data != "normal") {
    for (const auto clause : Clauses{"SOFTMAX-2", "SOFTMAX-1"}) {
      if (contains(c.clauses, clause)) return clause;
    }
  }
  if (misses.slight()) {
    for (const auto clause : Clauses{"NUM-3", "SOFTMAX-1", "SOFTMAX-2"}) {
      if (contains(c.clauses, clause)) return clause;
    }
  }
  return "";
}

std::string_view of_outputs(const Case& c, const Misses& misses) {
  if (const auto clause = of_sums(c, misses); !clause.empty()) return clause;
  std::string_view last = "";
  for (const std::string_view clause : suspects()) {
    if (!contains(c.clauses, clause)) continue;
    if (!is_cleared(clause, c.problem, misses)) return clause;
    if (last.empty()) last = clause;
  }
  return last.empty() ? "SOFTMAX-1" : last;
}

// Of rows that see no key, if nothing else is wrong.
std::string_view of_empty_rows(const Case& c, const Misses& misses) {
  if (!misses.only_empty_rows()) return "";
  if (misses.gradients()) return misses.of_queries_alone() || misses.nonfinite() ? "EMPTY-3" : "";
  if (misses.empty_rows_saw_keys()) return "";
  if (c.problem.sink) {
    return contains(c.clauses, "SINK-1") && !contains(c.clauses, "EMPTY-4") ? "SINK-1" : "EMPTY-4";
  }
  return misses.has(TensorName::o) ? "EMPTY-1" : "EMPTY-2";
}

std::string_view of_numbers(const Case& c, const Misses& misses) {
  using enum TensorName;
  if (misses.only_beyond_query_lengths() && misses.of_queries_alone()) {
    return c.hidden == Hidden::nan_rows ? "HIDE-2" : "MASK-6";
  }
  const std::string_view empty = of_empty_rows(c, misses);
  const std::string_view hidden = clause_of_hidden(c, misses);
  const bool shows = misses.nonfinite() || c.hidden == Hidden::huge;
  if (!empty.empty() && (contains(c.clauses, empty) || !contains(c.clauses, hidden))) return empty;
  if (shows && contains(c.clauses, hidden)) return hidden;
  if (misses.gradients()) return of_gradients(c.problem, misses);
  if (misses.only_heads_of_other_groups()) return "HEAD-1";
  if (misses.only(lse)) {
    const bool units = misses.lse_in_other_units();
    if (!units && is_of_a_row(c.problem.bias_shape) && contains(c.clauses, "SCORE-3")) {
      return "SCORE-3";
    }
    if (misses.weights_show()) {
      const std::string_view sums = of_sums(c, misses);
      return sums.empty() ? "LSE-1" : sums;
    }
    if (units && contains(c.clauses, "LSE-1")) return "LSE-1";
  }
  return of_outputs(c, misses);
}

// A testee that declares the same bits twice, and returned others.
bool breaks_its_promise(const Subject& subject, const Trial& first, const Trial& second) {
  return subject.cites("DET-1") && subject.arithmetic.deterministic && !second.returned.empty() &&
         difference(first, second, subject.exemptions);
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
  if (breaks_its_promise(subject, first, second)) return "DET-1";
  for (const Trial* trial : {&first, &second}) {
    const Misses misses(subject, *trial);
    if (!misses.none()) return std::string(of_numbers(subject.test_case(), misses));
  }
  return "NUM-1";
}

}  // namespace attest
