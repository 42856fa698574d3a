#include "harness/command/commands.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <map>
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

int search(const Options& options) {
  constexpr std::size_t kHandful = 10;
  const auto start = std::chrono::steady_clock::now();
  const fs::path file = fs::absolute(options.out / fmt::format("{}.json", kFuzzStem));
  const Installation installation = find_installation();
  const auto suite = load_entries(installation.cases);
  const auto all = load_cases(installation.cases);
  Plan plan = plan_for(options, installation, all, 0);
  plan.tier = kSearchTier;
  plan.more_files = {file.string()};
  Session session(options, installation, plan);
  fs::remove(file);  // of an earlier search
  FuzzOptions search = {.seed = options.seed,
                        .first = options.first,
                        .count = options.count,
                        .seconds = options.seconds,
                        .finds = options.finds > 0    ? options.finds
                                 : options.keep_going ? kHandful
                                                      : 1,
                        .finite = options.finite,
                        .run = session.run_options()};
  if (search.count == 0 && search.seconds == 0) search.seconds = 60;
  for (const std::string& dtype : options.dtypes) search.dtypes.push_back(*dtype_named(dtype));
  Record record{.header = session.header(), .verdicts = {}, .footer = Footer()};
  session.results() << to_line(record.header) << '\n';
  std::vector<nlohmann::json> entries;
  std::map<std::string, Index> tried;
  for (const Testee& testee : session.testees()) {
    Progress progress({stderr, options.terminal}, options.terminal.loudness, 0);
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

Command add_fuzz(CLI::App& app, Options& options) {
  CLI::App& command =
      *app.add_subcommand("fuzz", "Try random problems until one fails, and make that one small");
  command.footer(
      "The same seed gives the same problems, numbered from 0, to the same suite and testee: a "
      "search that ended goes on with --first and the number that its table ends with.");
  add_testee_options(command, options);
  add_recording(command, options);
  add_colour(command, options);
  add_loudness(command, options);
  command.add_option("--count", options.count, "Problems to try, of each testee")
      ->check(takes_count("--count", 1, kMostOfASeed));
  command.add_option("--first", options.first, "The number of the first problem")
      ->check(takes_count("--first", 0, kMostOfASeed));
  command.add_flag("--keep-going", options.keep_going,
                   "Go on after a find, until there are ten of distinct causes, or --finds");
  command
      .add_option("--finds", options.finds, "Distinct causes after which a search ends. Default: 1")
      ->check(takes_count("--finds", 1, 1'000'000));
  command.add_flag("--finite", options.finite, "Hide no NaN and no infinity in the inputs");
  command
      .add_option("--seconds", options.seconds,
                  "Time for each testee. Default: 60, without --count")
      ->check(takes_seconds("--seconds"));
  command.add_option("--seed", options.seed, "Of the random problems")
      ->check(takes_count("--seed", 0, kMostOfASeed))
      ->capture_default_str();
  command.add_option("--dtype", options.dtypes, "Only this format; may be given again")
      ->check(takes_dtype());
  return {.parser = &command, .carry_out = search};
}

}  // namespace attest
