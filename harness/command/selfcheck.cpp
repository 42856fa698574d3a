#include "harness/command/selfcheck.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

#include "cases/case.h"
#include "harness/command/commands.h"
#include "harness/command/option_groups.h"
#include "harness/command/progress.h"
#include "harness/command/session.h"
#include "harness/process/testee.h"
#include "harness/process/worker.h"
#include "harness/run/conclude.h"
#include "harness/run/run.h"
#include "harness/selfcheck/culprits.h"
#include "harness/selfcheck/naming.h"
#include "harness/selfcheck/selfcheck.h"
#include "reports/files.h"
#include "spec/json_text.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

// Mutants, each on the cases that must catch it; and legitimate kernels, on all cases if that is
// what is asked for, else on a few.
int selfcheck(const SelfcheckArguments& asked) {
  if (asked.hosts) return selfcheck_hosts(asked);
  constexpr std::size_t kSample = 40;
  constexpr double kMutantSeconds = 5;                          // for a call: some hang,
  constexpr std::size_t kMutantBytes = std::size_t(512) << 20;  // and some take all that there is
  const auto start = std::chrono::steady_clock::now();
  const Installation installation = installation_for(asked.cases, asked.plugins);
  SelectedCases selected = selected_cases(asked.cases, installation);
  Selfcheck check = {.all_catches = asked.full,
                     .diagnosed = asked.blame,
                     .filtered = !asked.cases.filters.empty() || asked.cases.tier < Tier::standard,
                     .cases = by_worth(std::move(selected.cases))};
  const fs::path mutants = installation.test_plugins / "mutants.so";
  if (!asked.legitimate) check.catalogue = load_catalogue(mutants);
  const TerminalOptions& terminal = asked.recording.terminal;
  Progress progress({stderr, terminal}, terminal.loudness, 0);
  const auto seen = [&](const VerdictRecord& verdict) { progress.add(verdict); };
  const auto session_of = [&](const fs::path& plugin, const Limits& limits,
                              const std::vector<Case>& cases) {
    Plan plan = plan_for(asked.cases, installation, selected.complete, cases.size());
    // A sample is named case by case.
    if (cases.size() != check.cases.size()) {
      plan.header.filters.clear();
      for (const Case& c : cases) plan.header.filters.push_back(c.id);
    }
    return std::make_unique<Session>(TesteeOptions{.testees = {plugin.string()}, .limits = limits},
                                     asked.recording, installation, plan);
  };
  const auto start_testee = [](const Session& session) {
    return [&](const Testee& testee) { return session.start(testee); };
  };
  if (!asked.legitimate) {
    const auto hunting = session_of(
        mutants, {.call_seconds = kMutantSeconds, .memory_bytes = kMutantBytes}, check.cases);
    // What hangs is caught by that; all others would wait while it is tried again alone.
    RunOptions run = hunting->run_options();
    run.tries_again = false;
    check.hunt = hunt(check.cases, check.catalogue, hunting->testees(),
                      {.all = asked.full, .run = run}, start_testee(*hunting), seen, interrupted);
    if (asked.blame) {
      find_culprits(*check.hunt, check.cases, hunting->testees(), run, start_testee(*hunting),
                    interrupted);
    }
  }
  std::unique_ptr<Session> session;
  Record record;
  if (!interrupted()) {
    auto cases = asked.legitimate ? check.cases : sample(check.cases, kSample);
    // Nothing is hunted: the dearest first, lest all others wait for it at the end.
    std::reverse(cases.begin(), cases.end());
    session = session_of(installation.test_plugins / "legitimate.so", {}, cases);
    record = run(cases, session->testees(), session->header(), session->run_options(),
                 start_testee(*session), session->results(), seen, interrupted);
    check.trust = trust_of(record, cases.size());
    check.trust->all = asked.legitimate && !check.filtered;
  }
  progress.finish();
  check.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  write_file(asked.recording.out / "selfcheck.json", json_text(to_json(check), 2) + "\n");
  write_file(asked.recording.out / "selfcheck.html", to_html(check));
  // At once: the pages of a million verdicts take a minute.
  Terminal(stdout, terminal).write_coloured(to_text(check, terminal.loudness == Loudness::quiet));
  if (session) session->publish(record);
  return exit_code_of(check);
}

