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
#include "harness/selfcheck/catalogue.h"
#include "harness/selfcheck/selfcheck.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

struct CriteriaArguments {
  TesteeOptions testees;
  CaseOptions cases;
  RecordingOptions recording;
  std::string inputs = "both";  // theirs, ours
  std::string shard = "1/1";
  std::filesystem::path plugins;  // the folder of mutants.so, if not the installed one
};

// What it was asked for, without its sides.
criteria::Comparison comparison_for(const CriteriaArguments& asked,
                                    const std::vector<std::string>& testees) {
  criteria::Comparison comparison = {
      .suite_version = ATTEST_VERSION,
      .command = fmt::format("attest criteria --tier {} --inputs {} --shard {}",
                             name_of(asked.cases.tier), asked.inputs, asked.shard),
      .sides = {}};
  for (const std::string& filter : asked.cases.filters) comparison.command += " --cases " + filter;
  for (const std::string& testee : testees) comparison.command += " --testee " + testee;
  return comparison;
}

// The cases of other projects' kind, Attest's own, or both.
std::vector<criteria::CaseSet> sets_for(const CriteriaArguments& asked,
                                        const Installation& installation) {
  std::vector<criteria::CaseSet> sets;
  if (asked.inputs != "ours") {
    sets.push_back({.name = "theirs",
                    .about =
                        "On the features and classes of numbers that those projects try, in small "
                        "shapes",
                    .own_inputs = true,
                    .cases = criteria::their_cases()});
  }
  if (asked.inputs != "theirs") {
    auto cases = selected_cases(asked.cases, installation).cases;
    if (asked.cases.filters.empty()) cases = criteria::representatives(cases);
    sets.push_back(
        {.name = "ours", .about = "On Attest's own cases", .cases = by_worth(std::move(cases))});
  }
  return sets;
}

// The rules of other projects beside Attest, on the suite's own kernels unless others are named.
int side_by_side(const CriteriaArguments& asked) {
  constexpr double kLongestSeconds = 5;  // a call of a wrong kernel: some hang
  const auto start = std::chrono::steady_clock::now();
  const Installation installation = installation_for(asked.cases, asked.plugins);
  const fs::path mutants = installation.test_plugins / "mutants.so";
  TesteeOptions options = asked.testees;
  options.testees = with_mutants(options.testees, mutants);
  criteria::Comparison comparison = comparison_for(asked, options.testees);
  if (asked.inputs == "theirs" && !asked.cases.filters.empty()) {
    throw InputError("", "--cases selects Attest's own cases, which --inputs theirs leaves out");
  }
  const bool named = !options.testees.empty();
  if (!named)
    options.testees = {mutants.string(), (installation.test_plugins / "legitimate.so").string()};
  const Surroundings around = surroundings_for(options, installation);
  auto testees = testees_for(options, installation, around);
  if (!named) {
    for (Testee& bundled : find_testees({}, installation, options.limits, around, interrupted)) {
      testees.push_back(std::move(bundled));
    }
  }
  const auto all = criteria::subjects_of(testees, mutants);
  comparison.mutants = static_cast<std::size_t>(
      std::count_if(all.begin(), all.end(), [](const auto& subject) { return subject.wrong; }));
  const auto subjects = shard_of(all, asked.shard);

  const std::vector<criteria::CaseSet> sets = sets_for(asked, installation);
  const RecordFolder folder(asked.recording.out);
  for (const criteria::CaseSet& set : sets) {
    Progress progress({stderr, TerminalOptions()}, Loudness::usual, set.cases.size(), "cases");
    comparison.sides.push_back(criteria::compare(
        set, subjects,
        {.jobs = asked.recording.jobs,
         .workers = asked.recording.workers,
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
    criteria::write_comparison(comparison, asked.recording.out);
  }
  fmt::print("{}\nReport: {}\n", criteria::to_text(comparison),
             (asked.recording.out / "criteria.html").string());
  return kConformant;
}

}  // namespace

Command add_criteria(CLI::App& app) {
  const auto asked = std::make_shared<CriteriaArguments>();
  CLI::App& command = *app.add_subcommand(
      "criteria", "Put the rules of other projects beside Attest's, on the same results");
  add_testee_options(command, asked->testees,
                     "all bundled kernels, and those that are wrong or right on purpose");
  add_selection(command, asked->cases);
  add_recording(command, asked->recording);
  command.add_option("--inputs", asked->inputs, "theirs, ours or both")
      ->check(takes("--inputs", "theirs, ours or both", [](const std::string& text) {
        return text == "theirs" || text == "ours" || text == "both";
      }));
  command.add_option("--shard", asked->shard, "I/N: the I-th of N parts of the kernels");
  command.add_option("--plugins", asked->plugins, "The folder of mutants.so and legitimate.so");
  return {.parser = &command, .carry_out = [=] { return side_by_side(*asked); }};
}

}  // namespace attest
