// write_samples FOLDER: each sample record with its reports, in a folder of its own.
// write_samples FOLDER large: the page of the large record alone, and one of catches.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "reports/catches.h"
#include "reports/files.h"
#include "reports/reports.h"
#include "tests/reports/samples.h"

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::cerr << "usage: write_samples FOLDER [large]\n";
    return 2;
  }
  if (argc == 3) {
    const std::filesystem::path folder = std::filesystem::path(argv[1]) / argv[2];
    attest::make_folder(folder);
    attest::write_file(folder / "index.html", to_html(attest::large_record()));
    const attest::CatchTable table = {.title = "Rules & kernels",
                                      .rows = {"rule </b>", "ours"},
                                      .columns = {"one", "two"},
                                      .letters = {"cm", "cc"}};
    attest::write_file(
        std::filesystem::path(argv[1]) / "catches.html",
        attest::catches_page("Catches",
                             attest::element("h1", {}, "Catches") + attest::place_of_catches(0),
                             {table}));
    return 0;
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
