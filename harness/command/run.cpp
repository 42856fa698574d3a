#include "harness/command/commands.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cases/case.h"
#include "harness/command/option_groups.h"
#include "harness/command/progress.h"
#include "harness/command/session.h"
#include "harness/process/testee.h"
#include "harness/run/conclude.h"
#include "harness/run/known_failures.h"
#include "harness/run/run.h"
#include "harness/run/selection.h"

namespace attest {
namespace {

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
  return session.finish_with_diagnosis(std::move(record), all, run_options);
}

}  // namespace

Command add_run(CLI::App& app, Options& options) {
  CLI::App& command = *app.add_subcommand("run", "Judge testees on cases and write a report");
  add_testee_options(command, options);
  add_selection(command, options);
  add_profiles(command, options);
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
  add_known(command, options);
  return {.parser = &command, .carry_out = judge_cases};
}

}  // namespace attest
