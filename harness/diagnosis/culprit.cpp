#include "harness/diagnosis/culprit.h"

#include <algorithm>
#include <set>

#include "harness/judge/blame.h"
#include "spec/contains.h"

namespace attest {
namespace {

using Clauses = std::vector<std::string>;

// A mask as a whole says nothing where one of its parts is what matters and another is not.
bool some_parts_matter(const std::vector<Relief>& reliefs) {
  const auto is_there = [&](bool passes) {
    return std::any_of(reliefs.begin(), reliefs.end(),
                       [&](const Relief& each) { return each.is_part && each.passes == passes; });
  };
  return is_there(true) && is_there(false);
}

Clauses clauses_where(const std::vector<Relief>& reliefs, bool passes) {
  Clauses clauses;
  const bool by_parts = some_parts_matter(reliefs);
  for (const Relief& relief : reliefs) {
    if (relief.passes != passes || (by_parts && relief.what == kAMask)) continue;
    clauses.insert(clauses.end(), relief.clauses.begin(), relief.clauses.end());
  }
  return clauses;
}

// The clause of a mistake, as it is named where it bites.
std::string clause_of(const Likeness& likeness, const Problem& problem) {
  if (likeness.clause == "SCORE-1" && !(problem.scale > 0)) return "SCORE-5";
  if (!likeness.backward_alone) return likeness.clause;
  if (likeness.clause == "HEAD-1") return "HEAD-2";
  return likeness.clause == "DROP-1" ? "DROP-2" : likeness.clause;
}

// The one that all mistakes that match have in common, if the case cites it; else empty.
std::string clause_of(const std::vector<Likeness>& alike, const Case& test_case) {
  std::set<std::string> clauses;
  for (const Likeness& each : alike) clauses.insert(clause_of(each, test_case.problem));
  const bool is_one = clauses.size() == 1 && contains(test_case.clauses, *clauses.begin());
  return is_one ? *clauses.begin() : "";
}

// What rows, hidden numbers, overflow and units of LSE tell needs no mistake.
bool is_plain(std::string_view clause) {
  return clause.starts_with("EMPTY-") || clause.starts_with("HIDE-") ||
         clause.starts_with("FINITE-") || clause == "LSE-1" || clause == "DET-1" ||
         clause == "PAGE-2" || clause == "SHAPE-2" || clause == "SOFTMAX-2";
}

bool is_of_gradients(std::string_view clause) {
  return clause.starts_with("GRAD-") || clause == "SINK-2" || clause == "DROP-2" ||
         clause == "HEAD-2";
}

// The clauses that may be blamed instead, in the order in which they are.
std::vector<std::string_view> instead_of(std::string_view blamed) {
  if (is_of_gradients(blamed)) {
    return {"SINK-2", "DROP-2", "GRAD-6", "GRAD-5", "GRAD-4",
            "HEAD-2", "GRAD-1", "GRAD-2", "GRAD-3"};
  }
  return {suspects().begin(), suspects().end()};
}

}  // namespace

std::string culprit(const Verdict& verdict, const Case& test_case,
                    const std::vector<Likeness>& alike, const std::vector<Relief>& reliefs) {
  const std::string& blamed = verdict.blamed;
  if (!asks_for_names(verdict) || blamed.empty()) return blamed;
  if (is_plain(blamed)) return blamed;
  if (std::string clause = clause_of(alike, test_case); !clause.empty()) return clause;
  const Clauses cured = clauses_where(reliefs, true), guiltless = clauses_where(reliefs, false);
  // What fails in a pass of its own, whatever else the problem has, is blamed by its tensor.
  const bool by_tensor = blamed == "GRAD-1" || blamed == "GRAD-2" || blamed == "GRAD-3";
  if (by_tensor || contains(cured, blamed)) return blamed;
  const auto others = instead_of(blamed);
  for (const std::string_view clause : others) {
    if (contains(cured, clause) && contains(test_case.clauses, clause)) return std::string(clause);
  }
  if (!contains(guiltless, blamed)) return blamed;
  for (const std::string_view clause : others) {
    if (contains(test_case.clauses, clause) && !contains(guiltless, clause)) {
      return std::string(clause);
    }
  }
  return blamed;
}

}  // namespace attest
