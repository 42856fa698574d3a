// Tails of tiles: where the keys end within a tile of a kernel, what pads it must count for
// nothing, whatever the scores. Of these, any three are tried together in each format by a case of
// the standard tier, as computed from the cases themselves:
//
//   k mod 32, mod 64 and mod 128: 0, 1, a half, all but one
//   scores in their ordinary range; LSE below -88.7, where exp(0 - LSE) overflows f32; scores above
//   88.7, where exp without the maximum taken off does
//   no mask, a dense mask, a bias
//   one query, a tile of them, as many as keys
//   the forward pass alone, and both
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "cases/case.h"

namespace attest {
namespace {

constexpr Index kTailTiles[] = {32, 64, 128};

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

TEST(TailsTest, AnyThreeThingsThatATailMeetsAreTriedTogetherInEachFormat) {
  std::set<Levels> tried;
  for (const Case& c : load_cases(ATTEST_CASES_DIR)) {
    if (c.tier == Tier::full) continue;
    const Levels levels = levels_of(c);
    const std::string dtype(name(c.problem.dtype));
    for (std::size_t i = 0; i < levels.size(); ++i) {
      for (std::size_t j = i + 1; j < levels.size(); ++j) {
        for (std::size_t k = j + 1; k < levels.size(); ++k) {
          tried.insert({levels[i], levels[j], levels[k], dtype});
        }
      }
    }
  }
  // What is left of k by one size of tile says much of the others: only one of them at a time.
  const std::size_t rests = factors().size() - std::size(kTailTiles);
  int wanted = 0, missing = 0;
  const auto want = [&](const Levels& three) {
    ++wanted;
    missing += !tried.contains(three);
    EXPECT_TRUE(tried.contains(three)) << fmt::format("no case has {}", fmt::join(three, ", "));
  };
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (std::size_t i = 0; i < rests; ++i) {
      for (std::size_t j = i + 1; j < rests; ++j) {
        for (std::size_t k = j + 1; k < factors().size(); ++k) {
          for (const std::string& a : factors()[i]) {
            for (const std::string& b : factors()[j]) {
              for (const std::string& d : factors()[k]) {
                want({a, b, d, std::string(name(dtype))});
              }
            }
          }
        }
      }
    }
  }
  fmt::print("tails: {} threes, {} missing\n", wanted, missing);
}

}  // namespace
}  // namespace attest
