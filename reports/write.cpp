#include "reports/digest.h"
#include "reports/files.h"
#include "reports/reports.h"

namespace attest {

int exit_code_of(const Record& record) { return digest(record).exit_code; }

bool is_consistent(const Record& record) {
  const State state = digest(record).state;
  return state != State::truncated && state != State::inconsistent;
}

void write_reports(const Record& record, const std::filesystem::path& folder) {
  make_folder(folder);
  write_file(folder / "report.json", to_report_json(record));
  write_file(folder / "junit.xml", to_junit_xml(record));
  write_file(folder / "summary.md", to_summary_markdown(record));
  write_file(folder / "index.html", to_html(record));
}

}  // namespace attest
