// A record that is read is held to what it should be (SPEC.md, chapter "Records"): concluded from
// again, its digests made again, its cases compared with those that its header selects. What does
// not agree is a defect, and nothing is concluded from a record with one.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "spec/record.h"

namespace attest {

// What a record can be held to here.
struct Suite {
  std::filesystem::path cases;  // the case files of this installation
  std::string bundled;          // SHA-256 of those that belong to this program
  std::string version, commit;  // of this program
};

// The ids of the cases that a record's header selects, where they can be had; else, why not.
struct Expectation {
  std::optional<std::vector<std::string>> ids;
  std::string why_not = {};
};
Expectation expected_cases(const Header& header, const Suite& suite);

// A verdict on what is declared, and not on a case.
bool is_on_declaration(const VerdictRecord& verdict);

// Adds to `record.defects` what its footer says itself.
void note_defects(Record& record);

// Fills `record.defects` and `record.unverified`. `digests` are those of the lines that it was read
// from.
void audit(Record& record, const Digests& digests, const Expectation& expected);

// Reads the record of a file, and audits it. Throws InputError, with file and line, for what is no
// record.
Record read_and_audit(const std::filesystem::path& file, const Suite& suite);

}  // namespace attest
