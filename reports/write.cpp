#include <fmt/format.h>

#include <fstream>

#include "reports/digest.h"
#include "reports/reports.h"
#include "spec/json_reader.h"

namespace attest {

void write_file(const std::filesystem::path& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  file.close();
  if (!file) throw InputError("", fmt::format("cannot write {}", path.string()));
}

int exit_code_of(const Record& record) { return digest(record).exit_code; }

void write_reports(const Record& record, const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw InputError("", fmt::format("cannot make {}: {}", folder.string(), error.message()));
  }
  write_file(folder / "report.json", to_report_json(record));
  write_file(folder / "junit.xml", to_junit_xml(record));
  write_file(folder / "summary.md", to_summary_markdown(record));
  write_file(folder / "index.html", to_html(record));
}

}  // namespace attest
