#include "harness/command/commands.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <sstream>

#include "harness/command/session.h"
#include "harness/run/audit.h"
#include "harness/run/conclude.h"
#include "harness/run/known_failures.h"
#include "harness/run/record_file.h"
#include "harness/run/run.h"
#include "reports/files.h"
#include "reports/reports.h"
#include "spec/diagnosis.h"
#include "spec/read_file.h"

namespace attest {
namespace {

struct ReportArguments {
  std::filesystem::path record_folder;
  std::filesystem::path write_known;
};

}  // namespace

int report_on(const std::filesystem::path& record_folder, const std::filesystem::path& known) {
  Record record = read_and_audit(record_folder / kResults, suite_of(find_installation()));
  const std::filesystem::path diagnosis = record_folder / kDiagnosis;
  if (std::filesystem::exists(diagnosis)) {
    std::istringstream text(read_file(diagnosis));
    record.diagnoses = read_diagnoses(text);
  }
  // Nobody else writes there meanwhile.
  const RecordFolder folder(record_folder);
  write_reports(record, record_folder);
  fmt::print("{}", to_summary_text(record));
  if (!known.empty()) write_file(known, known_failures_of(record));
  fmt::print("\nReport: {}\n", (record_folder / "index.html").string());
  return exit_code_of(record);
}

Command add_report(CLI::App& app) {
  const auto asked = std::make_shared<ReportArguments>();
  CLI::App& command = *app.add_subcommand("report", "Make the reports again from results.jsonl");
  command.add_option("folder", asked->record_folder, "The folder of the record")->required();
  command
      .add_option("--write-known", asked->write_known, "Write what failed into a file for --known")
      ->type_name("FILE");
  return {.parser = &command,
          .carry_out = [=] { return report_on(asked->record_folder, asked->write_known); },
          .starts_testees = false};
}

}  // namespace attest
