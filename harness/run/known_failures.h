// Files of known failures (SPEC.md, chapter "Verdicts", Known failures):
//
//   {"about": "...",
//    "known": [{"case": "mask/window/**", "testee": "mine", "outcome": "FAIL", "reason": "bound",
//               "link": "https://..."}]}
//
// or the list alone.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "spec/record.h"

namespace attest {

// Throws InputError, with file and line, for what it does not understand.
std::vector<KnownFailure> read_known_failures(const std::filesystem::path& file);

// Such a file of all that failed in a record, each case and testee by itself.
std::string known_failures_of(const Record& record);

}  // namespace attest
