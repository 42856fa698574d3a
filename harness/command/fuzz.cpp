#include "harness/command/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cases/case.h"
#include "cases/entry.h"
#include "harness/command/option_groups.h"
#include "harness/command/progress.h"
#include "harness/command/session.h"
#include "harness/fuzz/draws.h"
#include "harness/fuzz/fuzz.h"
#include "harness/process/testee.h"
#include "harness/run/conclude.h"
#include "harness/run/run.h"
#include "harness/run/seal.h"
#include "reports/files.h"
#include "spec/dtype.h"
#include "spec/json_text.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

struct FuzzArguments {
  TesteeOptions testees;
  RecordingOptions recording;
  CaseOptions cases;  // of which it takes the seed alone
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  double seconds = 0;
  bool keep_going = false;
  std::size_t finds = 0;  // 0: one, or a handful with keep_going
  bool finite = false;
  std::vector<std::string> dtypes;
};

int search(const FuzzArguments& asked) {
  constexpr std::size_t kHandful = 10;
  const auto start = std::chrono::steady_clock::now();
  const fs::path file = fs::absolute(asked.recording.out / fmt::format("{}.json", kFuzzStem));
  const Installation installation = find_installation();
  const auto suite = load_entries(installation.cases);
  const auto complete = std::count_if(suite.begin(), suite.end(), [](const CaseWithEntry& each) {
    return each.test_case.tier <= Tier::standard;
  });
  Plan plan = plan_for(asked.cases, installation, complete, 0);
  plan.header.tier = kSearchTier;
  plan.more_files = {file.string()};
  Session session(asked.testees, asked.recording, installation, plan);
  fs::remove(file);  // of an earlier search
  FuzzOptions search = {.seed = asked.cases.seed,
                        .first = asked.first,
                        .count = asked.count,
                        .seconds = asked.seconds,
                        .finds = asked.finds > 0    ? asked.finds
                                 : asked.keep_going ? kHandful
                                                    : 1,
                        .finite = asked.finite,
                        .run = session.run_options()};
  if (search.count == 0 && search.seconds == 0) search.seconds = 60;
  for (const std::string& dtype : asked.dtypes) search.dtypes.push_back(*dtype_named(dtype));
  Record record{.header = session.header(), .verdicts = {}, .footer = Footer()};
  session.results() << to_line(record.header) << '\n';
  std::vector<nlohmann::json> entries;
  std::map<std::string, Index> tried;
  for (const Testee& testee : session.testees()) {
    const TerminalOptions& terminal = asked.recording.terminal;
    Progress progress({stderr, terminal}, terminal.loudness, 0);
    const FuzzResult result = fuzz(
        testee, suite, search, [&](const Testee& t) { return session.start(t); },
        [&](const VerdictRecord& verdict) { progress.add(verdict); }, interrupted);
    progress.finish();
    for (const auto& [outcome, count] : result.record.tried) tried[outcome] += count;
    ++search.seed;  // many testees try many problems
    record.searches.push_back(result.record);
    session.results() << to_line(record.searches.back()) << std::endl;
    for (const Find& find : result.found) entries.push_back(find.entry);
    if (!result.found.empty()) {
      write_file(file, to_case_file("What attest fuzz found.", entries));
    }
    for (const Find& find : result.found) {
      record.verdicts.push_back(record_of(find, testee, search.run, file));
      session.results() << to_line(record.verdicts.back()) << std::endl;
    }
    if (interrupted()) break;
  }
  if (interrupted()) {
    record.footer.reset();
  } else {
    record.footer = conclude_search(tried, record.verdicts);
    note_changes(*record.footer, session.changes());
    note_defects(record);
    record.footer->wall_s =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    seal(record);
    session.results() << to_line(*record.footer) << '\n';
  }
  const int exit_code = session.finish(record);
  if (!entries.empty()) fmt::print("Found: {}\n", file.string());
  return exit_code;
}

}  // namespace

Command add_fuzz(CLI::App& app) {
  const auto asked = std::make_shared<FuzzArguments>();
  CLI::App& command =
      *app.add_subcommand("fuzz", "Try random problems until one fails, and make that one small");
  command.footer(
      "The same seed gives the same problems, numbered from 0, to the same suite and testee: a "
      "search that ended goes on with --first and the number that its table ends with.");
  add_testee_options(command, asked->testees);
  add_all_targets(command, asked->testees);
  add_recording(command, asked->recording);
  add_colour(command, asked->recording.terminal);
  add_loudness(command, asked->recording.terminal);
  command.add_option("--count", asked->count, "Problems to try, of each testee")
      ->check(takes_count("--count", 1, kMostOfASeed));
  command.add_option("--first", asked->first, "The number of the first problem")
      ->check(takes_count("--first", 0, kMostOfASeed));
  command.add_flag("--keep-going", asked->keep_going,
                   "Go on after a find, until there are ten of distinct causes, or --finds");
  command
      .add_option("--finds", asked->finds, "Distinct causes after which a search ends. Default: 1")
      ->check(takes_count("--finds", 1, 1'000'000));
  command.add_flag("--finite", asked->finite, "Hide no NaN and no infinity in the inputs");
  command
      .add_option("--seconds", asked->seconds, "Time for each testee. Default: 60, without --count")
      ->check(takes_seconds("--seconds"));
  add_seed(command, asked->cases, "Of the random problems");
  command.add_option("--dtype", asked->dtypes, "Only this format; may be given again")
      ->check(takes_dtype());
  return {.parser = &command, .carry_out = [=] { return search(*asked); }};
}

}  // namespace attest
