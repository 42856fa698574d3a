#include "reports/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "reports/text.h"
#include "spec/clause.h"
#include "spec/contains.h"

namespace attest {
namespace {

auto words(const VerdictRecord& record) {
  const auto count = std::count(record.problem.begin(), record.problem.end(), ' ');
  return std::tuple(record.verdict.outcome == Outcome::not_run, count, record.problem.size());
}

}  // namespace

FailureKind kind_of(const std::string& testee, const Verdict& verdict) {
  return {testee, verdict.outcome, verdict.reason, headline_clause(verdict),
          failing_tensors(verdict)};
}

std::vector<FailureGroup> failure_groups(const Digest& digest) {
  std::map<FailureKind, std::size_t> places;
  std::vector<FailureGroup> groups;
  for (const VerdictRecord* failure : digest.failures) {
    const auto [place, is_new] =
        places.emplace(kind_of(failure->testee, failure->verdict), groups.size());
    if (is_new) groups.emplace_back();
    FailureGroup& group = groups[place->second];
    group.failures.push_back(failure);
    if (!attest::contains(group.dtypes, failure->dtype)) group.dtypes.push_back(failure->dtype);
  }
  for (FailureGroup& group : groups) {
    std::stable_sort(
        group.failures.begin(), group.failures.end(),
        [](const VerdictRecord* a, const VerdictRecord* b) { return words(*a) < words(*b); });
  }
  std::stable_sort(groups.begin(), groups.end(), [](const FailureGroup& a, const FailureGroup& b) {
    return words(a.simplest()) < words(b.simplest());
  });
  return groups;
}

std::string clause_with_title(const std::string& label) {
  const Clause* clause = find_clause(label);
  return clause ? fmt::format("{} — {}", label, clause->title) : one_line(label);
}

std::vector<TensorName> failing_tensors(const Verdict& verdict) {
  std::vector<TensorName> tensors;
  for (const auto& [tensor, evidence] : verdict.tensors) {
    if (!(evidence.max_ratio <= 1)) tensors.push_back(tensor);
  }
  return tensors;
}

std::string diagnosis_line(const Digest& digest, const FailureGroup& group) {
  for (const VerdictRecord* failure : group.failures) {
    const auto at = digest.diagnoses.find(failure);
    if (at != digest.diagnoses.end()) return "diagnosis: " + diagnosis_text(*at->second);
  }
  return "";
}

std::string others_text(const FailureGroup& group) {
  if (group.failures.size() == 1) return "";
  return fmt::format("{} like it, in {}", group.failures.size() - 1, list_text(group.dtypes, ""));
}

}  // namespace attest
