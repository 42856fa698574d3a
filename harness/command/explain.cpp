#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "cases/case.h"
#include "harness/command/commands.h"
#include "harness/command/session.h"
#include "harness/run/conclude.h"
#include "harness/run/run.h"
#include "harness/run/selection.h"
#include "harness/selfcheck/catalogue.h"
#include "reports/groups.h"
#include "reports/standard.h"
#include "reports/text.h"
#include "spec/clause.h"
#include "spec/contains.h"
#include "spec/feature.h"
#include "spec/json_reader.h"
#include "spec/pattern.h"
#include "spec/profile.h"
#include "spec/spelling.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

std::string profiles_of(std::string_view clause) {
  std::vector<std::string_view> names;
  for (const Profile& profile : profiles()) {
    if (contains(profile.clauses, clause)) names.push_back(profile.name);
  }
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

std::string features_of(std::string_view clause) {
  std::vector<std::string_view> names;
  for (const Feature* feature : features_with(clause)) names.push_back(feature->name);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

// The first of what there is, unless all is wanted.
void print_list(const std::string& title, const std::vector<std::string>& items, bool all) {
  constexpr std::size_t kShown = 10;
  const std::size_t shown = all ? items.size() : std::min(kShown, items.size());
  fmt::print("\n{}\n", title);
  for (std::size_t i = 0; i < shown; ++i) fmt::print("  {}\n", items[i]);
  if (shown < items.size()) {
    fmt::print("  and {} more, which --all shows\n", items.size() - shown);
  }
}

// Cases that hunt the same, the first of them by its id; first those that cite a report.
void print_cases(const std::string& clause, const std::vector<Case>& cases, bool all) {
  std::vector<const Case*> first;
  std::map<std::string, Index> like;
  for (const Case& c : cases) {
    if (contains(c.clauses, clause) && ++like[c.because] == 1) first.push_back(&c);
  }
  std::stable_partition(first.begin(), first.end(),
                        [](const Case* c) { return contains(c->because, '#'); });
  std::vector<std::string> items;
  Index count = 0;
  for (const Case* c : first) {
    const Index same = like[c->because];
    count += same;
    items.push_back(fmt::format("{}{}\n      {}", c->id,
                                same > 1 ? fmt::format(" and {} more", same - 1) : "", c->because));
  }
  print_list(fmt::format("Cases that cite it: {}, which hunt {}.", count,
                         count_text(std::ssize(items), "fault")),
             items, all);
}

// Faults that real kernels had; they are there where the tests were built.
void print_mutants(const std::string& clause, const fs::path& plugin, bool all) {
  if (!fs::exists(plugin)) return;
  std::vector<std::string> items;
  for (const Mutant& mutant : load_catalogue(plugin).mutants) {
    if (!contains(mutant.clauses, clause)) continue;
    items.push_back(fmt::format("{}  {}\n      {}", mutant.name, mutant.reference, mutant.about));
  }
  print_list(
      fmt::format("Mutants that break it, all caught by attest selfcheck: {}.", items.size()),
      items, all);
}

// A numbered sentence of a statement, on one line; empty if there is none of that number.
std::string sentence(std::string_view statement, std::string_view number) {
  const std::string mark = fmt::format("\n{}. ", number);
  const std::size_t begin = statement.find(mark);
  if (begin == statement.npos) return "";
  std::string text;
  std::istringstream lines{std::string(statement.substr(begin + mark.size()))};
  for (std::string line; std::getline(lines, line);) {
    if (!text.empty() && !line.starts_with("   ")) break;  // what goes on is set in
    text += (text.empty() ? "" : " ") + line.substr(text.empty() ? 0 : 3);
  }
  return text;
}

// `number`: of the sentence that a verdict cites, as 6 of DROP-3.6; or empty.
int explain_clause(const Clause& clause, std::string_view number, const Installation& installation,
                   bool all) {
  const std::string id(clause.id);
  const std::string cited = sentence(text_of_clause(id), number);
  if (!number.empty() && cited.empty()) {
    throw InputError("", fmt::format("{} has no sentence {}", id, number));
  }
  if (!cited.empty()) fmt::print("{}.{}: {}\n\n", id, number, cited);
  fmt::print("{} — {}\n  level     {}\n  profile   {}\n  feature   {}\n\n{}\n", id, clause.title,
             name(clause.level), profiles_of(id), features_of(id), text_of_clause(id));
  print_cases(id, load_cases(installation.cases), all);
  print_mutants(id, installation.test_plugins / "mutants.so", all);
  return kConformant;
}

int explain_case(const Case& c) {
  fmt::print("{}\n  because   {}\n  problem   {}, data {}\n  tier      {}\n  written   {}:{}\n",
             c.id, c.because, to_string(c.problem), c.data, name_of(c.tier), c.file, c.line);
  for (const std::string& clause : c.clauses) {
    fmt::print("  clause    {}\n", clause_with_title(clause));
  }
  fmt::print("\nTry it: attest repro {} --testee TESTEE\n", quoted(c.id));
  return kConformant;
}

int explain(const std::string& what, bool all) {
  const Installation installation = find_installation();
  const std::size_t dot = std::min(what.find('.'), what.size());
  if (const Clause* clause = find_clause(what.substr(0, dot))) {
    const std::string number = dot < what.size() ? what.substr(dot + 1) : "";
    return explain_clause(*clause, number, installation, all);
  }
  if (contains(what, '/')) {
    const std::vector<Case> cases = load_cases(installation.cases);
    // The first of an entry stands for it.
    const auto first = std::find_if(cases.begin(), cases.end(),
                                    [&](const Case& c) { return matches(c.id, what); });
    return explain_case(first == cases.end() ? find_case(cases, what) : *first);
  }
  if (contains(known_features(), what)) {
    throw InputError("",
                     fmt::format("{} is a feature; attest list --features says its clauses", what));
  }
  if (find_profile(what)) {
    throw InputError("",
                     fmt::format("{} is a profile; attest list --profiles says its clauses", what));
  }
  std::vector<std::string> ids;
  for (const Clause& clause : clauses()) ids.emplace_back(clause.id);
  throw InputError("", fmt::format("there is no clause {}; {}", what, did_you_mean(what, ids)));
}

}  // namespace

Command add_explain(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "explain", "Say what a clause states, who demands it, what tries it; or what a case is");
  struct Wanted {
    std::string what;
    bool all = false;
  };
  const auto wanted = std::make_shared<Wanted>();
  command
      .add_option("what", wanted->what,
                  "A clause, as MASK-3 or DROP-3.6, or a case, by its id or the beginning of it")
      ->required();
  command.add_flag("--all", wanted->all, "All cases and mutants, not the first ten");
  return {.parser = &command,
          .carry_out = [=] { return explain(wanted->what, wanted->all); },
          .starts_testees = false};
}

}  // namespace attest
