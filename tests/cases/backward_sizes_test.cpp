// Backward passes have kernels of their own for widths of heads, take other paths where batches and
// sequences are large, and hold tokens and rows in workspaces and grids that end somewhere. What of
// that a case of the standard tier tries is computed from the cases:
//
//   beyond a tile of 128 queries and keys with four elements or more: any two of a width, a
//   storage, a format, a kind of mask, and heads that share keys or not packed sequences that have
//   more than 512, 1024, 2048 and 4096 tokens together, in heads of 64 and 128 channels more than
//   65,535 elements, heads, queries, keys and packed rows, and gradients that these alone make
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "cases/case.h"

namespace attest {
namespace {

const std::vector<Case>& backward_cases() {
  static const std::vector<Case> kCases = [] {
    std::vector<Case> cases = load_cases(ATTEST_CASES_DIR);
    std::erase_if(cases, [](const Case& c) { return c.tier == Tier::full || !c.problem.backward; });
    return cases;
  }();
  return kCases;
}

// The words of a problem, one of each list, in the order of `kChoices`.
const std::vector<std::vector<std::string>> kChoices = {
    {"D = 64", "D = 96", "D = 128", "D = 192, Dv = 128", "D = 256"},
    {"dense", "padded", "packed"},
    {"f32", "f16", "bf16"},
    {"full", "causal", "window"},
    {"heads alone", "grouped heads"}};
std::vector<std::string> choices_of(const Problem& p) {
  const std::string width = p.value_dim == p.head_dim
                                ? fmt::format("D = {}", p.head_dim)
                                : fmt::format("D = {}, Dv = {}", p.head_dim, p.value_dim);
  const bool lengths = !p.query_lens.empty() && !p.key_lens.empty();
  const Mask& mask = p.mask;
  const std::string band = mask.kind == Mask::Kind::full   ? "full"
                           : mask.kind != Mask::Kind::band ? ""
                           : is_causal(mask)               ? "causal"
                                                           : "window";
  return {width,
          p.packed  ? "packed"
          : lengths ? "padded"
                    : "dense",
          std::string(name(p.dtype)), band,
          p.query_heads > p.key_heads ? "grouped heads" : "heads alone"};
}

bool is_large(const Problem& p) {
  constexpr Index kTile = 128;
  for (Index b = 0; b < p.batch && p.batch >= 4; ++b) {
    if (p.lengths(b).query > kTile && p.lengths(b).key > kTile) return true;
  }
  return false;
}

TEST(BackwardSizesTest, EveryPairOfWhatAKernelIsChosenByIsTriedInLargeBatches) {
  std::set<std::vector<std::string>> tried;
  for (const Case& c : backward_cases()) {
    if (!is_large(c.problem)) continue;
    const auto words = choices_of(c.problem);
    for (std::size_t i = 0; i < words.size(); ++i) {
      for (std::size_t j = i + 1; j < words.size(); ++j) tried.insert({words[i], words[j]});
    }
  }
  for (std::size_t i = 0; i < kChoices.size(); ++i) {
    for (std::size_t j = i + 1; j < kChoices.size(); ++j) {
      for (const std::string& a : kChoices[i]) {
        for (const std::string& b : kChoices[j]) {
          EXPECT_TRUE(tried.contains({a, b}))
              << "no backward case of four elements beyond a tile has " << a << ", " << b;
        }
      }
    }
  }
}

bool any_backward(const std::function<bool(const Problem&)>& holds) {
  return std::any_of(backward_cases().begin(), backward_cases().end(),
                     [&](const Case& c) { return holds(c.problem); });
}

TEST(BackwardSizesTest, PackedTokensPassEachPowerOfTwoUpTo4096) {
  for (const Index width : {64, 128}) {
    for (const Index tokens : {512, 1024, 2048, 4096}) {
      EXPECT_TRUE(any_backward([&](const Problem& p) {
        return p.packed && p.head_dim >= width && p.q_shape()[kPosition] > tokens &&
               p.k_shape()[kPosition] > tokens;
      })) << "more than "
          << tokens << " packed tokens, D at least " << width;
    }
  }
}

TEST(BackwardSizesTest, WhateverIsCountedPasses65535) {
  constexpr Index kMost = 65535;
  // Rows that see a key, and keys that are seen, only beyond the end.
  const auto first_rows_are_empty = [](const Problem& p) {
    return p.query_len > kMost && p.mask.kind == Mask::Kind::band && p.mask.offset < -kMost;
  };
  const auto first_keys_are_unseen = [](const Problem& p) {
    return p.key_len > kMost && p.mask.kind == Mask::Kind::band && p.mask.left != kUnbounded &&
           p.mask.offset - p.mask.left > kMost;
  };
  EXPECT_TRUE(any_backward([](const Problem& p) { return p.batch > kMost; }));
  EXPECT_TRUE(any_backward([](const Problem& p) { return p.query_heads > kMost; }));
  EXPECT_TRUE(any_backward([](const Problem& p) { return p.query_len > kMost; }));
  EXPECT_TRUE(any_backward([](const Problem& p) { return p.key_len > kMost; }));
  EXPECT_TRUE(any_backward(
      [](const Problem& p) { return p.packed && p.q_shape()[kPosition] > 2 * kMost; }));
  EXPECT_TRUE(any_backward(first_rows_are_empty));
  EXPECT_TRUE(any_backward(first_keys_are_unseen));
}

}  // namespace
}  // namespace attest
