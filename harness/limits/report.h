// What is told of detection limits: a table for a terminal, limits.json with the case that saw
// each, limits.md.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/limits/search.h"

namespace attest::limits {

// What some cases see.
struct Column {
  std::string name;   // "standard"
  std::string about;  // "the standard tier"
  Limits limits;
};

struct Table {
  std::string suite_version;
  std::string command;  // that makes it again
  double wall_s = 0;
  std::vector<Declaration> declarations;
  std::vector<Column> columns;
};

std::string to_text(const Table& table);
std::string to_json(const Table& table);
std::string to_markdown(const Table& table);

// limits.json and limits.md in that folder. Throws InputError if they cannot be written.
void write_table(const Table& table, const std::filesystem::path& folder);

}  // namespace attest::limits
