// What is told of a comparison: a table for a terminal, criteria.json with every name, criteria.md,
// and criteria.html, a page by itself.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/criteria/compare.h"
#include "reports/catches.h"

namespace attest::criteria {

struct Comparison {
  std::string suite_version;
  std::string command;      // that makes it again
  std::size_t mutants = 0;  // that there are, whatever shard of them was judged
  double wall_s = 0;
  std::vector<Side> sides;
};

std::string to_text(const Comparison& comparison);
std::string to_json(const Comparison& comparison);
std::string to_markdown(const Comparison& comparison);
std::string to_html(const Comparison& comparison);

// The picture of a side: a row a judge, a column a wrong kernel in a format that its fault
// concerns.
CatchTable catches_of(const Side& side);

// criteria.json, criteria.md and criteria.html in that folder. Throws InputError if they cannot be
// written.
void write_comparison(const Comparison& comparison, const std::filesystem::path& folder);

}  // namespace attest::criteria
