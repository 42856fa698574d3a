// write_samples FOLDER: each sample record with its reports, in a folder of its own.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "reports/reports.h"
#include "tests/reports/samples.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: write_samples FOLDER\n";
    return 2;
  }
  for (const auto& [name, record] : attest::samples()) {
    const std::filesystem::path folder = std::filesystem::path(argv[1]) / name;
    attest::write_reports(record, folder);
    std::ofstream lines(folder / "results.jsonl");
    lines << to_line(record.header) << '\n';
    for (const auto& verdict : record.verdicts) lines << to_line(verdict) << '\n';
    if (record.footer) lines << to_line(*record.footer) << '\n';
    std::ofstream(folder / "summary.txt") << to_summary_text(record);
  }
}
