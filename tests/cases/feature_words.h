// The words of which combinations of features are made, for tests that ask which of them a case of
// the standard tier tries; and why no well-formed problem has some of them.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "spec/description.h"
#include "spec/dtype.h"
#include "spec/feature.h"
#include "spec/problem.h"

namespace attest {

inline constexpr const char* kPasses[] = {"forward", "backward"};
inline std::string pass_of(const Problem& problem) { return kPasses[problem.backward]; }

// The words that a problem's features are declared by, but for `backward`, which is the pass, and
// `dbias`, which is `bias` in that pass.
inline std::set<std::string> named_features(const Problem& problem) {
  Description nothing;
  nothing.dtypes.assign(std::begin(kDTypes), std::end(kDTypes));
  std::set<std::string> features;
  std::istringstream words(undeclared(problem, nothing));
  for (std::string word; words >> word;) {
    if (word.back() == ',') word.pop_back();
    if (word != "backward" && word != "dbias") features.insert(word);
  }
  return features;
}
inline std::vector<std::string> features_in_pairs() {
  std::vector<std::string> all = known_features();
  std::erase_if(all, [](const std::string& feature) {
    // What is of a testee no problem asks for. What is `long` is too long for pairs.
    return is_of_testee(*find_feature(feature)) || feature == "long" || feature == "backward" ||
           feature == "dbias";
  });
  return all;
}

// What is tried, each thing as the words of which it consists, the pass last.
using Combination = std::vector<std::string>;

// Every feature by itself, and every pair of them.
inline std::vector<Combination> features_and_pairs() {
  std::vector<Combination> all;
  const std::vector<std::string> names = features_in_pairs();
  for (std::size_t i = 0; i < names.size(); ++i) {
    all.push_back({names[i]});
    for (std::size_t j = i + 1; j < names.size(); ++j) all.push_back({names[i], names[j]});
  }
  return all;
}

// Why no well-formed problem has a combination (chapter Combinations of SPEC.md); empty if one has.
inline std::string impossible(const Combination& combination) {
  struct Reason {
    Combination words;  // all of which the combination has
    const char* why;
  };
  static const std::vector<Reason> kReasons = {
      {{"paged", "backward"}, "paged keys have no backward pass (PAGE-1)"},
      {{"packed and paged", "backward"}, "paged keys have no backward pass (PAGE-1)"},
      {{"paged", "dlse"}, "paged keys have no backward pass (PAGE-1), which alone has dLSE"},
      {{"dlse", "forward"}, "dLSE is given to a backward pass only (GRAD-5)"},
      {{"lengths", "packed"}, "in a packed problem the lengths are the layout itself (LAYOUT-5)"},
      {{"lengths", "packed and paged"}, "as where it is packed (LAYOUT-5)"},
      {{"dropout", "dropout-generated"}, "a keep-mask is given or drawn (DROP-1, DROP-3)"},
      {{"stored-qkv", "stored-qk"}, "V is stored in 8 bits or is not (FORMAT-5)"},
      {{"stored-qkv", "stored-kv"}, "Q is stored in 8 bits or is not (FORMAT-5)"},
      {{"stored-qk", "stored-kv"}, "Q is stored in 8 bits or is not (FORMAT-5)"},
      {{"bfp8", "int8"}, "blocks of channels have scales in each tensor or in none (FORMAT-6)"},
      {{"bfp8", "scales-of-heads"}, "a scale is of a block or is not (FORMAT-6)"},
      {{"bfp8", "scales-of-positions"}, "a scale is of a block or is not (FORMAT-6)"},
      {{"mxfp8", "int8"}, "blocks of channels have scales in each tensor or in none (FORMAT-8)"},
      {{"mxfp8", "scales-of-heads"}, "a scale is of a block or is not (FORMAT-8)"},
      {{"mxfp8", "scales-of-positions"}, "a scale is of a block or is not (FORMAT-8)"},
  };
  // None of these has a backward pass, nor f64 (FORMAT-5).
  constexpr const char* kStored[] = {
      "stored-qkv", "stored-qk",       "stored-kv",          "e4m3", "int8", "e5m2", "mxfp8",
      "bfp8",       "scales-of-heads", "scales-of-positions"};
  const auto has = [&](const std::string& word) {
    return std::find(combination.begin(), combination.end(), word) != combination.end();
  };
  for (const auto& [words, why] : kReasons) {
    if (std::all_of(words.begin(), words.end(), has)) return why;
  }
  const bool is_stored = std::any_of(std::begin(kStored), std::end(kStored), has);
  if (is_stored && (has("backward") || has("dlse"))) {
    return "what is stored in 8 bits has no backward pass (FORMAT-5)";
  }
  if (is_stored && has("f64")) return "what is stored in 8 bits is not computed in f64 (FORMAT-5)";
  return "";
}

// Compares what is tried with what there is to try, prints a line of counts, and names all that is
// missing.
inline void expect_all_tried(const char* what, const std::vector<Combination>& wanted,
                             const std::set<Combination>& tried) {
  int covered = 0, excused = 0;
  for (const Combination& combination : wanted) {
    const bool is_tried = tried.contains(combination);
    const std::string why = impossible(combination);
    const std::string words = fmt::format("{}", fmt::join(combination, ", "));
    if (why.empty()) {
      EXPECT_TRUE(is_tried) << "no case has " << words;
    } else {
      EXPECT_FALSE(is_tried) << words << ": " << why;
    }
    covered += is_tried;
    excused += !why.empty();
  }
  fmt::print("{}: {} tried, {} impossible, {} missing\n", what, covered, excused,
             static_cast<int>(wanted.size()) - covered - excused);
}

}  // namespace attest
