#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>

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

struct JudgeOptions {
  fs::path folder;
  fs::path description;
};

// What was selected when the vectors were written, less what --cases leaves out now.
Options as_written(Options options, const Manifest& manifest) {
  options.tier = tier_named(manifest.tier);
  options.seed = manifest.seed;
  options.from = manifest.from;
  options.shapes = manifest.shapes;
  if (options.filters.empty()) options.filters = manifest.filters;
  return options;
}

// Throws InputError if this suite's cases are not those of the vectors.
void check_suite(const Manifest& manifest, const Plan& plan, const fs::path& folder) {
  if (manifest.suite_version != ATTEST_VERSION) {
    throw InputError("", fmt::format("{} was written by Attest {}, this is {}", folder.string(),
                                     manifest.suite_version, ATTEST_VERSION));
  }
  if (manifest.cases_digest != plan.cases.digest) {
    throw InputError("", fmt::format("{} was written from other cases: their digest is {}, here it "
                                     "is {}",
                                     folder.string(), manifest.cases_digest, plan.cases.digest));
  }
}

int judge_folder(const Options& said, const JudgeOptions& own) {
  check_profiles(said.profiles);
  const Manifest manifest = read_manifest(own.folder);
  const fs::path file = own.description.empty() ? own.folder / kDescriptionFile : own.description;
  const Testee testee = outputs_testee(read_declaration(file), own.folder, file.string());
  Options options = as_written(said, manifest);
  if (options.profiles.empty() && testee.description.profiles.empty()) {
    options.profiles = {kNoProfile};
  }
  const Installation installation = installation_for(options);
  const std::vector<Case> all = all_cases(options, installation);
  const auto cases =
      select(all, {.tier = options.tier, .filters = options.filters, .seed = options.seed});
  Plan plan = plan_for(options, installation, all, cases.size());
  check_suite(manifest, plan, own.folder);
  if (!options.known.empty()) plan.known = read_known_failures(options.known);
  plan.outputs = {.folder = testee.spec, .testee = testee};

  Session session(options, installation, plan);
  Progress progress({stderr, options.terminal}, options.terminal.loudness, cases.size());
  RunOptions run_options = session.run_options();
  run_options.asking = std::make_shared<Asking>(cases, session.testees(), installation.cases);
  run_options.outputs = [&](const PreparedCase& prepared, const Testee& by) {
    return read_outputs(folder_of(own.folder, prepared.test_case()), prepared, by.description);
  };
  Record record = run(
      cases, session.testees(), session.header(), run_options,
      [&](const Testee& each) { return session.start(each); }, session.results(),
      [&](const VerdictRecord& verdict) { progress.add(verdict); }, interrupted);
  progress.finish();
  return session.finish_with_diagnosis(std::move(record), all, run_options);
}

}  // namespace

Command add_judge(CLI::App& app, Options& options) {
  CLI::App& command = *app.add_subcommand(
      "judge", "Judge the outputs that somebody computed for the problems of attest vectors");
  const auto own = std::make_shared<JudgeOptions>();
  command.add_option("folder", own->folder, "The folder that attest vectors wrote")->required();
  command
      .add_option("--description", own->description,
                  "What the kernel declares, as JSON. Default: description.json in the folder")
      ->type_name("FILE");
  command
      .add_option("--cases", options.filters,
                  "Only these, by an id, the beginning of one, or a pattern with * and **")
      ->type_name("GLOB");
  add_profiles(command, options);
  add_recording(command, options);
  add_known(command, options);
  add_colour(command, options);
  add_loudness(command, options);
  return {.parser = &command,
          .carry_out = [own](const Options& given) { return judge_folder(given, *own); }};
}

}  // namespace attest
