#include "harness/command/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

#include "cases/case.h"
#include "harness/command/option_groups.h"
#include "harness/command/progress.h"
#include "harness/command/selfcheck_hosts.h"
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
int selfcheck(Options options) {
  if (options.hosts) return selfcheck_hosts(std::move(options));
  constexpr std::size_t kSample = 40;
  constexpr double kMutantSeconds = 5;                          // for a call: some hang,
  constexpr std::size_t kMutantBytes = std::size_t(512) << 20;  // and some take all that there is
  const auto start = std::chrono::steady_clock::now();
  const Installation installation = installation_for(options);
  if (options.plugins.empty()) options.plugins = installation.test_plugins;
  Selfcheck check = {.all_catches = options.full,
                     .diagnosed = options.blame,
                     .filtered = !options.filters.empty() || options.tier < Tier::standard,
                     .cases = by_worth(selected_cases(options, installation))};
  const std::vector<Case> all = load_cases(installation.cases, options.seed);
  const fs::path mutants = options.plugins / "mutants.so";
  if (!options.legitimate) check.catalogue = load_catalogue(mutants);
  Progress progress({stderr, options.terminal}, options.terminal.loudness, 0);
  const auto seen = [&](const VerdictRecord& verdict) { progress.add(verdict); };
  const auto session_of = [&](const fs::path& plugin, const std::vector<Case>& cases) {
    options.testees = {plugin.string()};
    Plan plan = plan_for(options, installation, all, cases.size());
    // A sample is named case by case.
    if (cases.size() != check.cases.size()) {
      plan.filters.clear();
      for (const Case& c : cases) plan.filters.push_back(c.id);
    }
    return std::make_unique<Session>(options, installation, plan);
  };
  const auto start_testee = [](const Session& session) {
    return [&](const Testee& testee) { return session.start(testee); };
  };
  if (!options.legitimate) {
    const Limits limits = options.limits;
    options.limits.call_seconds = kMutantSeconds;
    options.limits.memory_bytes = kMutantBytes;
    const auto hunting = session_of(mutants, check.cases);
    // What hangs is caught by that; all others would wait while it is tried again alone.
    RunOptions run = hunting->run_options();
    run.tries_again = false;
    check.hunt = hunt(check.cases, check.catalogue, hunting->testees(),
                      {.all = options.full, .run = run}, start_testee(*hunting), seen, interrupted);
    if (options.blame) {
      find_culprits(*check.hunt, check.cases, hunting->testees(), run, start_testee(*hunting),
                    interrupted);
    }
    options.limits = limits;
  }
  std::unique_ptr<Session> session;
  Record record;
  if (!interrupted()) {
    auto cases = options.legitimate ? check.cases : sample(check.cases, kSample);
    // Nothing is hunted: the dearest first, lest all others wait for it at the end.
    std::reverse(cases.begin(), cases.end());
    session = session_of(options.plugins / "legitimate.so", cases);
    record = run(cases, session->testees(), session->header(), session->run_options(),
                 start_testee(*session), session->results(), seen, interrupted);
    check.trust = trust_of(record, cases.size());
    check.trust->all = options.legitimate && !check.filtered;
  }
  progress.finish();
  check.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  write_file(options.out / "selfcheck.json", json_text(to_json(check), 2) + "\n");
  // At once: the pages of a million verdicts take a minute.
  Terminal(stdout, options.terminal)
      .write_coloured(to_text(check, options.terminal.loudness == Loudness::quiet));
  if (session) session->publish(record);
  return exit_code_of(check);
}

// Whether "did you mean" names what mutants do, as a file says.
int check_names(Options options) {
  const Installation installation = installation_for(options);
  if (options.plugins.empty()) options.plugins = installation.test_plugins;
  const fs::path mutants = options.plugins / "mutants.so";
  const Meant meant = read_meant(options.meant);
  const auto cases = by_worth(selected_cases(options, installation));
  options.testees = {mutants.string()};
  const Surroundings around = surroundings_for(options, installation);
  const auto testees = testees_for(options, installation, around);
  const RunOptions run = {.jobs = options.jobs, .threads = options.threads};
  const auto start = [&](const Testee& testee) {
    WorkerOptions worker = worker_options(testee, options.limits, around);
    worker.interrupted = interrupted;
    return std::make_unique<WorkerExecutor>(std::move(worker));
  };
  const auto namings =
      name_faults(cases, load_catalogue(mutants), testees, meant, run, start, interrupted);
  if (interrupted()) throw Interrupted();
  fmt::print("{}", to_text(namings));
  return holds(namings) ? kConformant : kNotConformant;
}

int check_itself(const Options& options) {
  return options.meant.empty() ? selfcheck(options) : check_names(options);
}

}  // namespace

Command add_selfcheck(CLI::App& app, Options& options) {
  CLI::App& command = *app.add_subcommand(
      "selfcheck", "See that every broken kernel is caught and no correct one fails");
  add_selection(command, options);
  add_recording(command, options);
  add_colour(command, options);
  add_loudness(command, options);
  command.add_flag("--full", options.full,
                   "Count all cases that catch a mutant, not only the first");
  command.add_flag("--legitimate", options.legitimate, "Only the correct kernels, on all cases");
  command
      .add_flag("--hosts", options.hosts,
                "Only the mutants in narrow kernels, each that shows there")
      ->excludes("--legitimate");
  command.add_option("--host", options.only_hosts, "With --hosts: only in that one");
  command.add_option("--plugins", options.plugins,
                     "The folder of mutants.so, legitimate.so and hosts.so");
  command
      .add_flag("--blame", options.blame,
                "Diagnose what catches each mutant: 95 % must be blamed on a clause that they "
                "violate")
      ->excludes("--legitimate")
      ->excludes("--hosts");
  command
      .add_option(
          "--diagnose", options.meant,
          "Instead, diagnose the mutants that FILE lists: of none may another mistake be named "
          "than FILE gives it, and of four fifths one must be")
      ->type_name("FILE");
  return {.parser = &command, .carry_out = check_itself};
}

}  // namespace attest
