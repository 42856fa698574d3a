#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cases/case.h"
#include "harness/command/commands.h"
#include "harness/command/option_groups.h"
#include "harness/command/outputs_testee.h"
#include "harness/command/progress.h"
#include "harness/command/session.h"
#include "harness/run/conclude.h"
#include "harness/run/known_failures.h"
#include "harness/run/run.h"
#include "harness/run/selection.h"
#include "harness/vectors/folder.h"
#include "harness/vectors/outputs.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

struct JudgeArguments {
  fs::path folder;
  fs::path description;
  std::vector<std::string> filters;
  std::vector<std::string> profiles;
  RecordingOptions recording;
  fs::path known;
};

// What was selected when the vectors were written, less what --cases leaves out now.
CaseOptions as_written(const std::vector<std::string>& filters, const Manifest& manifest) {
  return {.filters = filters.empty() ? manifest.filters : filters,
          .tier = tier_named(manifest.tier),
          .seed = manifest.seed,
          .from = manifest.from,
          .shapes = manifest.shapes};
}

// Throws InputError if this suite's cases are not those of the vectors.
void check_suite(const Manifest& manifest, const Plan& plan, const fs::path& folder) {
  if (manifest.suite_version != ATTEST_VERSION) {
    throw InputError("", fmt::format("{} was written by Attest {}, this is {}", folder.string(),
                                     manifest.suite_version, ATTEST_VERSION));
  }
  if (manifest.cases_digest != plan.header.cases.digest) {
    throw InputError("",
                     fmt::format("{} was written from other cases: their digest is {}, here it "
                                 "is {}",
                                 folder.string(), manifest.cases_digest, plan.header.cases.digest));
  }
}

int judge_folder(const JudgeArguments& asked) {
  check_profiles(asked.profiles);
  const Manifest manifest = read_manifest(asked.folder);
  const fs::path file =
      asked.description.empty() ? asked.folder / kDescriptionFile : asked.description;
  const Testee testee = outputs_testee(read_declaration(file), asked.folder, file.string());
  const CaseOptions options = as_written(asked.filters, manifest);
  const Installation installation = installation_for(options);
  CaseOptions written = options;
  written.filters = manifest.filters;
  const auto [whole, complete] = selected_cases(written, installation);
  const auto cases =
      select(whole, {.tier = options.tier, .filters = options.filters, .seed = options.seed});
  Plan plan = plan_for(options, installation, complete, cases.size());
  check_suite(manifest, plan, asked.folder);
  const bool claims = !asked.profiles.empty() || !testee.description.profiles.empty();
  plan.header.profiles =
      claims ? profiles_asked_for(asked.profiles, options) : std::vector<std::string>{kNoProfile};
  if (!asked.known.empty()) plan.header.known = read_known_failures(asked.known);
  plan.header.vectors = testee.spec;
  plan.outputs = testee;

  Session session(TesteeOptions(), asked.recording, installation, plan);
  const TerminalOptions& terminal = asked.recording.terminal;
  RunOptions run_options = session.run_options();
  // What was written is of the whole selection: what is left of it is asked alike.
  run_options.asking =
      std::make_shared<Asking>(whole, session.testees(), installation.cases, interrupted);
  Header header = session.header();
  note_dispatch(*run_options.asking, cases, header);
  Progress progress({stderr, terminal}, terminal.loudness, verdicts_on(cases, header));
  run_options.outputs = [&](const PreparedCase& prepared, const Testee& by) {
    return read_outputs(folder_of(asked.folder, prepared.test_case()), prepared, by.description);
  };
  Record record = run(
      cases, session.testees(), header, run_options,
      [&](const Testee& each) { return session.start(each); }, session.results(),
      [&](const VerdictRecord& verdict) { progress.add(verdict); }, interrupted);
  progress.finish();
  return session.finish_with_diagnosis(std::move(record), whole, run_options);
}

}  // namespace

Command add_judge(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "judge", "Judge the outputs that somebody computed for the problems of attest vectors");
  const auto asked = std::make_shared<JudgeArguments>();
  command.add_option("folder", asked->folder, "The folder that attest vectors wrote")->required();
  command
      .add_option("--description", asked->description,
                  "What the kernel declares, as JSON. Default: description.json in the folder")
      ->type_name("FILE");
  command
      .add_option("--cases", asked->filters,
                  "Only these, by an id, the beginning of one, or a pattern with * and **")
      ->type_name("GLOB");
  add_profiles(command, asked->profiles);
  add_recording(command, asked->recording);
  add_known(command, asked->known);
  add_colour(command, asked->recording.terminal);
  add_loudness(command, asked->recording.terminal);
  return {.parser = &command, .carry_out = [=] { return judge_folder(*asked); }};
}

}  // namespace attest
