#include "harness/selfcheck/naming.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/diagnosis/likeness.h"
#include "harness/diagnosis/mistake.h"
#include "harness/diagnosis/retrial.h"
#include "harness/run/jobs.h"
#include "reports/groups.h"
#include "spec/contains.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"
#include "spec/read_file.h"

namespace attest {
namespace {

// Failing cases of a mutant that are looked at, and cases that are tried after each for another.
constexpr Index kMostFailed = 12;
constexpr Index kMostTried = 300;
constexpr std::ptrdiff_t kMostElse = 6;  // other clauses of a case that is of little else

// Of the cases those of a clause that the mutant violates, each in one format that it concerns.
// Those that tell most come first: of what is computed, of little else, of many such clauses.
std::vector<const Case*> cases_for(const std::vector<Case>& cases, const Mutant& mutant,
                                   const Testee& testee) {
  const auto& dtypes = mutant.dtypes.empty() ? testee.description.dtypes : mutant.dtypes;
  using Order = std::pair<bool, std::ptrdiff_t>;
  std::map<Order, std::vector<const Case*>, std::greater<>> rounds;
  for (const Case& each : cases) {
    if (std::find(dtypes.begin(), dtypes.end(), each.problem.dtype) == dtypes.end()) continue;
    const auto common =
        std::count_if(each.clauses.begin(), each.clauses.end(), [&](const std::string& clause) {
          return std::find(mutant.clauses.begin(), mutant.clauses.end(), clause) !=
                 mutant.clauses.end();
        });
    const bool of_little_else = std::ssize(each.clauses) <= common + kMostElse;
    if (common > 0) rounds[{of_little_else, common}].push_back(&each);
  }
  std::vector<const Case*> result;
  std::set<std::string> met;
  for (const auto& [order, round] : rounds) {
    for (const Case* each : round) {
      if (met.insert(without_format(each->id)).second) result.push_back(each);
    }
  }
  std::stable_partition(result.begin(), result.end(),
                        [](const Case* each) { return is_plain(*each); });
  return result;
}

// Whether one of the mistakes is among those that are meant.
bool is_meant(const std::vector<Likeness>& named, const std::vector<std::string>& meant) {
  return std::any_of(named.begin(), named.end(),
                     [&](const Likeness& each) { return contains(meant, each.name); });
}

// Failures are put together as those of a run are: what is named holds for those of one kind.
Naming name_fault(const std::vector<const Case*>& cases, const Mutant& mutant,
                  const std::vector<std::string>& meant, const Testee& testee, Executor& executor,
                  const RunOptions& options, const std::function<bool()>& interrupted) {
  Naming naming = {.mutant = mutant.name};
  std::map<FailureKind, Consensus> groups;
  bool is_known = false;
  Index tried = 0;  // since the last that failed
  for (const Case* each : cases) {
    if (interrupted() || naming.failed >= kMostFailed || is_known) break;
    if (naming.failed > 0 && tried++ == kMostTried) break;
    const auto again =
        try_again(*each, testee, executor, options, 1, LookFor::mistakes, interrupted);
    if (!again) continue;
    tried = 0;
    ++naming.failed;
    naming.case_id = each->id;
    if (!again->said) continue;
    Consensus& group = groups[kind_of(testee.name, again->verdict)];
    group.add(each->id, *again->said);
    is_known = group.is_reached() && !group.is_hopeless();
  }
  for (const auto& [kind, group] : groups) {
    const Consensus::Meant named = group.meant();
    if (named.alike.empty() || naming.wrong()) continue;
    naming.right = is_meant(named.alike, meant);
    naming.case_id = named.case_id;
    naming.headline = headline(named.alike);
    naming.names.clear();
    for (const Likeness& each : named.alike) naming.names.push_back(each.name);
  }
  return naming;
}

}  // namespace

Meant read_meant(const std::filesystem::path& file) {
  const nlohmann::json json = parse_json(read_file(file));
  ObjectReader reader(json, "");
  reader.get<std::string>("about");
  reader.get<std::vector<std::string>>("kinds");
  auto meant = reader.get<Meant>("meant");
  reader.finish();
  std::set<std::string> known;
  for (const Mistake& mistake : mistakes()) known.insert(mistake.name);
  for (const auto& [mutant, names] : meant) {
    for (const std::string& name : names) {
      if (!known.contains(name)) {
        throw InputError(
            "", fmt::format("{}: {}: there is no mistake \"{}\"", file.string(), mutant, name));
      }
    }
  }
  return meant;
}

std::vector<Naming> name_faults(const std::vector<Case>& cases, const Catalogue& catalogue,
                                const std::vector<Testee>& testees, const Meant& meant,
                                const RunOptions& options, const MakeExecutor& make_executor,
                                const std::function<bool()>& interrupted) {
  std::vector<std::pair<const Mutant*, const Testee*>> asked;
  std::vector<const std::vector<std::string>*> names;
  for (const auto& each : meant) {
    const std::string& name = each.first;
    const std::string kernel = "mutant/" + name;
    const auto mutant =
        std::find_if(catalogue.mutants.begin(), catalogue.mutants.end(),
                     [&](const Mutant& m) { return m.name == name || m.name == kernel; });
    const auto testee = std::find_if(testees.begin(), testees.end(), [&](const Testee& t) {
      return t.kernel == name || t.kernel == kernel;
    });
    if (mutant == catalogue.mutants.end() || testee == testees.end()) {
      throw InputError("", fmt::format("there is no mutant {}", name));
    }
    asked.emplace_back(&*mutant, &*testee);
    names.push_back(&each.second);
  }
  std::vector<Naming> result(asked.size());
  std::atomic<std::size_t> next = 0;
  in_parallel(options.jobs, [&] {
    for (std::size_t i = next++; i < asked.size() && !interrupted(); i = next++) {
      const auto& [mutant, testee] = asked[i];
      const auto executor = make_executor(*testee);
      result[i] = name_fault(cases_for(cases, *mutant, *testee), *mutant, *names[i], *testee,
                             *executor, options, interrupted);
    }
  });
  return result;
}

std::string to_text(const std::vector<Naming>& namings) {
  std::string text;
  Index right = 0, wrong = 0;
  for (const Naming& each : namings) {
    right += each.right;
    wrong += each.wrong();
    text += fmt::format("{:<8} {:<44} {}\n",
                        each.right     ? "right"
                        : each.wrong() ? "WRONG"
                                       : "-",
                        each.mutant,
                        each.names.empty() ? fmt::format("{} cases failed", each.failed)
                                           : each.headline + "  [" + each.case_id + "]");
  }
  const double share =
      namings.empty() ? 0
                      : 100.0 * static_cast<double>(right) / static_cast<double>(namings.size());
  return text + fmt::format("\nDid you mean: {} of {} mutants named right ({:.1f} %), {} wrong\n",
                            right, namings.size(), share, wrong);
}

bool holds(const std::vector<Naming>& namings) {
  const auto right =
      std::count_if(namings.begin(), namings.end(), [](const Naming& each) { return each.right; });
  return 5 * right >= 4 * static_cast<std::ptrdiff_t>(namings.size()) &&
         std::none_of(namings.begin(), namings.end(),
                      [](const auto& each) { return each.wrong(); });
}

}  // namespace attest
