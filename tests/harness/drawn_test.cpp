#include "harness/judge/drawn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <tuple>

#include "harness/judge/checks.h"

namespace attest {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Two batch elements, three heads, 40 causal queries and keys.
Problem causal(double probability) {
  return {.batch = 2,
          .query_heads = 3,
          .key_heads = 3,
          .query_len = 40,
          .key_len = 40,
          .mask = Mask::causal(Anchor::top_left),
          .dropout = {.mode = Dropout::Mode::generated, .probability = probability}};
}

// A mask that keeps each element with a probability of its own.
Keep draw(const Problem& p, const std::function<double(const Position&)>& rate, unsigned seed = 1) {
  Keep keep = {.shape = p.keep_shape(), .kept = {}};
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform;
  for (Position at = {}; at.batch < p.batch; ++at.batch) {
    for (at.head = 0; at.head < p.query_heads; ++at.head) {
      for (at.query = 0; at.query < p.query_len; ++at.query) {
        for (at.key = 0; at.key < p.key_len; ++at.key) {
          keep.kept.push_back(uniform(random) < rate(at));
        }
      }
    }
  }
  return keep;
}

std::string defect(const Problem& p, const Keep& keep, double quantum = 0) {
  const auto finding = check_keep(p, {}, quantum, keep, keep);
  if (!finding) return "";
  EXPECT_EQ(finding->reason, "statistical");
  EXPECT_EQ(finding->clause, "DROP-3");
  return finding->message;
}

// One head's bits in place of another's.
void copy_head(Keep& keep, std::ptrdiff_t from, std::ptrdiff_t to) {
  const auto size = static_cast<std::ptrdiff_t>(keep.shape[2] * keep.shape[3]);
  std::copy_n(keep.kept.begin() + from * size, size, keep.kept.begin() + to * size);
}

TEST(DrawnTest, RightDrawsPass) {
  for (const double probability : {0.0, 0.001, 0.1, 0.5, 0.9, 0.999}) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      const Problem p = causal(probability);
      const Keep keep = draw(
          p, [=](const Position&) { return 1 - probability; }, seed);
      EXPECT_EQ(defect(p, keep), "") << probability;
    }
  }
}

TEST(DrawnTest, RateIsThatOfVisibleElements) {
  const Problem p = causal(0.2);
  // 780 of 1600 elements are hidden: the rate of all is right.
  const auto makes_up = [](const Position& at) {
    return at.key <= at.query ? 1 : 1 - 0.2 * 1600 / 780;
  };
  EXPECT_THAT(defect(p, draw(p, makes_up)), HasSubstr("kept 4920 of 4920 visible elements, where"));
  // What becomes of hidden elements is nobody's concern.
  const auto spares = [](const Position& at) { return at.key <= at.query ? 0.8 : 1; };
  EXPECT_EQ(defect(p, draw(p, spares)), "");
}

TEST(DrawnTest, BiasThatHidesIsPartOfTheMask) {
  Problem p = causal(0.2);
  p.mask = Mask::full();
  p.bias_shape = Shape{1, 1, 1, 40};
  Inputs in;
  in.bias = zeros(*p.bias_shape);
  for (std::size_t j = 20; j < 40; ++j) in.bias.data[j] = -std::numeric_limits<double>::infinity();
  const Keep keep = draw(p, [](const Position& at) { return at.key < 20 ? 0.8 : 0.1; });
  EXPECT_FALSE(check_keep(p, in, 0, keep, keep));
  std::fill_n(in.bias.data.begin() + 20, 5, 0);
  EXPECT_TRUE(check_keep(p, in, 0, keep, keep));
}

TEST(DrawnTest, EachHeadHasTheRate) {
  const Problem p = causal(0.5);
  const Keep keep = draw(p, [](const Position& at) { return 0.4 + 0.1 * double(at.head); });
  EXPECT_THAT(defect(p, keep), HasSubstr("of head 0, where"));
}

TEST(DrawnTest, EachBatchElementHasTheRate) {
  const Problem p = causal(0.5);
  const Keep keep = draw(p, [](const Position& at) { return at.batch == 0 ? 0.4 : 0.6; });
  EXPECT_THAT(defect(p, keep), HasSubstr("of batch element 0, where"));
}

TEST(DrawnTest, DeclaredQuantumWidensTheRates) {
  const Problem p = causal(0.5);
  const Keep keep = draw(p, [](const Position&) { return 0.56; });
  EXPECT_THAT(defect(p, keep), HasSubstr("visible elements, where dropout of 0.5 keeps 2460.0"));
  EXPECT_THAT(defect(p, keep), HasSubstr("(DROP-3.6)"));
  EXPECT_EQ(defect(p, keep, 0.05), "");
}

