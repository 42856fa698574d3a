#include "harness/diagnosis/culprit.h"

#include <algorithm>
#include <iterator>

#include "harness/judge/blame.h"
#include "spec/clause.h"
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

// That of a mistake that matches: of several that cannot be told apart, one that the case cites,
// that is blamed already, or without which it passes, if there is one; else the first. Empty if
// none matches.
std::string clause_of(const std::vector<Likeness>& alike, const Case& test_case,
                      const std::string& blamed, const Clauses& cured) {
  Clauses clauses;
  for (const Likeness& each : alike) clauses.push_back(each.clause);
  for (const Clauses& preferred : {test_case.clauses, Clauses{blamed}, cured}) {
    Clauses among;
    std::copy_if(clauses.begin(), clauses.end(), std::back_inserter(among),
                 [&](const std::string& clause) { return contains(preferred, clause); });
    if (!among.empty()) clauses = std::move(among);
  }
  return clauses.empty() ? "" : clauses.front();
}

// What rows, hidden numbers, overflow and units of LSE tell needs no mistake.
bool is_plain(std::string_view clause) {
  return clause.starts_with("EMPTY-") || clause.starts_with("HIDE-") ||
         clause.starts_with("FINITE-") || clause == "LSE-1" || clause == "DET-1" ||
         clause == "PAGE-2" || clause == "SHAPE-2" || clause == "SOFTMAX-2";
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
                    const std::vector<Likeness>& alike, const std::vector<Relief>& reliefs,
                    Names names) {
  const std::string& blamed = verdict.blamed;
  if (!asks_for_names(verdict) || blamed.empty()) return blamed;
  const Clauses cured = clauses_where(reliefs, true), guiltless = clauses_where(reliefs, false);
  const std::string meant = clause_of(alike, test_case, blamed, cured);
  const bool is_believed =
      names == Names::first ||
      (!is_plain(blamed) && (contains(test_case.clauses, meant) || contains(cured, meant)));
  if (is_believed && !meant.empty()) return meant;
  if (is_plain(blamed)) return blamed;
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

void put_first(std::vector<Likeness>& alike, const std::string& blamed) {
  std::stable_partition(alike.begin(), alike.end(),
                        [&](const Likeness& each) { return each.clause == blamed; });
}

}  // namespace attest
