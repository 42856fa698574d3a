#include "harness/command/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "harness/command/option_groups.h"
#include "harness/command/progress.h"
#include "harness/command/session.h"
#include "harness/criteria/inputs.h"
#include "harness/criteria/report.h"
#include "harness/criteria/subjects.h"
#include "harness/process/testee.h"
#include "harness/process/worker.h"
#include "harness/run/conclude.h"
#include "harness/run/record_file.h"
#include "harness/run/selection.h"
#include "harness/selfcheck/selfcheck.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

// What it was asked for, without its sides.
criteria::Comparison comparison_for(const Options& options) {
  criteria::Comparison comparison = {
      .suite_version = ATTEST_VERSION,
      .command = fmt::format("attest criteria --tier {} --inputs {} --shard {}",
                             name_of(options.tier), options.inputs, options.shard),
      .sides = {}};
  for (const std::string& filter : options.filters) comparison.command += " --cases " + filter;
  for (const std::string& testee : options.testees) comparison.command += " --testee " + testee;
  return comparison;
}

// The cases of other projects' kind, Attest's own, or both.
std::vector<criteria::CaseSet> sets_for(const Options& options, const Installation& installation) {
  std::vector<criteria::CaseSet> sets;
  if (options.inputs != "ours") {
    sets.push_back({.name = "theirs",
                    .about =
                        "On the features and classes of numbers that those projects try, in small "
                        "shapes",
                    .own_inputs = true,
                    .cases = criteria::their_cases()});
  }
  if (options.inputs != "theirs") {
    auto cases = selected_cases(options, installation);
    if (options.filters.empty()) cases = criteria::representatives(cases);
    sets.push_back(
        {.name = "ours", .about = "On Attest's own cases", .cases = by_worth(std::move(cases))});
  }
  return sets;
}

// The rules of other projects beside Attest, on the suite's own kernels unless others are named.
int side_by_side(Options options) {
  constexpr double kLongestSeconds = 5;  // a call of a wrong kernel: some hang
  const auto start = std::chrono::steady_clock::now();
  const Installation installation = installation_for(options);
  if (options.plugins.empty()) options.plugins = installation.test_plugins;
  const fs::path mutants = options.plugins / "mutants.so";
  criteria::Comparison comparison = comparison_for(options);
  if (options.inputs == "theirs" && !options.filters.empty()) {
    throw InputError("", "--cases selects Attest's own cases, which --inputs theirs leaves out");
  }
  const bool named = !options.testees.empty();
  if (!named) options.testees = {mutants.string(), (options.plugins / "legitimate.so").string()};
  const Surroundings around = surroundings_for(options, installation);
  auto testees = testees_for(options, installation, around);
  if (!named) {
    for (Testee& bundled : find_testees({}, installation, options.limits, around, interrupted)) {
      testees.push_back(std::move(bundled));
    }
  }
  const auto subjects = shard_of(criteria::subjects_of(testees, mutants), options.shard);

  const std::vector<criteria::CaseSet> sets = sets_for(options, installation);
  const RecordFolder folder(options.out);
  for (const criteria::CaseSet& set : sets) {
    Progress progress({stderr, options.terminal}, options.terminal.loudness, set.cases.size());
    comparison.sides.push_back(criteria::compare(
        set, subjects,
        {.jobs = options.jobs,
         .workers = options.workers,
         .threads = options.threads,
         .limits = options.limits},
        [&](const Testee& testee) {
          WorkerOptions worker = worker_options(testee, options.limits, around);
          worker.interrupted = interrupted;
          std::error_code none;
          if (!testee.plugin.empty() && fs::equivalent(testee.plugin, mutants, none)) {
            worker.limits.call_seconds = std::min(worker.limits.call_seconds, kLongestSeconds);
          }
          return std::make_unique<WorkerExecutor>(std::move(worker));
        },
        [&] { progress.add_one(); }, interrupted));
    progress.finish();
    if (interrupted()) {
      fmt::print(stderr, "attest: interrupted; {} written\n",
                 comparison.sides.size() > 1 ? "the first side is" : "nothing is");
      return kIncomplete;
    }
    comparison.wall_s =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    criteria::write_comparison(comparison, options.out);
  }
  fmt::print("{}\nReport: {}\n", criteria::to_text(comparison),
             (options.out / "criteria.html").string());
  return kConformant;
}

}  // namespace

Command add_criteria(CLI::App& app, Options& options) {
  CLI::App& command = *app.add_subcommand(
      "criteria", "Put the rules of other projects beside Attest's, on the same results");
  add_testee_options(command, options,
                     "all bundled kernels, and those that are wrong or right on purpose");
  add_selection(command, options);
  add_recording(command, options);
  command.add_option("--inputs", options.inputs, "theirs, ours or both")
      ->check(takes("--inputs", "theirs, ours or both", [](const std::string& text) {
        return text == "theirs" || text == "ours" || text == "both";
      }));
  command.add_option("--shard", options.shard, "I/N: the I-th of N parts of the kernels");
  command.add_option("--plugins", options.plugins, "The folder of mutants.so and legitimate.so");
  return {.parser = &command, .carry_out = side_by_side};
}

}  // namespace attest
