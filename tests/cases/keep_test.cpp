#include "cases/keep.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cases/philox.h"

namespace attest {
namespace {

Problem problem(double probability, std::uint64_t seed = 1) {
  return {.batch = 2,
          .query_heads = 3,
          .key_heads = 1,
          .query_len = 20,
          .key_len = 31,
          .dropout = {.mode = Dropout::Mode::given, .probability = probability, .seed = seed}};
}

// The definition once more, element by element, from the words of DROP-1.
TEST(KeepTest, IsWhatTheStandardSays) {
  for (const double probability : {0.0, 0.1, 0.5, 0.999}) {
    const Problem p = problem(probability, 0x123456789abcdef0);
    const Keep keep = make_keep(p);
    ASSERT_EQ(keep.shape, p.keep_shape());
    ASSERT_EQ(static_cast<Index>(keep.kept.size()), element_count(keep.shape));
    for (Index n = 0; n < element_count(keep.shape); ++n) {
      const auto [b, h, i, j] = coordinates(keep.shape, n);
      const auto word = [](Index x) { return static_cast<std::uint32_t>(x); };
      const std::uint32_t r = philox({word(j / 4), word(i), word(h), word(b)},
                                     {0x9abcdef0, 0x12345678})[static_cast<std::size_t>(j % 4)];
      ASSERT_EQ(keep.at({.batch = b, .head = h, .query = i, .key = j}),
                static_cast<double>(r) >= probability * 4294967296.0);
    }
  }
}

// The first words of the published vector for zeros are 6627e8d5 e169c58d bc57ac4c 9b00dbd8.
TEST(KeepTest, ComparesTheWordsOfThePublishedVector) {
  const auto kept = [](double probability) {
    const Keep keep = make_keep(problem(probability, 0));
    return std::vector<int>(keep.kept.begin(), keep.kept.begin() + 4);
  };
  EXPECT_EQ(kept(0.5), (std::vector{0, 1, 1, 1}));
  EXPECT_EQ(kept(0.7), (std::vector{0, 1, 1, 0}));
  EXPECT_EQ(kept(0.8), (std::vector{0, 1, 0, 0}));
  EXPECT_EQ(kept(0x6627e8d5 / 4294967296.0)[0], 1) << "equal is kept";
  EXPECT_EQ(kept((0x6627e8d5 + 0.5) / 4294967296.0)[0], 0);
}

TEST(KeepTest, KeepsAllForZeroAndTheRateOtherwise) {
  for (const double probability : {0.0, 0.1, 0.25, 0.9}) {
    Problem p = problem(probability);
    p.query_len = 400;
    const Keep keep = make_keep(p);
    const auto count = static_cast<double>(std::count(keep.kept.begin(), keep.kept.end(), 1));
    EXPECT_NEAR(count / static_cast<double>(keep.kept.size()), 1 - probability,
                probability == 0 ? 0 : 0.01);
  }
}

TEST(KeepTest, BothHalvesOfTheSeedCountAndTheOffsetDoesNot) {
  const auto of = [](std::uint64_t seed) { return make_keep(problem(0.5, seed)).kept; };
  EXPECT_NE(of(1), of(2));
  EXPECT_NE(of(1), of((std::uint64_t(1) << 32) + 1));
  Problem p = problem(0.5);
  p.dropout.offset = 9;
  EXPECT_EQ(make_keep(p).kept, of(1));
}

}  // namespace
}  // namespace attest
