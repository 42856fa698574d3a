// Tails of tiles: where the keys end within a tile of a kernel, what pads it must count for
// nothing, whatever the scores. Of these, any three are tried together in each format by a case of
// the standard tier, and any four but for the queries, as computed from the cases themselves:
//
//   k mod 32, mod 64 and mod 128: 0, 1, a half, all but one
//   scores in their ordinary range; LSE below -88.7, where exp(0 - LSE) overflows f32; scores above
//   88.7, where exp without the maximum taken off does
//   no mask, a dense mask, a bias
//   one query, a tile of them, as many as keys
//   the forward pass alone, and both
//
// Square causal masks, all that some kernels have, at each tail of 64 with low and high scores, in
// both passes and each format. Besides, each feature of scores and each mask at each tail of 64, in
// both passes in f32.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "cases/case.h"
#include "spec/contains.h"
#include "spec/feature.h"

namespace attest::tails {
namespace {

constexpr Index kTailTiles[] = {32, 64, 128};

enum TailFactor { kScores, kMasks, kRows, kPass };  // then what each tile leaves of k

// The levels of each factor. Those of a problem are at most one of each: "" where it has none.
using Levels = std::vector<std::string>;
const std::vector<Levels>& factors() {
  static const std::vector<Levels> kFactors = [] {
    std::vector<Levels> factors = {{"ordinary scores", "low scores", "high scores"},
                                   {"no mask", "a dense mask", "a bias"},
                                   {"one query", "a tile of queries", "as many queries as keys"},
                                   {"forward", "backward"}};
    for (const Index tile : kTailTiles) {
      Levels& rests = factors.emplace_back();
      for (const Index rest : {Index(0), Index(1), tile / 2, tile - 1}) {
        rests.push_back(fmt::format("k mod {} = {}", tile, rest));
      }
    }
    return factors;
  }();
  return kFactors;
}

std::string score_level(const Case& c) {
  if (c.data == "normal") return "ordinary scores";
  if (c.data == "low") return "low scores";
  return c.data == "high" ? "high scores" : "";
}
std::string mask_level(const Problem& p) {
  const bool full = p.mask.kind == Mask::Kind::full;
  if (p.bias_shape) return full ? "a bias" : "";
  return full ? "no mask" : p.mask.kind == Mask::Kind::dense ? "a dense mask" : "";
}
std::string query_level(const Problem& p) {
  if (p.query_len == 1) return "one query";
  if (p.query_len == p.key_len) return "as many queries as keys";
  const bool tile = std::any_of(std::begin(kTailTiles), std::end(kTailTiles),
                                [&](Index size) { return p.query_len == size; });
  return tile ? "a tile of queries" : "";
}

// Of a problem in which nothing else decides what a padded key weighs; empty for all others.
Levels levels_of(const Case& c) {
  const Problem& p = c.problem;
  if (p.packed || p.paging.page_size > 0 || !p.key_lens.empty() || !p.query_lens.empty() ||
      p.softcap != 0 || p.sink || p.slopes_shape || p.dropout.mode != Dropout::Mode::none ||
      c.hidden != Hidden::plain) {
    return {};
  }
  Levels levels = {score_level(c), mask_level(p), query_level(p),
                   p.backward ? "backward" : "forward"};
  for (const Index tile : kTailTiles) {
    levels.push_back(fmt::format("k mod {} = {}", tile, p.key_len % tile));
  }
  return levels;
}

// Calls visit(levels, dtype) for each choice of one level of each of these factors.
template <class Visit>
void for_each_choice(const std::vector<std::size_t>& chosen, const Visit& visit) {
  std::vector<Levels> choices = {{}};
  for (const std::size_t factor : chosen) {
    std::vector<Levels> longer;
    for (const Levels& choice : choices) {
      for (const std::string& level : factors()[factor]) {
        longer.push_back(choice);
        longer.back().push_back(level);
      }
    }
    choices = std::move(longer);
  }
  for (Levels& choice : choices) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      choice.push_back(std::string(name(dtype)));
      visit(choice);
      choice.pop_back();
    }
  }
}

