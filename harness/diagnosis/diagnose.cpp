#include "harness/diagnosis/diagnose.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "harness/diagnosis/culprit.h"
#include "spec/feature.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

// Of two failures of a group the one is told that has fewer features and less work.
double work(const Problem& p) {
  double product = p.backward ? 4 : 1;
  for (const Index size :
       {p.batch, p.query_heads, p.query_len, p.key_len, p.head_dim + p.value_dim}) {
    product *= static_cast<double>(std::max<Index>(size, 1));
  }
  return product;
}

std::vector<std::string> features_needed(const Problem& problem) {
  std::set<std::string> names;
  for (const Feature* feature : needed_by(problem)) {
    if (feature->key == kOfFeatures) names.insert(std::string(feature->name));
  }
  return {names.begin(), names.end()};
}

std::vector<std::string> wrong_tensors(const Verdict& verdict) {
  std::vector<std::string> names;
  for (const auto& [tensor, evidence] : verdict.tensors) {
    if (!(evidence.max_ratio <= 1)) names.push_back(tensor);
  }
  return names;
}

struct Failure {
  double work;
  Case test_case;
  Verdict verdict;
};
struct Grouped {
  Group group;
  std::vector<Failure> cases;  // the simplest first
};

std::vector<Grouped> grouped(const Record& record, const std::vector<Case>& cases) {
  std::map<std::string, const Case*> known;
  for (const Case& each : cases) known[each.id] = &each;
  std::map<
      std::tuple<std::string, Outcome, Reason, std::vector<std::string>, std::vector<std::string>>,
      Grouped>
      groups;
  for (const VerdictRecord& each : record.verdicts) {
    if (!is_fault(each.verdict.outcome)) continue;
    Case test_case;
    try {
      const auto place = known.find(each.case_id);
      test_case = place != known.end() ? *place->second : find_case(cases, each.case_id);
    } catch (const InputError&) {
      continue;  // of no case: a format beyond the caps
    }
    const Verdict& v = each.verdict;
    Group group = {each.testee,      v.outcome, v.reason, features_needed(test_case.problem),
                   wrong_tensors(v), 0,         {}};
    auto key = std::tuple(group.testee, group.outcome, group.reason, group.features, group.tensors);
    Grouped& at = groups.try_emplace(std::move(key), Grouped{std::move(group), {}}).first->second;
    ++at.group.failures;
    at.cases.push_back({work(test_case.problem), std::move(test_case), v});
  }
  std::vector<Grouped> all;
  for (auto& [key, each] : groups) {
    std::sort(each.cases.begin(), each.cases.end(), [](const Failure& a, const Failure& b) {
      return std::tie(a.work, a.test_case.id) < std::tie(b.work, b.test_case.id);
    });
    each.group.case_id = each.cases[0].test_case.id;
    all.push_back(std::move(each));
  }
  std::stable_sort(all.begin(), all.end(), [](const Grouped& a, const Grouped& b) {
    return std::pair(a.group.features.size(), a.cases[0].work) <
           std::pair(b.group.features.size(), b.cases[0].work);
  });
  all.erase(all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), kMostGroups)),
            all.end());
  return all;
}

void look_at(Grouped& each, const Testee& testee, Executor& executor, const RunOptions& options,
             const std::function<bool()>& interrupted) {
  constexpr std::ptrdiff_t kMostLookedAt = 8;
  Consensus consensus;
  for (const Failure& failure : each.cases) {
    if (&failure - each.cases.data() == kMostLookedAt || consensus.is_reached()) break;
    PreparedCase prepared(failure.test_case, options.jobs);
    const Examination again =
        examine(prepared, testee.description, testee.kernel, executor, options.threads);
    const auto declared = testee.description.arithmetic.find(prepared.problem().dtype);
    if (!asks_for_names(again.verdict) || declared == testee.description.arithmetic.end()) continue;
    consensus.add(failure.test_case.id,
                  alike(prepared, testee.description, declared->second, again.trial, interrupted));
  }
  each.group.alike = consensus.meant();
  const Case& simplest = each.cases[0].test_case;
  each.group.reliefs = reliefs(simplest, testee, executor, options, interrupted);
  each.group.blamed =
      culprit(each.cases[0].verdict, simplest, each.group.alike, each.group.reliefs);
}

}  // namespace

std::vector<Group> diagnose(const Record& record, const std::vector<Case>& cases,
                            const std::vector<Testee>& testees, const RunOptions& options,
                            const MakeExecutor& make_executor,
                            const std::function<bool()>& interrupted) {
  std::vector<Group> groups;
  for (Grouped& each : grouped(record, cases)) {
    const auto testee = std::find_if(testees.begin(), testees.end(),
                                     [&](const Testee& t) { return t.name == each.group.testee; });
    if (testee == testees.end()) continue;
    // What hangs would hang in every neighbour.
    if (!interrupted() && each.group.outcome != Outcome::timeout) {
      look_at(each, *testee, *make_executor(*testee), options, interrupted);
    }
    groups.push_back(std::move(each.group));
  }
  return groups;
}

nlohmann::json to_json(const std::vector<Group>& groups) {
  nlohmann::json json = {{"schema", "attest-diagnosis-1"}, {"groups", nlohmann::json::array()}};
  for (const Group& group : groups) {
    nlohmann::json each = {{"testee", group.testee},
                           {"outcome", name(group.outcome)},
                           {"reason", group.reason},
                           {"features", group.features},
                           {"tensors", group.tensors},
                           {"failures", group.failures},
                           {"case", group.case_id},
                           {"headline", headline(group.alike)},
                           {"blamed", group.blamed},
                           {"did_you_mean", nlohmann::json::array()},
                           {"passes_without", nlohmann::json::array()}};
    for (const Likeness& likeness : group.alike) {
      each["did_you_mean"].push_back({{"name", likeness.name},
                                      {"clause", likeness.clause},
                                      {"backward_alone", likeness.backward_alone},
                                      {"rows", likeness.rows},
                                      {"of_rows", likeness.of},
                                      {"telling_elements", likeness.telling}});
    }
    for (const Relief& relief : group.reliefs) {
      if (!relief.passes) continue;
      each["passes_without"].push_back({{"what", relief.what}, {"clauses", relief.clauses}});
    }
    json["groups"].push_back(std::move(each));
  }
  return json;
}

std::string to_text(const std::vector<Group>& groups) {
  std::string text;
  for (const Group& group : groups) {
    std::vector<std::string> parts;
    if (!group.alike.empty()) parts.push_back(headline(group.alike));
    std::vector<std::string> without;
    for (const Relief& relief : group.reliefs) {
      if (relief.passes) without.push_back(relief.what);
    }
    if (!without.empty()) {
      parts.push_back(fmt::format("passes without {}", fmt::join(without, "; without ")));
    }
    if (parts.empty()) continue;
    if (!group.blamed.empty()) parts.push_back("blamed on " + group.blamed);
    text += fmt::format("  {} failure{} of {}: {}\n    {}\n", group.failures,
                        group.failures == 1 ? "" : "s", group.testee, fmt::join(parts, "; "),
                        group.case_id);
  }
  return text.empty() ? text : "\nDid you mean\n" + text;
}

}  // namespace attest
