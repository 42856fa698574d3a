// Reports, all made from a record and nothing else.
#pragma once

#include <filesystem>
#include <string>

#include "spec/record.h"

namespace attest {

std::string to_report_json(const Record& record);  // of the schema spec/report.schema.json
std::string to_junit_xml(const Record& record);    // unsupported = skipped, crash = error
std::string to_summary_markdown(const Record& record);
std::string to_html(const Record& record);  // one self-contained page, readable offline

// How much is said on a terminal: the conclusion alone, what is usual, or nothing cut.
enum class Detail { brief, usual, whole };

// What a run ends with on a terminal: a row a testee, a column an outcome, the largest ratio of
// each tensor, the profiles met, a failure of each kind, the conclusion.
std::string to_summary_text(const Record& record, Detail detail = Detail::usual);

// What is said of a record that is only looked at: its conclusion, notes, and digests.
std::string to_verification_text(const Record& record);

// Whether it is whole, and says nothing against itself.
bool is_consistent(const Record& record);

// What a program that reports on the record exits with: the footer's code, unless the record is
// truncated or inconsistent (3).
int exit_code_of(const Record& record);

// Writes report.json, junit.xml, summary.md and index.html into `folder`. Throws InputError if a
// file cannot be written.
void write_reports(const Record& record, const std::filesystem::path& folder);

}  // namespace attest
