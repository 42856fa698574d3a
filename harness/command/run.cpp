#include "harness/command/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cases/case.h"
#include "harness/command/option_groups.h"
#include "harness/command/progress.h"
#include "harness/command/session.h"
#include "harness/diagnosis/diagnose.h"
#include "harness/process/testee.h"
#include "harness/run/conclude.h"
#include "harness/run/known_failures.h"
#include "harness/run/run.h"
#include "harness/run/selection.h"
#include "spec/json_reader.h"
#include "spec/profile.h"
#include "spec/spelling.h"

namespace attest {
namespace {

void check_profiles(const std::vector<std::string>& names) {
  std::vector<std::string> known = {kNoProfile};
  for (const Profile& profile : profiles()) known.emplace_back(profile.name);
  for (const std::string& name : names) {
    if (name != kNoProfile && !find_profile(name)) {
      throw InputError("",
                       fmt::format("there is no profile {} ({} and {} may stand behind each "
                                   "but none); {}",
                                   name, kTakesDeclared, kTakesLimits, did_you_mean(name, known)));
    }
    if (name == kNoProfile && names.size() > 1)
      throw InputError("", "--profile none goes with no other profile");
  }
}

int judge_cases(const Options& options) {
  check_profiles(options.profiles);
  const Installation installation = installation_for(options);
  const std::vector<Case> all = all_cases(options, installation);
  const auto whole =
      select(all, {.tier = options.tier, .filters = options.filters, .seed = options.seed});
  const auto cases = shard_of(whole, options.shard);
  Plan plan = plan_for(options, installation, all, cases.size());
  if (!options.known.empty()) plan.known = read_known_failures(options.known);
  Session session(options, installation, plan);
  Progress progress({stderr, options.terminal}, options.terminal.loudness,
                    cases.size() * session.testees().size());
  RunOptions run_options = session.run_options();
  run_options.asking = std::make_shared<Asking>(whole, session.testees(), installation.cases);
  Record record = run(
      cases, session.testees(), session.header(), run_options,
      [&](const Testee& testee) { return session.start(testee); }, session.results(),
      [&](const VerdictRecord& verdict) { progress.add(verdict); }, interrupted);
  progress.finish();
  const int exit_code = session.finish(record);
  const auto groups = diagnose(
      record, all, session.testees(), run_options,
      [&](const Testee& testee) { return session.start(testee); },
      [&] { return interrupted() || time_is_up(run_options); });
  record.diagnoses = diagnoses_of(groups);
  session.add_diagnosis(record, to_json(groups));
  if (options.terminal.loudness != Loudness::quiet) {
    Terminal(stdout, options.terminal).write_coloured(to_text(groups));
  }
  return exit_code;
}

}  // namespace

Command add_run(CLI::App& app, Options& options) {
  CLI::App& command = *app.add_subcommand("run", "Judge testees on cases and write a report");
  add_testee_options(command, options);
  add_selection(command, options);
  command.add_option("--profile", options.profiles,
                     "A profile to be met, or none; X+declared takes arithmetic that is "
                     "declared beyond the default, too, X/limits what is met within the limits "
                     "that are declared. Default: all that a testee declares");
  add_shapes(command, options);
  add_recording(command, options);
  add_colour(command, options);
  add_loudness(command, options);
  command.add_option("--shard", options.shard, "I/N: the I-th of N parts of the cases")
      ->capture_default_str();
  command
      .add_option("--give-up-after", options.give_up_after,
                  "Time-outs of a testee after which its other cases are NOT_RUN; 0: never")
      ->check(takes_count("--give-up-after", 0, 1'000'000))
      ->capture_default_str();
  command.add_flag("--fail-fast", options.fail_fast,
                   "After the first verdict that does not conform the rest is NOT_RUN");
  command
      .add_option("--max-time", options.max_seconds,
                  "Seconds after which the rest is NOT_RUN, calls in progress too")
      ->check(takes_seconds("--max-time"));
  command
      .add_option("--known", options.known, "A file of failures that are known, and don't count")
      ->type_name("FILE");
  return {.parser = &command, .carry_out = judge_cases};
}

}  // namespace attest
