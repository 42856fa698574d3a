#include "harness/selfcheck/selfcheck.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/run/conclude.h"
#include "reports/text.h"
#include "spec/clause.h"
#include "spec/contains.h"

namespace attest {
namespace {

// The clause by which a verdict convicts a mutant: the one it blames, or the first that the mutant
// violates.
std::string clause_text(const Verdict& v, const Mutant& mutant) {
  for (const std::string& clause : v.clauses) {
    if (std::find(mutant.clauses.begin(), mutant.clauses.end(), clause) != mutant.clauses.end()) {
      return clause;
    }
  }
  return "";
}

// A case without its dtype, which stands apart.
std::string without_dtype(const std::string& id) {
  const auto begin = id.find("/dtype=");
  if (begin == std::string::npos) return id;
  return id.substr(0, begin) + id.substr(std::min(id.find('/', begin + 1), id.size()));
}

const Mutant& mutant_of(const Selfcheck& check, const Hunted& hunted) {
  return check.catalogue.mutants[hunted.mutant];
}

bool was_tried(const Hunted& hunted) { return hunted.tried > 0; }

struct Tally {
  std::size_t caught = 0, all = 0;
};

// Mutants, each caught if it is in all of its dtypes.
std::map<std::string, Tally> by_class(const Selfcheck& check) {
  std::map<std::size_t, bool> caught;
  for (const Hunted& hunted : check.hunt->hunted) {
    const auto place = caught.emplace(hunted.mutant, true).first;
    place->second = place->second && hunted.caught.has_value();
  }
  std::map<std::string, Tally> classes;
  for (const auto& [mutant, is_caught] : caught) {
    Tally& tally = classes[check.catalogue.mutants[mutant].defect_class];
    tally.caught += is_caught;
    ++tally.all;
  }
  return classes;
}

Tally total(const Selfcheck& check) {
  Tally sum;
  for (const auto& [defect_class, tally] : by_class(check)) {
    sum.caught += tally.caught;
    sum.all += tally.all;
  }
  return sum;
}

std::vector<std::string> clauses_without_mutant(const Selfcheck& check) {
  std::set<std::string> violated;
  for (const Mutant& mutant : check.catalogue.mutants) {
    violated.insert(mutant.clauses.begin(), mutant.clauses.end());
  }
  std::vector<std::string> without;
  for (const Clause& clause : clauses()) {
    if (!violated.contains(std::string(clause.id))) without.emplace_back(clause.id);
  }
  return without;
}

std::vector<std::string> cases_without_catch(const Selfcheck& check) {
  std::vector<std::string> ids;
  for (const Case& c : check.cases) {
    if (!check.hunt->catches.contains(c.id)) ids.push_back(c.id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::string evidence(const VerdictRecord& record) {
  return fmt::format("  {} {} on {}\n    {}\n    {}\n", outcome_text(record.verdict),
                     one_line(record.testee), record.case_id, one_line(record.verdict.message),
                     one_line(record.verdict.repro));
}

// One line for a mutant, or for its dtypes that the same case catches.
std::string catches_text(const Selfcheck& check) {
  struct Line {
    std::size_t mutant;
    std::string how;
    std::vector<std::string> dtypes;
    std::vector<std::string> counts;
  };
  std::vector<Line> lines;
  for (const Hunted& hunted : check.hunt->hunted) {
    if (!hunted.caught) continue;
    const Mutant& mutant = mutant_of(check, hunted);
    const Verdict& v = hunted.caught->verdict;
    const std::string how = fmt::format("{} {} {}", outcome_text(v), clause_text(v, mutant),
                                        without_dtype(hunted.caught->case_id));
    auto line = std::find_if(lines.begin(), lines.end(), [&](const Line& each) {
      return each.mutant == hunted.mutant && each.how == how;
    });
    if (line == lines.end()) line = lines.insert(lines.end(), {hunted.mutant, how, {}, {}});
    line->dtypes.emplace_back(name(hunted.dtype));
    line->counts.push_back(fmt::format("{} of {}", hunted.catching, hunted.tried));
  }
  std::string text;
  for (const Line& line : lines) {
    const Mutant& mutant = check.catalogue.mutants[line.mutant];
    text += fmt::format("{} {} [{}] {}", mutant.id, one_line(mutant.name),
                        fmt::join(line.dtypes, " "), line.how);
    if (check.all_catches) text += fmt::format("; {} cases", fmt::join(line.counts, ", "));
    text += "\n";
  }
  return text;
}

std::string missed_text(const Selfcheck& check) {
  std::string text;
  Index untried = 0;
  for (const Hunted& hunted : check.hunt->hunted) {
    if (hunted.caught) continue;
    if (hunted.tried == 0) {
      ++untried;
      continue;
    }
    const Mutant& mutant = mutant_of(check, hunted);
    text += fmt::format("NOT CAUGHT: {} {} in {}: {}\n  it violates {}; {} tried", mutant.id,
                        one_line(mutant.name), name(hunted.dtype), one_line(mutant.about),
                        fmt::join(mutant.clauses, ", "), count_text(hunted.tried, "case"));
    if (!hunted.nearest_case.empty()) {
      text += fmt::format("; nearest {} of a bound, on {}", ratio_text(hunted.nearest),
                          hunted.nearest_case);
    }
    text += "\n";
  }
  if (untried > 0) {
    text += fmt::format(
        "Not tried, as no case was chosen that could catch them: {}, each in a "
        "format\n",
        count_text(untried, "mutant"));
  }
  return text;
}

// The clause by the verdict that caught it, or by that and its diagnosis.
const std::string& blamed(const Hunted& hunted, bool diagnosed) {
  return diagnosed ? hunted.culprit : hunted.caught->verdict.blamed;
}

// Mutants that are caught, and those of them that are blamed right in every dtype.
Tally blame_of(const Selfcheck& check, bool diagnosed) {
  std::map<std::size_t, bool> right;
  for (const Hunted& hunted : check.hunt->hunted) {
    if (!hunted.caught) continue;
    const auto place = right.emplace(hunted.mutant, true).first;
    place->second =
        place->second && contains(mutant_of(check, hunted).clauses, blamed(hunted, diagnosed));
  }
  const auto count =
      std::count_if(right.begin(), right.end(), [](auto& each) { return each.second; });
  return {.caught = static_cast<std::size_t>(count), .all = right.size()};
}

bool is_blamed_well(const Selfcheck& check) {
  const Tally tally = blame_of(check, true);
  return 20 * tally.caught >= 19 * tally.all;
}

std::string blame_text(const Selfcheck& check) {
  std::string text;
  for (const Hunted& hunted : check.hunt->hunted) {
    const Mutant& mutant = mutant_of(check, hunted);
    if (!hunted.caught || contains(mutant.clauses, blamed(hunted, check.diagnosed))) continue;
    text += fmt::format("blamed on {} instead of {}: {} in {}, {}\n",
                        blamed(hunted, check.diagnosed), list_text(mutant.clauses, ""), mutant.name,
                        name(hunted.dtype), hunted.caught->case_id);
  }
  const Tally tally = blame_of(check, false);
  text += fmt::format("{} of {} that are caught are blamed on a clause that they violate",
                      tally.caught, count_text(static_cast<Index>(tally.all), "mutant"));
  if (check.diagnosed) text += fmt::format(", diagnosed {}", blame_of(check, true).caught);
  return text + "\n";
}

// What caught each mutant, and what nobody was tried on.
std::string details_text(const Selfcheck& check) {
  std::string text = catches_text(check) + "\n";
  text += fmt::format("{:<24} {:>6} {:>8}\n", "class", "caught", "mutants");
  for (const auto& [defect_class, tally] : by_class(check)) {
    text += fmt::format("{:<24} {:>6} {:>8}\n", one_line(defect_class), tally.caught, tally.all);
  }
  if (check.all_catches) {
    const auto dead = cases_without_catch(check);
    text += fmt::format("\n{} of {} catch no mutant\n", dead.size(),
                        count_text(static_cast<Index>(check.cases.size()), "case"));
    for (const std::string& id : dead) text += fmt::format("  {}\n", id);
  }
  text += fmt::format("\nClauses without a mutant: {}\n",
                      list_text(clauses_without_mutant(check), "none"));
  for (const Uncounted& each : check.catalogue.equivalent) {
    text +=
        fmt::format("Equivalent, not counted: {}: {}\n", one_line(each.name), one_line(each.why));
  }
  return text;
}

std::string to_text(const Selfcheck& check, const Hunt& hunt, bool briefly) {
  std::string text = briefly ? "" : details_text(check);
  text += missed_text(check) + blame_text(check);
  for (const VerdictRecord& each : hunt.accused) text += "A CONTROL FAILS:\n" + evidence(each);
  for (const VerdictRecord& each : hunt.our_own) text += "OUR OWN ERROR:\n" + evidence(each);
  const Tally sum = total(check);
  std::set<std::size_t> warned;
  for (const Hunted& each : hunt.hunted) {
    if (each.caught && each.caught->verdict.outcome == Outcome::warn) warned.insert(each.mutant);
  }
  if (!warned.empty()) {
    text += fmt::format(
        "{} caught by a warning: it breaks nothing but recommendations, as right kernels may\n",
        count_text(static_cast<Index>(warned.size()), "mutant"));
  }
  return text + fmt::format(
                    "{} of {} caught, in every dtype that they concern{}; {} not expressible\n",
                    sum.caught, count_text(static_cast<Index>(sum.all), "mutant"),
                    hunt.interrupted ? " (interrupted)" : "",
                    count_text(static_cast<Index>(check.catalogue.inexpressible.size()), "defect"));
}

std::string to_text(const Trust& trust) {
  std::string text;
  for (const VerdictRecord& each : trust.failed)
    text += "A CORRECT KERNEL FAILS:\n" + evidence(each);
  std::set<std::string> failed;
  for (const VerdictRecord& each : trust.failed) failed.insert(each.testee);
  std::vector<std::string> counts;
  for (const auto& [outcome, count] : trust.counts)
    counts.push_back(fmt::format("{} {}", count, outcome));
  return text + fmt::format("{} of {} failed, on {}{}: {}{}\n", failed.size(),
                            count_text(static_cast<Index>(trust.kernels), "legitimate kernel"),
                            trust.all ? "all of " : "a sample of ",
                            count_text(static_cast<Index>(trust.cases), "case"),
                            list_text(counts, "no verdicts"),
                            trust.interrupted ? " (interrupted)" : "");
}

nlohmann::json in_short(const VerdictRecord& record) {
  return {{"case", record.case_id},
          {"testee", record.testee},
          {"outcome", name(record.verdict.outcome)},
          {"reason", record.verdict.reason},
          {"message", record.verdict.message},
          {"repro", record.verdict.repro}};
}

nlohmann::json to_json(const std::vector<VerdictRecord>& records) {
  nlohmann::json list = nlohmann::json::array();
  for (const VerdictRecord& each : records) list.push_back(in_short(each));
  return list;
}

nlohmann::json to_json(const std::vector<Uncounted>& uncounted) {
  nlohmann::json list = nlohmann::json::array();
  for (const Uncounted& each : uncounted) list.push_back({{"name", each.name}, {"why", each.why}});
  return list;
}

nlohmann::json to_json(const Selfcheck& check, const Hunt& hunt) {
  nlohmann::json json = {{"full", check.all_catches},
                         {"interrupted", hunt.interrupted},
                         {"clauses_without_mutant", clauses_without_mutant(check)},
                         {"equivalent", to_json(check.catalogue.equivalent)},
                         {"inexpressible", to_json(check.catalogue.inexpressible)},
                         {"controls", check.catalogue.controls},
                         {"accused_controls", to_json(hunt.accused)},
                         {"harness_errors", to_json(hunt.our_own)},
                         {"classes", nlohmann::json::array()},
                         {"hunted", nlohmann::json::array()}};
  for (const auto& [defect_class, tally] : by_class(check)) {
    json["classes"].push_back(
        {{"class", defect_class}, {"caught", tally.caught}, {"mutants", tally.all}});
  }
  for (const Hunted& hunted : hunt.hunted) {
    const Mutant& mutant = mutant_of(check, hunted);
    nlohmann::json each = {{"mutant", mutant.name},
                           {"id", mutant.id},
                           {"class", mutant.defect_class},
                           {"reference", mutant.reference},
                           {"about", mutant.about},
                           {"violates", mutant.clauses},
                           {"dtype", name(hunted.dtype)},
                           {"candidates", hunted.candidates},
                           {"tried", hunted.tried},
                           {"catching", hunted.catching},
                           {"caught", hunted.caught.has_value()}};
    if (hunted.caught) {
      each.update(in_short(*hunted.caught));
      each["clause"] = clause_text(hunted.caught->verdict, mutant);
      each["blamed"] = hunted.caught->verdict.blamed;
      if (check.diagnosed) each["blamed_diagnosed"] = hunted.culprit;
    } else {
      each["nearest"] = number_to_json(hunted.nearest);
      each["nearest_case"] = hunted.nearest_case;
    }
    json["hunted"].push_back(std::move(each));
  }
  if (check.all_catches) json["catches_by_case"] = hunt.catches;
  if (check.all_catches) json["cases_without_catch"] = cases_without_catch(check);
  return json;
}

}  // namespace

Trust trust_of(const Record& record, std::size_t cases) {
  Trust trust = {.kernels = record.header.testees.size(),
                 .cases = cases,
                 .interrupted = !record.footer.has_value()};
  for (const VerdictRecord& each : record.verdicts) {
    const Outcome outcome = each.verdict.outcome;
    ++trust.counts[std::string(name(outcome))];
    if (conforms(outcome) || says_nothing(outcome)) continue;
    trust.failed.push_back(each);
  }
  return trust;
}

std::vector<Case> sample(const std::vector<Case>& cases, std::size_t count) {
  std::vector<Case> chosen;
  const std::size_t taken = std::min(count, cases.size());
  for (std::size_t i = 0; i < taken; ++i) chosen.push_back(cases[i * cases.size() / taken]);
  return chosen;
}

std::string to_text(const Selfcheck& check, bool briefly) {
  std::string text;
  if (check.hunt) text += to_text(check, *check.hunt, briefly);
  if (check.trust) text += to_text(*check.trust);
  return text + fmt::format("It took {}.\n", duration_text(check.wall_s));
}

nlohmann::json to_json(const Selfcheck& check) {
  nlohmann::json json = {{"exit_code", exit_code_of(check)},
                         {"filtered", check.filtered},
                         {"cases", check.cases.size()},
                         {"wall_s", check.wall_s}};
  if (check.hunt) json["mutants"] = to_json(check, *check.hunt);
  if (check.trust) {
    json["legitimate"] = {
        {"kernels", check.trust->kernels},         {"cases", check.trust->cases},
        {"all_cases", check.trust->all},           {"counts", check.trust->counts},
        {"interrupted", check.trust->interrupted}, {"failed", to_json(check.trust->failed)}};
  }
  return json;
}

int exit_code_of(const Selfcheck& check) {
  bool complete = check.hunt || check.trust, right = true;
  const auto is_ours = [](const VerdictRecord& each) {
    return each.verdict.outcome == Outcome::harness_error;
  };
  if (check.trust) {
    const Trust& trust = *check.trust;
    if (std::any_of(trust.failed.begin(), trust.failed.end(), is_ours)) return kUsageOrHarnessError;
    right = right && trust.failed.empty();
    complete = complete && !trust.interrupted && trust.counts.contains("PASS");
  }
  if (check.hunt) {
    const Hunt& hunt = *check.hunt;
    if (!hunt.our_own.empty()) return kUsageOrHarnessError;
    right = right && hunt.accused.empty();
    complete = complete && !hunt.interrupted && !hunt.hunted.empty();
    for (const Hunted& hunted : hunt.hunted) {
      if (hunted.caught) continue;
      const bool excused = hunt.interrupted || (check.filtered && !was_tried(hunted));
      (excused ? complete : right) = false;
    }
    right = right && (!check.diagnosed || hunt.interrupted || is_blamed_well(check));
  }
  return !right ? kNotConformant : complete ? kConformant : kIncomplete;
}

}  // namespace attest
