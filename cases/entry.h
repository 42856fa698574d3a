// One case as an entry of a case file, in JSON, for programs that make cases, change them and write
// them down. Whoever makes a case as an entry, and reads it here, has by construction the same
// problem with the same bits as whoever loads the file that it is written to.
//
// An entry of this kind is one case: it has one dtype, one class of data and no axes, and gives its
// `bits`, so that its numbers stay the same wherever the entry is moved.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cases/case.h"

namespace attest {

// The case that it is in a file of that stem. Throws InputError for whatever a file must not say
// either, and for what is not one case.
Case read_entry(const nlohmann::json& entry, const std::string& stem, std::uint64_t seed = 1);

// The entry that is this one case, as it is or fitted, of those that its file makes of an entry:
// the same problem with the same bits. Throws InputError if the file is no longer what it was
// loaded from.
nlohmann::json entry_of(const Case& test_case);

// A case with the entry that it is.
struct CaseWithEntry {
  Case test_case;
  nlohmann::json entry;
};

// All cases below `root`, as load_cases() has them, each with the entry that it is.
std::vector<CaseWithEntry> load_entries(const std::filesystem::path& root);

// The text of a case file with these entries.
std::string to_case_file(const std::string& about, const std::vector<nlohmann::json>& entries);

}  // namespace attest
