#include "harness/diagnosis/diagnose.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "harness/diagnosis/culprit.h"
#include "harness/diagnosis/looser.h"
#include "harness/diagnosis/retrial.h"
#include "harness/run/jobs.h"
#include "reports/digest.h"
#include "reports/groups.h"
#include "spec/feature.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

std::vector<std::string> features_needed(const Problem& problem) {
  std::set<std::string> names;
  for (const Feature* feature : needed_by(problem)) {
    if (feature->key == kOfFeatures) names.insert(std::string(feature->name));
  }
  return {names.begin(), names.end()};
}

constexpr std::size_t kMostLookedAt = 8;  // failures of a group
constexpr std::size_t kMostConsidered = 64;

struct Failure {
  Case test_case;
  Verdict verdict;
};

struct Grouped {
  Group group;
  std::vector<Failure> failures;  // of it that are looked at, the simplest first of all
};

// The case of a failure; nothing if there is none: a format beyond the caps.
std::optional<Case> case_of(const VerdictRecord& failure, const std::vector<Case>& cases,
                            const std::map<std::string, const Case*>& by_id) {
  const auto place = by_id.find(failure.case_id);
  if (place != by_id.end()) return *place->second;
  try {
    return find_case(cases, failure.case_id);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

// What decides which mistakes a failure can tell apart: the forms of its mask, and which sizes are
// one, or alike.
std::string form_of(const Problem& p) {
  std::string mask = to_string(p.mask);
  std::erase_if(mask, [](unsigned char c) { return std::isdigit(c) != 0 || c == '-'; });
  const int longer = (p.query_len > p.key_len) - (p.query_len < p.key_len);
  return fmt::format("{} {} {} {} {} {}", mask, longer, p.query_len == 1, p.batch == 1,
                     p.query_heads == 1, p.query_heads == p.key_heads);
}

// Those that are looked at: the simplest of each form, then the simplest of the others.
std::vector<Failure> varied(std::vector<Failure> all) {
  std::vector<Failure> chosen, others;
  std::set<std::string> forms;
  for (Failure& each : all) {
    const bool is_new = forms.insert(form_of(each.test_case.problem)).second;
    (is_new ? chosen : others).push_back(std::move(each));
  }
  for (Failure& each : others) chosen.push_back(std::move(each));
  if (chosen.size() > kMostLookedAt) chosen.erase(chosen.begin() + kMostLookedAt, chosen.end());
  return chosen;
}

std::map<std::string, const Case*> by_their_id(const std::vector<Case>& cases) {
  std::map<std::string, const Case*> by_id;
  for (const Case& each : cases) by_id[each.id] = &each;
  return by_id;
}

std::vector<Grouped> grouped(const Record& record, const std::vector<Case>& cases) {
  const auto by_id = by_their_id(cases);
  std::vector<Grouped> all;
  const Digest d = digest(record);
  for (const FailureGroup& like : failure_groups(d)) {
    const VerdictRecord& simplest = like.simplest();
    const Verdict& v = simplest.verdict;
    if (!is_fault(v.outcome)) continue;
    Grouped each = {{simplest.testee,
                     v.outcome,
                     v.reason,
                     failing_tensors(v),
                     static_cast<Index>(like.failures.size()),
                     simplest.case_id,
                     {}},
                    {}};
    std::set<std::string> problems;
    for (const VerdictRecord* failure : like.failures) {
      if (each.failures.size() == kMostConsidered) break;
      if (!problems.insert(without_format(failure->case_id)).second) continue;
      auto test_case = case_of(*failure, cases, by_id);
      if (!test_case) continue;
      each.failures.push_back({*std::move(test_case), failure->verdict});
    }
    if (each.failures.empty()) continue;
    each.failures = varied(std::move(each.failures));
    each.group.features = features_needed(each.failures[0].test_case.problem);
    all.push_back(std::move(each));
    if (all.size() == kMostGroups) break;
  }
  return all;
}

void look_at(Grouped& grouped, const Testee& testee, Executor& executor, const RunOptions& options,
             const std::function<bool()>& interrupted) {
  Consensus consensus;
  Admitting admitting;
  for (const Failure& each : grouped.failures) {
    if (consensus.is_hopeless() && admitting.is_hopeless()) break;
    const Case& failing = each.test_case;
    const auto again = try_again(failing, testee, executor, options, options.jobs,
                                 LookFor::declarations_too, interrupted);
    if (again && again->said) consensus.add(failing.id, *again->said);
    if (again && !is_too_large(failing)) admitting.add(again->admitted_by);
  }
  Consensus::Meant meant = consensus.meant();
  const auto seen =
      std::find_if(grouped.failures.begin(), grouped.failures.end(),
                   [&](const Failure& each) { return each.test_case.id == meant.case_id; });
  const auto& [told, verdict] = seen == grouped.failures.end() ? grouped.failures[0] : *seen;
  Group& group = grouped.group;
  group.case_id = told.id;
  group.features = features_needed(told.problem);
  group.alike = std::move(meant.alike);
  // Outputs of other problems are not there.
  if (!options.outputs) group.reliefs = reliefs(told, testee, executor, options, interrupted);
  group.blamed = culprit(verdict, told, group.alike, group.reliefs);
  put_first(group.alike, group.blamed);
  if (!group.alike.empty()) return;
  group.admitted_by = admitting.all();
  if (!group.admitted_by.empty()) group.blamed = kClauseOfDeclarations;
}

const Testee* named(const std::vector<Testee>& testees, const std::string& name) {
  const auto found = std::find_if(testees.begin(), testees.end(),
                                  [&](const Testee& each) { return each.name == name; });
  return found == testees.end() ? nullptr : &*found;
}

}  // namespace

std::vector<Group> diagnose(const Record& record, const std::vector<Case>& cases,
                            const std::vector<Testee>& testees, const RunOptions& options,
                            const MakeExecutor& make_executor,
                            const std::function<bool()>& interrupted) {
  std::vector<Group> groups;
  for (Grouped& each : grouped(record, cases)) {
    const Testee* testee = named(testees, each.group.testee);
    if (!testee) continue;
    // What hangs would hang in every smaller problem.
    if (!interrupted() && each.group.outcome != Outcome::timeout) {
      look_at(each, *testee, *make_executor(*testee), options, interrupted);
    }
    groups.push_back(std::move(each.group));
  }
  return groups;
}

std::vector<Explained> explain_each(const Record& record, const std::vector<Case>& cases,
                                    const std::vector<Testee>& testees, const RunOptions& options,
                                    const MakeExecutor& make_executor,
                                    const std::function<bool()>& interrupted) {
  const auto by_id = by_their_id(cases);
  std::vector<const VerdictRecord*> failures;
  for (const VerdictRecord& each : record.verdicts) {
    if (asks_for_names(each.verdict) && named(testees, each.testee)) failures.push_back(&each);
  }
  // A job has one testee at a time: they come one after the other.
  std::vector<std::size_t> by_testee(failures.size());
  std::iota(by_testee.begin(), by_testee.end(), std::size_t{0});
  std::stable_sort(by_testee.begin(), by_testee.end(), [&](std::size_t a, std::size_t b) {
    return failures[a]->testee < failures[b]->testee;
  });
  std::vector<std::optional<Explained>> all(failures.size());
  std::atomic<std::size_t> next = 0;
  in_parallel(options.jobs, [&] {
    std::unique_ptr<Executor> executor;
    const Testee* started = nullptr;
    for (std::size_t n = next++; n < by_testee.size() && !interrupted(); n = next++) {
      const std::size_t i = by_testee[n];
      const VerdictRecord& failure = *failures[i];
      const auto test_case = case_of(failure, cases, by_id);
      if (!test_case || is_too_large(*test_case)) continue;
      const Testee& testee = *named(testees, failure.testee);
      if (std::exchange(started, &testee) != &testee) {
        executor.reset();
        executor = make_executor(testee);
      }
      const auto again = try_again(*test_case, testee, *executor, options, 1,
                                   LookFor::declarations_too, interrupted);
      if (!again || !again->said) continue;
      all[i] = {failure.testee, failure.case_id, again->said->explaining, again->admitted_by};
    }
  });
  std::vector<Explained> explained;
  for (auto& each : all) {
    if (each) explained.push_back(*std::move(each));
  }
  return explained;
}

nlohmann::json to_json(const std::vector<Explained>& failures) {
  auto json = nlohmann::json::array();
  for (const Explained& failure : failures) {
    json.push_back({{"testee", failure.testee},
                    {"case", failure.case_id},
                    {"alike", nlohmann::json::array()},
                    {"admitted_by", failure.admitted_by}});
    for (const Likeness& each : failure.alike) {
      json.back()["alike"].push_back({{"name", each.name}, {"clause", each.clause}});
    }
  }
  return json;
}

nlohmann::json to_json(const std::vector<Group>& groups) {
  nlohmann::json json = {{"schema", "attest-diagnosis-1"}, {"groups", nlohmann::json::array()}};
  for (const Group& group : groups) {
    nlohmann::json each = {{"testee", group.testee},
                           {"outcome", name(group.outcome)},
                           {"reason", group.reason},
                           {"features", group.features},
                           {"tensors", nlohmann::json::array()},
                           {"failures", group.failures},
                           {"case", group.case_id},
                           {"headline", headline(group.alike)},
                           {"blamed", group.blamed},
                           {"did_you_mean", nlohmann::json::array()},
                           {"admitted_by", group.admitted_by},
                           {"passes_without", nlohmann::json::array()}};
    for (const TensorName tensor : group.tensors) each["tensors"].push_back(name(tensor));
    for (const Likeness& likeness : group.alike) {
      each["did_you_mean"].push_back({{"name", likeness.name},
                                      {"clause", likeness.clause},
                                      {"backward_alone", likeness.backward_alone},
                                      {"rows", likeness.rows},
                                      {"of_rows", likeness.of},
                                      {"heads", likeness.heads},
                                      {"of_heads", likeness.of_heads},
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

std::vector<Diagnosis> diagnoses_of(const std::vector<Group>& groups) {
  std::vector<Diagnosis> diagnoses;
  for (const Group& group : groups) {
    Diagnosis each = {.testee = group.testee,
                      .case_id = group.case_id,
                      .headline = headline(group.alike),
                      .admitted_by = group.admitted_by,
                      .blamed = group.blamed};
    for (const Relief& relief : group.reliefs) {
      if (relief.passes) each.passes_without.push_back(relief.what);
    }
    diagnoses.push_back(std::move(each));
  }
  return diagnoses;
}

std::string to_text(const std::vector<Group>& groups) {
  // What is known of several groups alike is told once, with the simplest.
  struct Told {
    Diagnosis simplest;
    std::vector<std::string> known;
    Index failures = 0, groups = 0;
  };
  std::vector<Told> all;
  const std::vector<Diagnosis> diagnoses = diagnoses_of(groups);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::vector<std::string> known = diagnosis_lines(diagnoses[i]);
    if (known.empty()) continue;
    auto place = std::find_if(all.begin(), all.end(), [&](const Told& told) {
      return told.simplest.testee == groups[i].testee && told.known == known;
    });
    if (place == all.end())
      place = all.insert(all.end(), {.simplest = diagnoses[i], .known = known});
    place->failures += groups[i].failures;
    ++place->groups;
  }
  std::string text;
  for (const Told& told : all) {
    text += fmt::format("  {} failure{} of {}{}\n    {}\n    {}\n", told.failures,
                        told.failures == 1 ? "" : "s", told.simplest.testee,
                        told.groups == 1 ? "" : fmt::format(", in {} groups", told.groups),
                        fmt::join(told.known, "\n    "), told.simplest.case_id);
  }
  return text.empty() ? text : "\nDid you mean\n" + text;
}

}  // namespace attest
