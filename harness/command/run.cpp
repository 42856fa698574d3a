#include "harness/command/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
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

struct RunArguments {
  TesteeOptions testees;
  CaseOptions cases;
  RecordingOptions recording;
  std::vector<std::string> profiles;
  std::string shard = "1/1";
  std::filesystem::path known;  // a file of known failures
  RunOptions ends;              // when the rest is NOT_RUN
};

// The longest first.
void show_stages(const std::map<std::string, double>& stages) {
  std::vector<std::pair<double, std::string>> longest;
  double all = 0;
  for (const auto& [stage, seconds] : stages) {
    longest.emplace_back(seconds, stage);
    all += seconds;
  }
  std::sort(longest.rbegin(), longest.rend());
  fmt::print("Time of all jobs, by stage:\n");
  for (const auto& [seconds, stage] : longest) {
    fmt::print("  {:10}{:9.2f} s{:4.0f} %\n", stage, seconds, 100 * seconds / all);
  }
}

int judge_cases(const RunArguments& asked) {
  check_profiles(asked.profiles);
  const Installation installation = installation_for(asked.cases);
  const auto [whole, complete] = selected_cases(asked.cases, installation);
  const auto cases = shard_of(whole, asked.shard);
  Plan plan = plan_for(asked.cases, installation, complete, cases.size());
  plan.header.shard = asked.shard;
  plan.header.profiles = profiles_asked_for(asked.profiles, asked.cases);
  if (!asked.known.empty()) plan.header.known = read_known_failures(asked.known);
  plan.ends = asked.ends;
  Session session(asked.testees, asked.recording, installation, plan);
  const TerminalOptions& terminal = asked.recording.terminal;
  RunOptions run_options = session.run_options();
  run_options.asking =
      std::make_shared<Asking>(whole, session.testees(), installation.cases, interrupted);
  Header header = session.header();
  note_dispatch(*run_options.asking, cases, header);
  Progress progress({stderr, terminal}, terminal.loudness, verdicts_on(cases, header));
  Record record = run(
      cases, session.testees(), header, run_options,
      [&](const Testee& testee) { return session.start(testee); }, session.results(),
      [&](const VerdictRecord& verdict) { progress.add(verdict); }, interrupted);
  progress.finish();
  const auto stages = record.footer ? record.footer->stages : std::map<std::string, double>();
  const int exit_code = session.finish_with_diagnosis(std::move(record), whole, run_options);
  if (!stages.empty() && terminal.loudness != Loudness::quiet) show_stages(stages);
  return exit_code;
}

}  // namespace

Command add_run(CLI::App& app) {
  const auto asked = std::make_shared<RunArguments>();
  CLI::App& command = *app.add_subcommand("run", "Judge testees on cases and write a report");
  add_testee_options(command, asked->testees);
  add_all_targets(command, asked->testees);
  add_selection(command, asked->cases);
  add_profiles(command, asked->profiles);
  add_shapes(command, asked->cases);
  add_recording(command, asked->recording);
  add_colour(command, asked->recording.terminal);
  add_loudness(command, asked->recording.terminal);
  command.add_option("--shard", asked->shard, "I/N: the I-th of N parts of the cases")
      ->capture_default_str();
  command
      .add_option("--give-up-after", asked->ends.give_up_after,
                  "Time-outs of a testee after which its other cases are NOT_RUN; 0: never")
      ->check(takes_count("--give-up-after", 0, 1'000'000))
      ->capture_default_str();
  command.add_flag("--fail-fast", asked->ends.fail_fast,
                   "After the first verdict that does not conform the rest is NOT_RUN");
  command
      .add_option("--max-time", asked->ends.max_seconds,
                  "Seconds after which the rest is NOT_RUN, calls in progress too")
      ->check(takes_seconds("--max-time"));
  command.add_flag("--profile-stages", asked->ends.profiles_stages,
                   "Tell where the time of the jobs went, in the record too");
  command.add_flag("--explain", asked->ends.explains_each,
                   "Diagnose each failure by itself, too, in diagnosis.json: which mistakes give "
                   "all that is wrong in it, and which declarations would admit it");
  add_known(command, asked->known);
  return {.parser = &command, .carry_out = [=] { return judge_cases(*asked); }};
}

}  // namespace attest
