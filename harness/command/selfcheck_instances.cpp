#include <fmt/format.h>

#include <memory>
#include <vector>

#include "cases/entry.h"
#include "harness/command/progress.h"
#include "harness/command/selfcheck.h"
#include "harness/command/session.h"
#include "harness/instances/sweep.h"
#include "harness/process/worker.h"
#include "harness/run/conclude.h"
#include "harness/run/record_file.h"
#include "reports/files.h"

namespace attest {

int selfcheck_instances(const SelfcheckArguments& asked) {
  constexpr double kMutantSeconds = 3;
  constexpr std::size_t kMutantBytes = std::size_t(512) << 20;
  const Installation installation = installation_for(asked.cases, asked.plugins);
  const std::filesystem::path mutants = installation.test_plugins / "mutants.so";
  const Catalogue catalogue = load_catalogue(mutants);
  const auto dispatches = instances::load_dispatches(
      asked.dispatch.empty() ? installation.test_plugins / "dispatch" : asked.dispatch);
  const TesteeOptions kernels = {
      .testees = {mutants.string()},
      .limits = {.call_seconds = kMutantSeconds, .memory_bytes = kMutantBytes}};
  const Surroundings around = surroundings_for(kernels, installation);
  const auto testees = testees_for(kernels, installation, around);
  const RecordFolder folder(asked.recording.out);
  instances::SweepOptions options = {.mutants = asked.instances,
                                     .seed = asked.cases.seed,
                                     .problems = asked.random,
                                     .declared = asked.declared ? installation.cases : "",
                                     .run = {.jobs = asked.recording.jobs,
                                             .workers = asked.recording.workers,
                                             .threads = kernels.threads,
                                             .limits = kernels.limits}};
  options.run.tries_again = false;  // what hangs is caught by that
  const TerminalOptions& terminal = asked.recording.terminal;
  Progress progress({stderr, terminal}, terminal.loudness, asked.instances, "mutants");
  const instances::Sweep swept = instances::sweep(
      selected_cases(asked.cases, installation).cases, load_entries(installation.cases), dispatches,
      catalogue, testees, options,
      [&](const Testee& testee) {
        WorkerOptions worker = worker_options(testee, kernels.limits, around);
        worker.interrupted = interrupted;
        return std::make_unique<WorkerExecutor>(std::move(worker));
      },
      [&] { progress.add_one(); }, interrupted);
  progress.finish();
  if (swept.interrupted) {
    fmt::print(stderr, "attest: interrupted; nothing is written\n");
    return kIncomplete;
  }
  write_file(folder.path() / "instances.json", to_json(swept));
  fmt::print("{}", to_text(swept));
  // What is asked of the suite.
  const auto holds = [](const instances::Rate& rate, std::size_t percent) {
    return 100 * rate.seen >= percent * rate.of;
  };
  return holds(by_cases(swept), 95) && holds(by_random_problems_too(swept), 98) ? kConformant
                                                                                : kNotConformant;
}

}  // namespace attest
