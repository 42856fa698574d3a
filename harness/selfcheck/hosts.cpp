#include "harness/selfcheck/hosts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "harness/run/conclude.h"
#include "harness/selfcheck/selfcheck.h"
#include "reports/text.h"
#include "spec/clause.h"
#include "spec/contains.h"
#include "spec/feature.h"

namespace attest {
namespace {

std::string before_slash(const std::string& name) { return name.substr(0, name.find('/')); }
std::string behind_slash(const std::string& name) { return name.substr(name.find('/') + 1); }

// Mutants by the names that they have in every host, each with whether it was caught in all formats
// in which it shows.
std::map<std::string, bool> caught_in(const HostCheck& host) {
  std::map<std::string, bool> caught;
  for (const Hunted& each : host.hunt.hunted) {
    const auto place =
        caught.emplace(behind_slash(host.catalogue.mutants[each.mutant].name), true).first;
    place->second = place->second && each.caught.has_value();
  }
  return caught;
}

// For each clause, how many of the cases cite it.
std::map<std::string, Index> cases_by_clause(const HostCheck& host) {
  std::map<std::string, Index> counts;
  for (const Case& c : host.cases) {
    for (const std::string& clause : c.clauses) ++counts[clause];
  }
  return counts;
}

// Whether a clause doesn't speak of features alone that the testee lacks.
bool speaks_to(const std::string& clause, const Description& testee) {
  bool lacks = false;
  for (const Feature* feature : features_with(clause)) {
    if (feature->key != kOfFeatures) continue;
    if (testee.has(feature->name)) return true;
    lacks = true;
  }
  return !lacks;
}

std::string failed_text(const char* what, const std::vector<VerdictRecord>& records) {
  std::string text;
  for (const VerdictRecord& each : records) {
    text += fmt::format("{}:\n  {} {} on {}\n    {}\n    {}\n", what, name(each.verdict.outcome),
                        one_line(each.testee), each.case_id, one_line(each.verdict.message),
                        one_line(each.verdict.repro));
  }
  return text;
}

std::string missed_text(const HostCheck& host) {
  std::string text;
  for (const Hunted& each : host.hunt.hunted) {
    if (each.caught) continue;
    const Mutant& mutant = host.catalogue.mutants[each.mutant];
    text += fmt::format("NOT CAUGHT: {} in {}: {}\n  it violates {}; {} tried\n",
                        one_line(mutant.name), name(each.dtype), one_line(mutant.about),
                        fmt::join(mutant.clauses, ", "), count_text(each.tried, "case"));
  }
  return text;
}

bool is_fine(const HostCheck& host) {
  const auto caught = caught_in(host);
  return host.failed.empty() && host.hunt.accused.empty() &&
         std::all_of(caught.begin(), caught.end(), [](const auto& each) { return each.second; });
}

}  // namespace

std::map<std::string, std::vector<Testee>> by_host(const std::vector<Testee>& testees) {
  std::map<std::string, std::vector<Testee>> hosts;
  for (const Testee& each : testees) hosts[before_slash(each.kernel)].push_back(each);
  return hosts;
}

std::vector<Case> cheap_ones(const std::vector<Case>& cases) {
  constexpr double kMostCost = 4e6;
  constexpr std::size_t kMost = 60;
  std::set<std::tuple<std::string, int, DType>> met;
  std::vector<Case> some;
  for (const Case& c : cases) {
    if (cost_of(c) > kMostCost) continue;
    if (met.insert({c.file, c.line, c.problem.dtype}).second) some.push_back(c);
  }
  return sample(some, kMost);
}

Catalogue in_host(const Catalogue& catalogue, const std::string& host,
                  const Description& description) {
  const std::vector<DType>& dtypes = description.dtypes;
  const auto name_there = [&](const std::string& name) {
    return fmt::format("{}/{}", host, behind_slash(name));
  };
  Catalogue result;
  for (Mutant mutant : catalogue.mutants) {
    if (mutant.dtypes.empty()) mutant.dtypes = dtypes;
    std::erase_if(mutant.dtypes, [&](DType each) { return !contains(dtypes, each); });
    const bool binds =
        std::any_of(mutant.clauses.begin(), mutant.clauses.end(), [&](const std::string& clause) {
          return !is_recommended(clause) && speaks_to(clause, description);
        });
    mutant.name = name_there(mutant.name);
    const bool is_equivalent =
        std::any_of(catalogue.equivalent.begin(), catalogue.equivalent.end(),
                    [&](const Uncounted& each) { return each.name == mutant.name; });
    if (mutant.dtypes.empty() || !binds || is_equivalent) continue;
    mutant.control = name_there(mutant.control);
    result.mutants.push_back(std::move(mutant));
  }
  for (const std::string& control : catalogue.controls) {
    result.controls.push_back(name_there(control));
  }
  return result;
}

Catalogue of_shown(Catalogue catalogue, const Shows& shows) {
  for (std::size_t m = 0; m < catalogue.mutants.size(); ++m) {
    std::erase_if(catalogue.mutants[m].dtypes, [&](DType each) {
      return !shows.contains({m, each});
    });
  }
  std::erase_if(catalogue.mutants, [](const Mutant& each) { return each.dtypes.empty(); });
  return catalogue;
}

std::string to_text(const HostsCheck& check) {
  std::string text =
      fmt::format("{:<18} {:>6} {:>8} {:>6} {:>7}\n", "host", "cases", "mutants", "show", "caught");
  for (const HostCheck& host : check.hosts) {
    const auto caught = caught_in(host);
    text += fmt::format(
        "{:<18} {:>6} {:>8} {:>6} {:>7}\n", host.name, host.cases.size(), host.mutants,
        caught.size(),
        std::count_if(caught.begin(), caught.end(), [](const auto& each) { return each.second; }));
  }
  for (const HostCheck& host : check.hosts) {
    text += missed_text(host) + failed_text("A HOST WITHOUT A FAULT FAILS", host.failed) +
            failed_text("A CONTROL FAILS", host.hunt.accused) +
            failed_text("OUR OWN ERROR", host.hunt.our_own);
  }
  return text + fmt::format("{}It took {}.\n", check.interrupted ? "Interrupted. " : "",
                            duration_text(check.wall_s));
}

nlohmann::json to_json(const HostsCheck& check) {
  nlohmann::json hosts = nlohmann::json::array();
  for (const HostCheck& host : check.hosts) {
    nlohmann::json caught = nlohmann::json::array(), missed = nlohmann::json::array();
    for (const auto& [mutant, is_caught] : caught_in(host)) {
      (is_caught ? caught : missed).push_back(mutant);
    }
    hosts.push_back({{"host", host.name},
                     {"cases", host.cases.size()},
                     {"cases_by_clause", cases_by_clause(host)},
                     {"mutants", host.mutants},
                     {"caught", caught},
                     {"missed", missed},
                     {"failed", host.failed.size()},
                     {"accused_controls", host.hunt.accused.size()}});
  }
  return {{"exit_code", exit_code_of(check)},
          {"interrupted", check.interrupted},
          {"wall_s", check.wall_s},
          {"hosts", hosts}};
}

int exit_code_of(const HostsCheck& check) {
  const auto has_own_error = [](const HostCheck& host) { return !host.hunt.our_own.empty(); };
  if (std::any_of(check.hosts.begin(), check.hosts.end(), has_own_error)) {
    return kUsageOrHarnessError;
  }
  if (!std::all_of(check.hosts.begin(), check.hosts.end(), is_fine)) {
    return check.interrupted ? kIncomplete : kNotConformant;
  }
  return check.interrupted || check.hosts.empty() ? kIncomplete : kConformant;
}

}  // namespace attest
