#include "cases/citation.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "cases/device_check.h"
#include "cases/laws.h"
#include "cases/settings.h"
#include "spec/clause.h"
#include "spec/feature.h"

namespace attest {
namespace {

const std::vector<std::string>& clause_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Clause& clause : clauses()) names.emplace_back(clause.id);
    return names;
  }();
  return kNames;
}

}  // namespace

std::vector<std::string> read_clauses(const nlohmann::json& list, const std::string& pointer) {
  return read_distinct_names(list, pointer, "clause", clause_names());
}

std::vector<std::string> implied_clauses(const Case& test_case) {
  const Problem& problem = test_case.problem;
  std::vector<std::string> implied;
  const auto imply_if = [&](bool needed, std::initializer_list<const char*> ids) {
    if (needed) implied.insert(implied.end(), ids.begin(), ids.end());
  };
  for (const std::string_view clause : clauses_needed_by(problem)) {
    implied.emplace_back(clause);
    imply_if(clause == "SCORE-3" && !test_case.extras.bias_allows.allowed.empty(), {"MASK-14"});
  }
  const Hidden hidden = test_case.hidden;
  imply_if(hidden == Hidden::nan_masked, {"HIDE-3"});
  imply_if(hidden == Hidden::nan_query, {"FINITE-1"});
  imply_if(hidden == Hidden::nan_query && problem.backward, {"FINITE-3"});
  imply_if(
      hidden == Hidden::nan_key || hidden == Hidden::nan_value || hidden == Hidden::nan_gradient,
      {"FINITE-2"});
  imply_if(test_case.statistical, {"NUM-3"});
  imply_if(test_case.check == Check::threads, {"DET-3"});
  imply_if(test_case.check == Check::neighbours, {"DET-2"});
  imply_if(test_case.check == Check::schedule, {"SCHED-1", "SCHED-2"});
  imply_if(test_case.check == Check::memory, {"MEM-1", "MEM-2"});
  if (const DeviceCheck* of_device = find_device_check(test_case.check)) {
    implied.emplace_back(of_device->clause);
  }
  for (const std::string& name : test_case.laws) {
    const LawName& law = *find_law(name);
    implied.emplace_back(law.clause);
    for (const std::string_view id : clauses_of_variants(law, problem)) implied.emplace_back(id);
  }
  return implied;
}

void cite_implied(Case& test_case) {
  for (const std::string& id : implied_clauses(test_case)) {
    auto& all = test_case.clauses;
    if (std::find(all.begin(), all.end(), id) == all.end()) all.push_back(id);
  }
}

}  // namespace attest
