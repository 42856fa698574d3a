#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cases/entry.h"
#include "harness/command/commands.h"
#include "harness/command/option_groups.h"
#include "harness/command/progress.h"
#include "harness/command/session.h"
#include "harness/fuzz/draws.h"
#include "harness/limits/report.h"
#include "harness/limits/search.h"
#include "harness/run/conclude.h"
#include "harness/run/record_file.h"
#include "harness/run/selection.h"
#include "spec/contains.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

struct LimitsArguments {
  CaseOptions cases;
  RecordingOptions recording;
  std::vector<std::string> faults;
  std::uint64_t fuzz = 0;
};

std::vector<limits::Kind> kinds_for(const LimitsArguments& asked) {
  std::vector<std::string> known;
  std::vector<limits::Kind> kinds;
  for (const limits::Kind& kind : limits::kinds()) {
    known.emplace_back(kind.name);
    if (asked.faults.empty() || contains(asked.faults, known.back())) kinds.push_back(kind);
  }
  for (const std::string& each : asked.faults) {
    if (contains(known, each)) continue;
    throw InputError(
        "", fmt::format("there is no fault \"{}\"; there are {}", each, fmt::join(known, ", ")));
  }
  return kinds;
}

// Of cases that come one after the other.
class Columns {
 public:
  Columns(const LimitsArguments& asked, limits::Table& table)
      : asked_(asked), table_(table), kinds_(kinds_for(asked)) {}

  void add(const std::string& name, const std::string& about, std::size_t cases,
           const std::function<Case(std::size_t)>& make, const limits::Limits* beside = nullptr) {
    Progress progress({stderr, asked_.recording.terminal}, asked_.recording.terminal.loudness,
                      cases, "problems");
    auto found = limits::search(
        cases, make, kinds_, table_.declarations, asked_.recording.jobs, beside,
        [&] { progress.add_one(); }, interrupted);
    progress.finish();
    if (beside) {
      found.cases += beside->cases;
      found.undrawn += beside->undrawn;
    }
    table_.columns.push_back({name, about, std::move(found)});
  }

 private:
  const LimitsArguments& asked_;
  limits::Table& table_;
  const std::vector<limits::Kind> kinds_;
};

int measure(const LimitsArguments& asked) {
  const auto start = std::chrono::steady_clock::now();
  const Installation installation = installation_for(asked.cases);
  limits::Table table = {
      .suite_version = ATTEST_VERSION,
      .command = fmt::format("attest limits --tier {}", name_of(asked.cases.tier)),
      .declarations = limits::declarations(),
      .columns = {}};
  if (asked.fuzz) table.command += fmt::format(" --fuzz {}", asked.fuzz);
  for (const std::string& filter : asked.cases.filters) table.command += " --cases " + filter;
  for (const std::string& each : asked.faults) table.command += fmt::format(" --fault '{}'", each);
  Columns columns(asked, table);
  const RecordFolder folder(asked.recording.out);
  const std::vector<Case> all = selected_cases(asked.cases, installation).cases;
  std::vector<const Case*> usual, further;
  for (const Case& each : all) (each.tier == Tier::full ? further : usual).push_back(&each);
  const std::string part = asked.cases.filters.empty() ? "" : ", of what --cases names";
  if (!usual.empty()) {
    const std::string tier(name_of(std::min(asked.cases.tier, Tier::standard)));
    columns.add(tier, fmt::format("The {} tier{}", tier, part), usual.size(),
                [&](std::size_t n) { return *usual[n]; });
  }
  if (!further.empty() && !interrupted()) {
    const limits::Limits* const before = usual.empty() ? nullptr : &table.columns[0].limits;
    columns.add(
        "full", "The full tier" + part, further.size(), [&](std::size_t n) { return *further[n]; },
        before);
  }
  if (asked.fuzz > 0 && !interrupted()) {
    const std::vector<CaseWithEntry> suite = load_entries(installation.cases);
    const Description& testee = table.declarations[0].testee;
    const Draws draws({.testee = testee, .dtypes = testee.dtypes}, suite, asked.cases.seed);
    columns.add("fuzz", "Random problems", asked.fuzz,
                [&](std::size_t n) { return draws.draw(n).prepared.test_case(); });
  }
  if (interrupted()) {
    fmt::print(stderr, "attest: interrupted; nothing is written\n");
    return kIncomplete;
  }
  table.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  write_table(table, folder.path());
  fmt::print("{}\nReport: {}\n", to_text(table), (folder.path() / "limits.md").string());
  const bool is_wrong = std::any_of(table.columns.begin(), table.columns.end(),
                                    [](const auto& c) { return !c.limits.false_alarms.empty(); });
  return is_wrong ? kNotConformant : kConformant;
}

}  // namespace

Command add_limits(CLI::App& app) {
  const auto asked = std::make_shared<LimitsArguments>();
  CLI::App& command = *app.add_subcommand(
      "limits", "Find the least fault of each kind that is seen, under several declarations");
  add_selection(command, asked->cases);
  add_recording(command, asked->recording);
  command.add_option("--fault", asked->faults, "Only this kind of fault; may be given again");
  command.add_option("--fuzz", asked->fuzz, "And what so many random problems see")
      ->check(takes_count("--fuzz", 1, kMostOfASeed));
  return {
      .parser = &command, .carry_out = [=] { return measure(*asked); }, .starts_testees = false};
}

}  // namespace attest
