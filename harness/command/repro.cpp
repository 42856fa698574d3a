#include "harness/command/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cases/case.h"
#include "cases/entry.h"
#include "cases/shapes.h"
#include "harness/command/dump.h"
#include "harness/command/option_groups.h"
#include "harness/command/session.h"
#include "harness/diagnosis/likeness.h"
#include "harness/fuzz/fuzz.h"
#include "harness/process/in_process.h"
#include "harness/process/plugin_host.h"
#include "harness/process/testee.h"
#include "harness/process/worker.h"
#include "harness/run/conclude.h"
#include "harness/run/examine.h"
#include "harness/run/record_file.h"
#include "harness/run/run.h"
#include "reports/files.h"
#include "reports/groups.h"
#include "reports/text.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

// A kernel's name as that of a folder.
std::string folder_name(std::string name) {
  std::replace(name.begin(), name.end(), '/', '_');
  return name == "." || name == ".." ? "_" : name;
}

// The entry that a case is.
nlohmann::json entry_of(const Case& test_case, const Options& options,
                        const Installation& installation) {
  if (options.shapes.empty()) return attest::entry_of(test_case);
  for (CaseWithEntry& each : load_shapes(options.shapes, installation.cases).cases) {
    if (each.test_case.id == test_case.id) return std::move(each.entry);
  }
  throw InputError("", test_case.id + " is no shape any more");
}

// Writes the case that a testee fails, as small as it gets, into shrunk.json.
void shrink_case(const nlohmann::json& entry, const Verdict& verdict, const Testee& testee,
                 const Options& options, const Surroundings& around) {
  const RunOptions run = {.threads = options.threads, .limits = options.limits};
  const auto start = [&](const Testee& t) {
    return std::make_unique<WorkerExecutor>(worker_options(t, options.limits, around));
  };
  const Find find =
      shrunk({.entry = entry, .verdict = verdict}, "attest repro", testee, run, start, interrupted);
  const fs::path file = fs::absolute(options.out / "shrunk.json");
  write_file(file, to_case_file("What attest repro --shrink made.", {find.entry}));
  const VerdictRecord record = record_of(find, testee, run, file);
  fmt::print("  shrunk   {}\n  message  {}\n  file     {}\n  repeat   {}\n",
             to_string(read_entry(find.entry, "shrunk").problem), clean(find.verdict.message),
             file.string(), record.verdict.repro);
}

int repro(const Options& options) {
  const Installation installation = installation_for(options);
  const Case test_case = find_case(all_cases(options, installation), options.case_id);
  const Surroundings around = surroundings_for(options, installation);
  const auto testees = testees_for(options, installation, around);
  std::optional<RecordFolder> locked;
  if (options.shrink) {
    if (test_case.seed != 1) {
      throw InputError("", "--shrink takes the case's own numbers: its id with s=1");
    }
    if (testees.size() != 1) throw InputError("", "--shrink takes one --testee");
    locked.emplace(options.out);
  }
  if (options.in_process) {
    fmt::print(
        stderr,
        "attest: --in-process gives the testee this process: no isolation, no guards, no "
        "limits{}\n",
        geteuid() == 0 ? ", and it is root. Do this with none that you would not run as root" : "");
  }
  int exit_code = kConformant;
  for (const Testee& testee : testees) {
    PreparedCase prepared(test_case, options.jobs);
    std::unique_ptr<Executor> executor;
    if (options.in_process) {
      if (testee.plugin.empty()) throw InputError("", "--in-process needs a plug-in, not exec:");
      executor = std::make_unique<InProcessExecutor>(*load_plugin(testee.plugin));
    } else {
      WorkerOptions worker = worker_options(testee, options.limits, around);
      worker.interrupted = interrupted;
      executor = std::make_unique<WorkerExecutor>(std::move(worker));
    }
    const Examination examination =
        examine(prepared, testee.description, testee.kernel, *executor, options.threads);
    if (interrupted()) throw Interrupted();
    const Verdict& v = examination.verdict;
    fmt::print("{}  {}\n  case     {}\n  problem  {}, data {}\n  because  {}\n  clauses  {}\n",
               name(v.outcome), testee.name, test_case.id, to_string(test_case.problem),
               test_case.data, test_case.because, fmt::join(v.clauses, ", "));
    if (!v.blamed.empty()) fmt::print("  blamed   {}\n", clause_with_title(v.blamed));
    if (!v.reason.empty()) fmt::print("  reason   {}\n", v.reason);
    if (!v.message.empty()) fmt::print("  message  {}\n", clean(v.message));
    for (const auto& [tensor, e] : v.tensors) {
      fmt::print("  {:<8} worst at [{}]: actual {}, exact {}, bound {}, ratio {}\n", tensor,
                 fmt::join(e.worst, ","), e.actual, e.exact, e.bound, e.max_ratio);
    }
    if (asks_for_names(v)) {
      const std::string other = meant(prepared, testee.description, examination.trial, interrupted);
      if (!other.empty()) fmt::print("  did you mean  {}\n", other);
    }
    if (!v.captured.empty()) fmt::print("  printed  {}\n", clean(v.captured));
    if (!options.dump_folder.empty()) {
      const auto declared = testee.description.arithmetic.find(test_case.problem.dtype);
      const fs::path folder = testees.size() == 1 ? options.dump_folder
                                                  : options.dump_folder / folder_name(testee.name);
      dump(folder, prepared,
           declared != testee.description.arithmetic.end() ? declared->second
                                                           : loosest(test_case.problem.dtype),
           examination);
      fmt::print("  dumped   {}\n", folder.string());
    }
    if (v.outcome == Outcome::unsupported || v.outcome == Outcome::inconclusive) {
      if (exit_code == kConformant) exit_code = kIncomplete;
    } else if (!conforms(v.outcome)) {
      exit_code = kNotConformant;
      if (!options.shrink) continue;
      shrink_case(entry_of(test_case, options, installation), v, testee, options, around);
    }
  }
  return exit_code;
}

}  // namespace

Command add_repro(CLI::App& app, Options& options) {
  CLI::App& command = *app.add_subcommand("repro", "Repeat one case");
  command.add_option("case", options.case_id, "The case's id")->required();
  command.add_option("--from", options.from, "Another file or folder of cases");
  add_shapes(command, options);
  add_testee_options(command, options);
  command.add_flag("--in-process", options.in_process,
                   "Run the plug-in in this process, for a debugger");
  command.add_option("--dump", options.dump_folder,
                     "Write problem, inputs, outputs, exact values, bounds");
  command.add_flag("--shrink", options.shrink,
                   "Make a case that fails as small as it gets, and write it to shrunk.json");
  command.add_option("--out", options.out, "The folder of shrunk.json")->capture_default_str();
  return {.parser = &command, .carry_out = repro};
}

}  // namespace attest