TEST(TailsTest, WhatATailMeetsIsTriedTogetherInEachFormat) {
  const std::vector<Case> cases = load_cases(ATTEST_CASES_DIR);
  int wanted = 0, missing = 0;
  const auto want = [&](const std::vector<std::size_t>& chosen) {
    std::set<Levels> tried;
    for (const Case& c : cases) {
      const Levels levels = c.tier == Tier::full ? Levels{} : levels_of(c);
      if (levels.empty()) continue;
      Levels those;
      for (const std::size_t factor : chosen) those.push_back(levels[factor]);
      those.push_back(std::string(name(c.problem.dtype)));
      tried.insert(those);
    }
    for_each_choice(chosen, [&](const Levels& levels) {
      ++wanted;
      missing += !tried.contains(levels);
      EXPECT_TRUE(tried.contains(levels)) << fmt::format("no case has {}", fmt::join(levels, ", "));
    });
  };
  // What is left of k by one size of tile says much of the others: only one of them at a time.
  const std::size_t rests = factors().size() - std::size(kTailTiles);
  for (std::size_t rest = rests; rest < factors().size(); ++rest) {
    for (std::size_t i = 0; i < rests; ++i) {
      for (std::size_t j = i + 1; j < rests; ++j) want({i, j, rest});
    }
    want({kScores, kMasks, kPass, rest});
  }
  want({kScores, kMasks, kRows});
  want({kScores, kMasks, kPass});
  want({kScores, kRows, kPass});
  want({kMasks, kRows, kPass});
  fmt::print("tails: {} together, {} missing\n", wanted, missing);
}

// What kernels that are causal alone, and square, can be asked.
TEST(TailsTest, SquareCausalMasksMeetEachTailWithScoresFarFrom0) {
  constexpr Index kTile = 64;
  using Meeting = std::tuple<std::string, Index, bool, DType>;  // data, k mod 64, backward
  std::set<Meeting> tried;
  for (const Case& c : load_cases(ATTEST_CASES_DIR)) {
    const Problem& p = c.problem;
    if (c.tier == Tier::full || p.query_len != p.key_len || levels_of(c).empty()) continue;
    if (to_string(p.mask) != "causal bottom_right" && to_string(p.mask) != "causal") continue;
    tried.emplace(c.data, p.key_len % kTile, p.backward, p.dtype);
  }
  for (const char* data : {"low", "high"}) {
    for (const Index rest : {Index(0), Index(1), kTile / 2, kTile - 1}) {
      for (const bool backward : {false, true}) {
        for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
          EXPECT_TRUE(tried.contains({data, rest, backward, dtype}))
              << fmt::format("no causal case of {} has {} scores, k mod {} = {}, {}", name(dtype),
                             data, kTile, rest, backward ? "backward" : "forward");
        }
      }
    }
  }
}

// The same of what bends, adds to or drops scores, and of each mask, with more than a tile of both.
TEST(TailsTest, EachFeatureOfScoresAndEachMaskMeetsEachTailInBothPasses) {
  constexpr Index kTile = 64;
  constexpr std::array<std::string_view, 6> kOfScores = {"softcap", "bias",      "alibi",
                                                         "sink",    "any-scale", "dropout"};
  using Meeting = std::tuple<std::string_view, Index, bool>;  // feature, k mod 64, backward
  std::set<Meeting> tried;
  for (const Case& c : load_cases(ATTEST_CASES_DIR)) {
    const Problem& p = c.problem;
    if (c.tier == Tier::full || p.dtype != DType::f32 || p.key_len <= kTile) continue;
    if (p.query_len < kTile) continue;
    for (const Feature* feature : needed_by(p)) {
      tried.emplace(feature->name, p.key_len % kTile, p.backward);
    }
  }
  int wanted = 0, missing = 0;
  for (const Feature& feature : features()) {
    if (!feature.in_mask && !contains(kOfScores, feature.name)) continue;
    for (const Index rest : {Index(0), Index(1), kTile / 2, kTile - 1}) {
      for (const bool backward : {false, true}) {
        const bool found = tried.contains({feature.name, rest, backward});
        ++wanted;
        missing += !found;
        EXPECT_TRUE(found) << fmt::format("no case has {}, k mod {} = {}, {}", feature.name, kTile,
                                          rest, backward ? "backward" : "forward");
      }
    }
  }
  fmt::print("features at tails: {} together, {} missing\n", wanted, missing);
}

}  // namespace
}  // namespace attest::tails
