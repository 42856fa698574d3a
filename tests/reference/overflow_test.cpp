// Sums that may overflow on their way make their element unspecified, and no other (NUMERICS.md,
// section 8).
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "reference/working.h"

namespace attest {
namespace {

// Two queries, two keys, two channels; scores of about 0, so that P is 1/2.
struct Small {
  Problem problem = {.query_len = 2,
                     .key_len = 2,
                     .head_dim = 2,
                     .value_dim = 2,
                     .scale = 0x1p-20,
                     .backward = true};
  Inputs inputs = {.q = filled({1, 1, 2, 2}, 0x1p-100),
                   .k = filled({1, 1, 2, 2}, 1),
                   .v = filled({1, 1, 2, 2}, 1),
                   .d_o = filled({1, 1, 2, 2}, 1)};

  Small() { inputs.v.data = {1, 1, -1, -1}; }

  static Values filled(const Shape& shape, double value) {
    Values values = zeros(shape);
    for (double& each : values.data) each = value;
    return values;
  }
  ForwardExpected forward() const { return expect_forward(problem, inputs, loosest(DType::f32)); }
  BackwardExpected backward(const Arithmetic& arithmetic = loosest(DType::f32)) const {
    return expect_backward(problem, inputs, arithmetic);
  }
};

// "x" for each element that is unspecified, "." for others.
std::string unspecified(const Expected& expected) {
  std::string text;
  for (std::size_t e = 0; e < expected.value.size(); ++e) {
    text += std::isnan(expected.value[e]) ? "x" : ".";
    EXPECT_EQ(std::isnan(expected.value[e]), std::isinf(expected.bound[e]));
  }
  return text;
}

TEST(OverflowTest, NothingIsUnspecifiedAmongOrdinaryNumbers) {
  const Small small;
  for (const Expected& each :
       {small.forward().o, small.backward().dq, small.backward().dk, small.backward().dv}) {
    EXPECT_EQ(unspecified(each), "....");
  }
}

// The scale, applied last, would bring it back into range.
TEST(OverflowTest, OfDqTheChannelWhoseSumBeforeTheScaleMayOverflow) {
  Small small;
  small.inputs.v.data = {1e3, 1e3, -1e3, -1e3};
  small.inputs.k.data = {0, 3e37, 0, 3e37};
  EXPECT_EQ(unspecified(small.backward().dq), ".x.x");
  EXPECT_EQ(unspecified(small.backward().dk), "....");
  EXPECT_EQ(unspecified(small.backward().dv), "....");
  EXPECT_EQ(unspecified(small.forward().o), "....");
}

TEST(OverflowTest, OfDkTheChannelWhoseSumOverRowsMayOverflow) {
  Small small;
  small.inputs.k = Small::filled({1, 1, 2, 2}, 0x1p-100);
  small.inputs.v.data = {1e3, 1e3, -1e3, -1e3};
  small.inputs.q.data = {3e37, 0, 3e37, 0};
  EXPECT_EQ(unspecified(small.backward().dk), "x.x.");
  EXPECT_EQ(unspecified(small.backward().dq), "....");
}

TEST(OverflowTest, OfDvTheChannelWhoseSumOverRowsMayOverflow) {
  Small small;
  small.inputs.v = Small::filled({1, 1, 2, 2}, 0);
  small.inputs.d_o.data = {3e38, 1, 3e38, 1};
  EXPECT_EQ(unspecified(small.backward().dv), "x.x.");
}

// Before it is normalised any weight may be 1; and D is made of O.
TEST(OverflowTest, OfOTheChannelWhoseValuesAddUpBeyondAndTheDsOfItsRows) {
  Small small;
  small.inputs.v.data = {1.5e38, 1, 1.5e38, 1};
  small.inputs.d_o = Small::filled({1, 1, 2, 2}, 0x1p-126);
  EXPECT_EQ(unspecified(small.forward().o), "x.x.");
  EXPECT_EQ(unspecified(small.forward().lse), "..");
  EXPECT_EQ(unspecified(small.backward().dq), "xxxx");
  EXPECT_EQ(unspecified(small.backward().dv), "....");
}

TEST(OverflowTest, OfARowWhoseScoresMayOverflowAll) {
  Small small;
  small.problem.scale = 1;
  small.inputs.q.data = {1e30, 0, 1e-9, 0};
  small.inputs.k.data = {3e8, 0, 3e8, 0};
  EXPECT_EQ(unspecified(small.forward().o), "xx..");
  EXPECT_EQ(unspecified(small.forward().lse), "x.");
  EXPECT_EQ(unspecified(small.backward().dq), "xx..");
  EXPECT_EQ(unspecified(small.backward().dv), "xxxx");
}

// In f16 a part of dV that is stored may overflow where the whole does not.
TEST(OverflowTest, OfDvWhatIsStoredInItsFormatInBetween) {
  Small small;
  small.problem.dtype = DType::f16;
  small.problem.key_lens = {1};  // P is 1
  small.inputs.q = Small::filled({1, 1, 2, 2}, 0);
  small.inputs.v = Small::filled({1, 1, 2, 2}, 0);
  small.inputs.d_o.data = {65000, 1, -65000, 1};
  Arithmetic arithmetic = loosest(DType::f16);
  EXPECT_EQ(unspecified(small.backward(arithmetic).dv), "....");
  arithmetic.gradient_block = 1;
  EXPECT_EQ(unspecified(small.backward(arithmetic).dv), "x...");
}

// A mask may be -inf that is added to a score that is stored in f16, where it is infinite.
TEST(OverflowTest, OfARowWhoseMaskedScoresMayOverflowWhereTheyAreStoredAll) {
  Small small;
  small.problem.dtype = DType::f16;
  small.problem.scale = 1;
  small.problem.mask = Mask::causal(Anchor::top_left);  // query 0 sees key 0 alone
  small.problem.bias_shape = Shape{1, 1, 1, 2};
  small.inputs.bias = Small::filled({1, 1, 1, 2}, 0);
  small.inputs.q.data = {300, 0, 1, 0};
  small.inputs.k.data = {0, 0, 200, 0};
  Arithmetic arithmetic = loosest(DType::f16);
  EXPECT_EQ(unspecified(small.backward(arithmetic).dq), "....");
  arithmetic.scores = arithmetic.p;
  EXPECT_EQ(unspecified(expect_forward(small.problem, small.inputs, arithmetic).o), "xx..");
  EXPECT_EQ(unspecified(small.backward(arithmetic).dq), "xx..");
  EXPECT_EQ(unspecified(small.backward(arithmetic).dk), "xxxx");
  EXPECT_EQ(unspecified(small.backward(arithmetic).dbias), "xx");
  small.inputs.q.data = {150, 0, 1, 0};
  EXPECT_EQ(unspecified(small.backward(arithmetic).dk), "....");
}

// A bound that admits anything for other reasons leaves the element specified: the verdict on it is
// INCONCLUSIVE.
TEST(OverflowTest, NotWhereABoundIsInfiniteForAnotherReason) {
  Small small;
  small.problem.scale = 1;
  small.inputs.q = Small::filled({1, 1, 2, 2}, 1e6);
  small.inputs.k.data = {1, 1, 1.5, 1};
  const ForwardExpected forward = small.forward();
  EXPECT_TRUE(std::isinf(forward.o.bound[0]));
  EXPECT_FALSE(std::isnan(forward.o.value[0]));
}

// Beyond 2^24 the hull is recommended, up to there required (SOFTMAX-2, SOFTMAX-3).
TEST(OverflowTest, TheHullIsRequiredUpTo2To24AndRecommendedBeyond) {
  Arithmetic arithmetic = loosest(DType::f32);
  arithmetic.kv_splits = 1;
  Small small;
  small.problem.backward = false;
  small.problem.scale = 1;
  for (const double score : {0x1p23, 0x1p25}) {
    small.inputs.q.data = {score, 0, score, 0};
    small.inputs.k.data = {1, 0, 1, 0};
    const ForwardExpected forward = expect_forward(small.problem, small.inputs, arithmetic);
    const bool beyond = score > 0x1p24;
    EXPECT_EQ(std::isinf(forward.o.bound[0]), beyond);
    EXPECT_EQ(std::isinf(forward.lse.bound[0]), beyond);
    EXPECT_EQ(!forward.o.recommended.empty() && std::isfinite(forward.o.recommended[0]), beyond);
  }
}

// A q of 0 may stand for what was flushed, of which a large scale makes a large score.
TEST(OverflowTest, WhatIsFlushedCountsAmongScoresThatAreTooLarge) {
  Small small;
  small.inputs.q = zeros({1, 1, 2, 2});
  for (const double k : {1.0, 1e8, 1e20, 1e30}) {
    small.inputs.k = Small::filled({1, 1, 2, 2}, k);
    for (const auto& [scale, softcap] : {std::pair(0.0, 1e30),
                                         {1.0, 1e38},
                                         {1e20, 0.0},
                                         {1e37, 0.0},
                                         {1e37, 1.0},
                                         {1e-40, 1e38}}) {
      small.problem.scale = scale;
      small.problem.softcap = softcap;
      const ForwardExpected forward = small.forward();
      const bool binds = std::isfinite(forward.lse.bound[0]);
      const bool is_recommended = !forward.lse.recommended.empty();
      EXPECT_TRUE(binds || is_recommended || std::isnan(forward.lse.value[0])) << k << " " << scale;
    }
  }
}

}  // namespace
}  // namespace attest
