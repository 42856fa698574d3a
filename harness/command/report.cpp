#include "harness/command/commands.h"

#include <fmt/format.h>

#include <fstream>

#include "harness/command/session.h"
#include "harness/run/audit.h"
#include "harness/run/conclude.h"
#include "harness/run/known_failures.h"
#include "harness/run/record_file.h"
#include "harness/run/run.h"
#include "reports/files.h"
#include "reports/reports.h"
#include "spec/diagnosis.h"

namespace attest {
namespace {

int report(const Options& options) {
  Record record = read_and_audit(options.record_folder / kResults, suite_of(find_installation()));
  if (std::ifstream file(options.record_folder / kDiagnosis); file) {
    record.diagnoses = read_diagnoses(file);
  }
  // Nobody else writes there meanwhile.
  const RecordFolder folder(options.record_folder);
  write_reports(record, options.record_folder);
  fmt::print("{}", to_summary_text(record));
  if (!options.write_known.empty()) write_file(options.write_known, known_failures_of(record));
  fmt::print("\nReport: {}\n", (options.record_folder / "index.html").string());
  return exit_code_of(record);
}

}  // namespace

Command add_report(CLI::App& app, Options& options) {
  CLI::App& command = *app.add_subcommand("report", "Make the reports again from results.jsonl");
  command.add_option("folder", options.record_folder, "The folder of the record")->required();
  command
      .add_option("--write-known", options.write_known, "Write what failed into a file for --known")
      ->type_name("FILE");
  return {.parser = &command, .carry_out = report, .starts_testees = false};
}

}  // namespace attest
