// Faults hide where two features meet. Every pair of features, and every feature in every format,
// is tried by a case of the standard tier, or can't be and is listed here with its reason.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "cases/case.h"
#include "spec/description.h"

namespace attest {
namespace {

using Pair = std::pair<std::string, std::string>;  // the first one in known_features() first

// Pairs that no well-formed problem has.
const std::map<Pair, const char*>& impossible() {
  static const std::map<Pair, const char*> kImpossible = {
      {{"backward", "paged"}, "paged keys have no backward pass (PAGE-1)"},
      {{"paged", "dbias"}, "paged keys have no backward pass (PAGE-1)"},
      {{"paged", "dlse"}, "paged keys have no backward pass (PAGE-1)"},
      {{"lengths", "packed"}, "in a packed problem the lengths are the layout itself"},
      {{"dropout", "dropout-generated"}, "a keep-mask is given or drawn"},
  };
  return kImpossible;
}

std::set<std::string> features_of(const Problem& problem) {
  Description nothing;
  nothing.dtypes.assign(std::begin(kDTypes), std::end(kDTypes));
  std::set<std::string> features;
  std::istringstream words(undeclared(problem, nothing));
  for (std::string word; words >> word;) {
    if (word.back() == ',') word.pop_back();
    features.insert(word);
  }
  return features;
}

// All features, but for `lse`, which no problem asks for.
std::vector<std::string> features() {
  std::vector<std::string> all = known_features();
  std::erase(all, "lse");
  return all;
}

struct Tried {
  std::set<Pair> pairs;
  std::set<std::pair<std::string, DType>> formats;
};
Tried tried() {
  Tried result;
  for (const Case& c : load_cases(ATTEST_CASES_DIR)) {
    if (c.tier == Tier::full) continue;
    const std::set<std::string> present = features_of(c.problem);
    // Where a tensor is empty, nothing but that is tried.
    const bool empty = present.contains("zero-sizes");
    const auto counts = [&](const std::string& name) { return !empty || name == "zero-sizes"; };
    for (const std::string& a : present) {
      if (counts(a)) result.formats.emplace(a, c.problem.dtype);
      for (const std::string& b : present) {
        if (counts(a) || counts(b)) result.pairs.emplace(a, b);
      }
    }
  }
  return result;
}

TEST(FeaturePairsTest, EveryPairIsTriedOrImpossible) {
  const Tried all = tried();
  const std::vector<std::string> names = features();
  int covered = 0, excused = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    for (std::size_t j = i + 1; j < names.size(); ++j) {
      const Pair pair = {names[i], names[j]};
      const bool is_tried = all.pairs.contains(pair);
      const auto excuse = impossible().find(pair);
      if (excuse == impossible().end()) {
        EXPECT_TRUE(is_tried) << "no case has " << pair.first << " and " << pair.second;
      } else {
        EXPECT_FALSE(is_tried) << pair.first << " and " << pair.second << ": " << excuse->second;
        ++excused;
      }
      covered += is_tried;
    }
  }
  EXPECT_EQ(excused, static_cast<int>(impossible().size())) << "an excuse for no pair";
  fmt::print("{} pairs of {} features are tried, {} are impossible\n", covered, names.size(),
             excused);
}

TEST(FeaturePairsTest, EveryFeatureIsTriedInEveryFormat) {
  const Tried all = tried();
  for (const std::string& feature : features()) {
    for (const DType dtype : kDTypes) {
      EXPECT_TRUE(all.formats.contains({feature, dtype})) << feature << " " << name(dtype);
    }
  }
}

}  // namespace
}  // namespace attest
