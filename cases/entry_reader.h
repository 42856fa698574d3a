// One entry of a case file, and the cases that it means: one for each point of its axes, each dtype
// and each class of data.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cases/case.h"
#include "cases/located_json.h"
#include "cases/settings.h"

namespace attest {

// The cases of a file that are wanted as entries of their own.
struct WantedCases {
  std::string id;                            // of the only one; empty: all
  std::vector<nlohmann::json> entries = {};  // in the order of the cases
};

// What all entries of a file have in common.
struct FileRead {
  std::string stem;  // path below the root, without .json
  std::string file = {};
  const LocatedJson* json;  // null: the entry is in no file
  std::uint64_t seed;
  WantedCases* wanted = nullptr;
  CaseChoice* choice = nullptr;                      // null: all are read
  nlohmann::json fields = nlohmann::json::object();  // of a problem, by default
  Settings defaults = {};
  std::set<std::string> names = {};  // of the entries so far
};

// Adds the cases of an entry of `source`, which stands at `pointer`.
void read_entry(const nlohmann::json& entry, const std::string& pointer, FileRead& source,
                std::vector<Case>& cases);

}  // namespace attest
