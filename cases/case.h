// A case: a problem, its inputs, the clauses that it tries, and why it exists.
//
// Cases are data (cases/**/*.json). The id of a case is its path; it is stable, and the bits of the
// inputs derive from it alone:
//   mask/causal/bottom_right/sq=129,sk=4097,d=64/dtype=bf16/data=ascending/s=1
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest {

enum class Tier { smoke, standard, full };  // each contains the ones before it

// What lies in keys (K and V) that no query may see.
enum class Hidden {
  plain,  // numbers like all others
  huge,   // finite numbers near the largest that keep every score finite (HIDE-1)
  nan,    // NaN and Inf, in keys beyond a length only (HIDE-2)
};

struct Case {
  std::string id;
  std::vector<std::string> clauses;
  std::string because;  // one sentence: what breaks here
  Tier tier = Tier::standard;
  Problem problem;
  std::string data;  // the input class, one of input_classes() in generate.h
  Hidden hidden = Hidden::plain;
  std::uint64_t seed = 1;  // the N of s=N
  std::string file = {};   // where it is written, for messages
  int line = 0;
};

// All cases below `root`, of all tiers, in a stable order, with s = `seed`. Throws InputError,
// whose text names file, line and key, for whatever is not understood.
std::vector<Case> load_cases(const std::filesystem::path& root, std::uint64_t seed = 1);

// The case of that id among `cases`, whatever its s=N says (the copy has that seed). Throws
// InputError with the nearest ids if there is none.
Case find_case(const std::vector<Case>& cases, const std::string& id);

// Whether `id` matches a pattern: * within a path element, ** across elements; a pattern without
// wildcards also matches everything below it.
bool matches(const std::string& id, const std::string& pattern);

}  // namespace attest