TEST(DrawnTest, RatesOfNoneAndAllAreExact) {
  const Problem p = causal(0);
  Keep keep = draw(p, [](const Position&) { return 1; });
  EXPECT_EQ(defect(p, keep), "");
  keep.kept[1] = 0;  // hidden
  EXPECT_EQ(defect(p, keep), "");
  keep.kept[0] = 0;
  EXPECT_THAT(defect(p, keep), HasSubstr("kept 4919 of 4920"));
}

TEST(DrawnTest, HeadsDrawBitsOfTheirOwn) {
  const Problem p = causal(0.3);
  const Keep keep = draw(p, [](const Position&) { return 0.7; });
  ASSERT_EQ(defect(p, keep), "");
  for (const auto& [from, to, first, second] :
       {std::tuple{0, 2, "head 0 of batch element 0",
                   "in head 2 of batch element 0 are equal in 820"},
        std::tuple{1, 4, "head 1 of batch element 0",
                   "in head 1 of batch element 1 are equal in 820"},
        std::tuple{2, 3, "head 2 of batch element 0",
                   "in head 0 of batch element 1 are equal in 820"}}) {
    Keep same = keep;
    copy_head(same, from, to);
    EXPECT_THAT(defect(p, same), AllOf(HasSubstr(first), HasSubstr(second)));
    same.kept[static_cast<std::size_t>(to) * 1600 + 1] ^= 1;  // hidden: still the same
    EXPECT_THAT(defect(p, same), AllOf(HasSubstr(first), HasSubstr(second)));
  }
}

// What generators do that make one bit of another.
TEST(DrawnTest, ElementsDependOnNoOther) {
  const Problem p = causal(0.5);
  const Keep keep = draw(p, [](const Position&) { return 0.5; });
  const auto derived = [&](const std::function<Position(Position)>& from, bool inverted = false) {
    Keep made = keep;
    for (std::size_t n = 0; n < made.kept.size(); ++n) {
      const auto c = coordinates(keep.shape, static_cast<Index>(n));
      const Position at = from({.batch = c[0], .head = c[1], .query = c[2], .key = c[3]});
      const bool other = at.batch != c[0] || at.head != c[1] || at.query != c[2] || at.key != c[3];
      made.kept[n] = keep.at(at) != (inverted && other);
    }
    return defect(p, made);
  };
  const auto related = HasSubstr("visible pairs, where independent ones are in");
  EXPECT_EQ(derived([](Position at) { return at; }), "");
  EXPECT_THAT(derived([](Position at) {
                at.key %= 16;
                return at;
              }),
              related);
  EXPECT_THAT(derived([](Position at) {
                at.query -= at.query / 16 * 16 * (at.query % 16 >= at.key ? 1 : 0);
                return at;
              }),
              related);
  EXPECT_THAT(derived([](Position at) {  // neighbours drop together
                at.key -= at.key % 2;
                return at;
              }),
              related);
  EXPECT_THAT(derived([](Position at) {  // a head is the first one, shifted
                at.key = (at.key + at.head) % 40;
                at.head = 0;
                return at;
              }),
              related);
  EXPECT_THAT(derived(
                  [](Position at) {  // odd heads drop what even ones keep
                    at.head -= at.head % 2;
                    return at;
                  },
                  true),
              related);
}

TEST(DrawnTest, FewBitsMayBeTheSameByChance) {
  Problem p = causal(0.5);
  p.mask = Mask::full();
  p.query_len = 1;
  for (const Index key_len : {36, 46}) {
    p.key_len = key_len;
    Keep keep = draw(p, [](const Position&) { return 0.5; });
    copy_head(keep, 0, 1);
    // 6 (key_len - 1) + 15 * 17 tests on two sides, and 2^-key_len for equality: within a quarter
    // of 1e-9 from 42 keys on.
    EXPECT_EQ(defect(p, keep).empty(), key_len == 36);
  }
}

TEST(DrawnTest, DrawsAreToldByVisibleElements) {
  const Problem p = causal(0.5);
  EXPECT_TRUE(tells_draws(p, {}, 0));
  EXPECT_FALSE(tells_draws(causal(0), {}, 0));
  const Keep keep = draw(p, [](const Position&) { return 0.5; });
  Keep other = keep;
  other.kept[1] ^= 1;  // hidden
  EXPECT_TRUE(same_bits(p, {}, keep, other));
  other.kept[0] ^= 1;
  EXPECT_FALSE(same_bits(p, {}, keep, other));
}

}  // namespace
}  // namespace attest