// Whether "did you mean" names what mutants do, as a file says.
int check_names(const SelfcheckArguments& asked) {
  const Installation installation = installation_for(asked.cases, asked.plugins);
  const fs::path mutants = installation.test_plugins / "mutants.so";
  const Meant meant = read_meant(asked.meant);
  const auto cases = by_worth(selected_cases(asked.cases, installation).cases);
  const TesteeOptions kernels = {.testees = {mutants.string()}};
  const Surroundings around = surroundings_for(kernels, installation);
  const auto testees = testees_for(kernels, installation, around);
  const RunOptions run = {.jobs = asked.recording.jobs, .threads = kernels.threads};
  const auto start = [&](const Testee& testee) {
    WorkerOptions worker = worker_options(testee, kernels.limits, around);
    worker.interrupted = interrupted;
    return std::make_unique<WorkerExecutor>(std::move(worker));
  };
  const auto namings =
      name_faults(cases, load_catalogue(mutants), testees, meant, run, start, interrupted);
  if (interrupted()) throw Interrupted();
  fmt::print("{}", to_text(namings));
  return holds(namings) ? kConformant : kNotConformant;
}

int check_itself(const SelfcheckArguments& asked) {
  if (asked.instances > 0) return selfcheck_instances(asked);
  return asked.meant.empty() ? selfcheck(asked) : check_names(asked);
}

}  // namespace

Command add_selfcheck(CLI::App& app) {
  const auto asked = std::make_shared<SelfcheckArguments>();
  CLI::App& command = *app.add_subcommand(
      "selfcheck", "See that every broken kernel is caught and no correct one fails");
  add_selection(command, asked->cases);
  add_recording(command, asked->recording);
  add_colour(command, asked->recording.terminal);
  add_loudness(command, asked->recording.terminal);
  command.add_flag("--full", asked->full,
                   "Count all cases that catch a mutant, not only the first");
  command.add_flag("--legitimate", asked->legitimate, "Only the correct kernels, on all cases");
  command
      .add_flag("--hosts", asked->hosts,
                "Only the mutants in narrow kernels, each that shows there")
      ->excludes("--legitimate");
  command.add_option("--host", asked->only_hosts, "With --hosts: only in that one");
  command
      .add_option("--instances", asked->instances,
                  "Only so many mutants that are wrong in one instance of a dispatch table: 95 % "
                  "of those that show must be seen by the cases, and 98 % by random problems too")
      ->check(takes_count("--instances", 1, 1'000'000));
  command
      .add_option("--random", asked->random,
                  "With --instances: how many random problems. Default: 20000")
      ->check(takes_count("--random", 0, 10'000'000));
  command.add_option(
      "--dispatch", asked->dispatch,
      "With --instances: the folder of dispatch tables, if not that of the plug-ins");
  command
      .add_flag("--declared", asked->declared,
                "With --instances: each kernel declares the dispatch table, to which cases and "
                "random problems are fitted")
      ->needs("--instances");
  command.add_option("--plugins", asked->plugins,
                     "The folder of mutants.so, legitimate.so and hosts.so");
  command
      .add_flag("--blame", asked->blame,
                "Diagnose what catches each mutant: 95 % must be blamed on a clause that they "
                "violate")
      ->excludes("--legitimate")
      ->excludes("--hosts");
  command
      .add_option(
          "--diagnose", asked->meant,
          "Instead, diagnose the mutants that FILE lists: of none may another mistake be named "
          "than FILE gives it, and of four fifths one must be")
      ->type_name("FILE");
  return {.parser = &command, .carry_out = [=] { return check_itself(*asked); }};
}

}  // namespace attest
