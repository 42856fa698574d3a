#include "harness/judge/judge.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "tests/harness/not_finite.h"

namespace attest {
namespace {

// The verdict on a single element.
TensorVerdict judge_one(DType dtype, double actual, double exact, double bound,
                        Rounding rounding = Rounding::nearest) {
  return judge({encode(dtype, actual)}, dtype, {1, 1, 1, 1},
               {.value = {exact}, .rest = {}, .bound = {bound}}, rounding);
}

TEST(JudgeTest, ExactValueWithinTheRoundingCellPassesWithoutAnyBound) {
  // 1 + 2^-12 lies in the cell of 1 in f16, whose spacing there is 2^-10.
  EXPECT_TRUE(judge_one(DType::f16, 1.0, 1.0 + std::ldexp(1.0, -12), 0).passed);
  EXPECT_EQ(judge_one(DType::f16, 1.0, 1.0 + std::ldexp(1.0, -12), 0).evidence.max_ratio, 0);
}

TEST(JudgeTest, DistanceIsMeasuredFromTheCellAndNotFromTheValue) {
  const double exact = 1.0 + std::ldexp(1.0, -11) + 0.001;  // 0.001 beyond the cell of 1
  EXPECT_TRUE(judge_one(DType::f16, 1.0, exact, 0.0011).passed);
  EXPECT_FALSE(judge_one(DType::f16, 1.0, exact, 0.0009).passed);
  EXPECT_NEAR(judge_one(DType::f16, 1.0, exact, 0.0011).evidence.max_ratio, 0.001 / 0.0011, 1e-6);
}

TEST(JudgeTest, FaithfulRoundingMayPickEitherNeighbour) {
  const double exact = 1.0 + 0.9 * std::ldexp(1.0, -7);  // between 1 and its bf16 successor
  EXPECT_FALSE(judge_one(DType::bf16, 1.0, exact, 0).passed);
  EXPECT_TRUE(judge_one(DType::bf16, 1.0, exact, 0, Rounding::faithful).passed);
}

// As rounding_cell has it, wherever the exact value lies around its ends.
RC_GTEST_PROP(JudgeTest, WithoutABoundTheCellDecides, (std::uint64_t seed)) {
  const std::uint64_t bits = (seed + 1) * 0x9e3779b97f4a7c15;  // all over the format
  for (const DType dtype : kDTypes) {
    const std::uint64_t some = bits >> (64 - 8 * format_of(dtype).bytes);
    // A power of two too, below which the cell is half as wide.
    for (const std::uint64_t each : {some, encode(dtype, std::exp2(int(bits % 30) - 14))}) {
      const double actual = decode(dtype, each);
      if (std::isnan(actual)) continue;
      for (const Rounding rounding : {Rounding::nearest, Rounding::faithful}) {
        const Cell cell = rounding_cell(dtype, actual, rounding);
        for (const long double end : {cell.low, cell.high}) {
          const double middle = static_cast<double>(end);
          for (const double exact : {std::nextafter(middle, -kInfinity), middle,
                                     std::nextafter(middle, kInfinity), actual}) {
            if (std::isinf(exact)) continue;
            const bool within = cell.low <= exact && exact <= cell.high;
            RC_ASSERT(judge_one(dtype, actual, exact, 0, rounding).passed == within);
          }
        }
      }
    }
  }
}

TEST(JudgeTest, NanNeverPasses) {
  for (const double bound : {0.0, 1.0, 1e300}) {
    const TensorVerdict verdict = judge_one(DType::f32, kNan, 0, bound);
    EXPECT_FALSE(verdict.passed);
    EXPECT_TRUE(verdict.nonfinite);
    EXPECT_EQ(verdict.evidence.max_ratio, kInfinity);
  }
}

TEST(JudgeTest, ZeroBoundDemandsTheValueItself) {
  EXPECT_TRUE(judge_one(DType::f32, 0.0, 0.0, 0).passed);
  EXPECT_TRUE(judge_one(DType::f32, -0.0, 0.0, 0).passed);
  EXPECT_FALSE(judge_one(DType::f16, std::ldexp(1.0, -24), 0.0, 0).passed);
}

TEST(JudgeTest, LseOfAnEmptyRowIsMinusInfinityAndNothingElse) {
  EXPECT_TRUE(judge_one(DType::f32, -kInfinity, -kInfinity, 0).passed);
  for (const double wrong : {kInfinity, -1e38, 0.0, kNan}) {
    EXPECT_FALSE(judge_one(DType::f32, wrong, -kInfinity, 0).passed) << wrong;
  }
}

TEST(JudgeTest, WhatIsRecommendedAloneIsMissedWithoutFailing) {
  const auto judge_two = [](double first, double second) {
    return judge(
        {encode(DType::f32, first), encode(DType::f32, second)}, DType::f32, {1, 1, 1, 2},
        {.value = {1, 1}, .rest = {}, .bound = {kInfinity, 0.25}, .recommended = {0.5, kInfinity}},
        Rounding::nearest);
  };
  EXPECT_TRUE(judge_two(1.4, 1).advised);
  EXPECT_TRUE(judge_two(1.4, 1).conclusive);
  for (const double wrong : {1.6, 0.0, kInfinity, kNan}) {
    const TensorVerdict verdict = judge_two(wrong, 1);
    EXPECT_FALSE(verdict.advised) << wrong;
    EXPECT_TRUE(verdict.passed && !verdict.nonfinite) << wrong;
    EXPECT_EQ(verdict.evidence.bound, 0.5);
  }
  // What is required is told first, however much worse the other is.
  const TensorVerdict both = judge_two(kInfinity, 1.5);
  EXPECT_FALSE(both.passed);
  EXPECT_EQ(both.evidence.bound, 0.25);
}

TEST(JudgeTest, UnspecifiedElementsAreCountedAndThoseNotLookedAtAreNot) {
  const TensorVerdict verdict =
      judge({encode(DType::f32, kNan), encode(DType::f32, 1.0), encode(DType::f32, 7.0)},
            DType::f32, {1, 1, 1, 3},
            {.value = {kNan, 1, kNan}, .rest = {}, .bound = {kInfinity, 0, 0}}, Rounding::nearest);
  EXPECT_TRUE(verdict.passed && verdict.conclusive);
  EXPECT_EQ(verdict.evidence.compared, 1);
  EXPECT_EQ(verdict.evidence.unspecified, 1);
}

TEST(JudgeTest, OverflowIsAcceptedOnlyWhereTheExactValueReachesIt) {
  EXPECT_TRUE(judge_one(DType::f16, kInfinity, 65520.0, 0).passed);
  EXPECT_TRUE(judge_one(DType::f16, kInfinity, 65510.0, 20).passed);
  const TensorVerdict verdict = judge_one(DType::f16, kInfinity, 60000.0, 20);
  EXPECT_FALSE(verdict.passed);
  EXPECT_TRUE(verdict.nonfinite);
}

TEST(JudgeTest, BoundThatAdmitsAnythingIsInconclusive) {
  const TensorVerdict verdict = judge_one(DType::f32, 1e30, 0, kInfinity);
  EXPECT_TRUE(verdict.passed);
  EXPECT_FALSE(verdict.conclusive);
}

TEST(JudgeTest, BoundThatIsNoNumberIsInconclusiveAndNoPass) {
  const TensorVerdict verdict = judge_one(DType::f32, kNan, 0, kNan);
  EXPECT_FALSE(verdict.conclusive);
}

TEST(JudgeTest, UnspecifiedElementIsPassedOverWhateverStandsThere) {
  for (const double stray : {kNan, kInfinity, 1e30, 0.0}) {
    const TensorVerdict verdict =
        judge({encode(DType::f32, stray), encode(DType::f32, 1.5)}, DType::f32, {1, 1, 1, 2},
              {.value = {kNan, 1.0}, .rest = {}, .bound = {kInfinity, 1.0}}, Rounding::nearest);
    EXPECT_TRUE(verdict.passed);
    EXPECT_TRUE(verdict.conclusive);
    EXPECT_EQ(verdict.evidence.compared, 1);
    EXPECT_EQ(verdict.evidence.worst, (std::vector<Index>{0, 0, 0, 1}));
    EXPECT_NEAR(verdict.evidence.rms, 0.5, 1e-9);
  }
}

TEST(JudgeTest, TensorOfWhichNothingIsSpecifiedIsInconclusive) {
  const TensorVerdict verdict = judge_one(DType::f32, 1, kNan, 0);
  EXPECT_TRUE(verdict.passed);
  EXPECT_FALSE(verdict.conclusive);
  EXPECT_EQ(verdict.evidence.compared, 0);
}

TEST(JudgeTest, EvidenceNamesTheWorstElement) {
  const Shape shape = {1, 2, 2, 2};
  std::vector<std::uint64_t> bits(8, encode(DType::f32, 1.0));
  bits[5] = encode(DType::f32, 1.5);
  const TensorVerdict verdict = judge(
      bits, DType::f32, shape,
      {.value = std::vector<double>(8, 1.0), .rest = {}, .bound = std::vector<double>(8, 0.25)},
      Rounding::nearest);
  EXPECT_FALSE(verdict.passed);
  EXPECT_EQ(verdict.evidence.worst, (std::vector<Index>{0, 1, 0, 1}));
  EXPECT_EQ(verdict.evidence.actual, 1.5);
  EXPECT_EQ(verdict.evidence.compared, 8);
  EXPECT_NEAR(verdict.evidence.rms, std::sqrt(0.25 / 8), 1e-9);
}

TEST(JudgeTest, DoubleIsJudgedBeyondDoublePrecision) {
  // The exact value lies 0.6 of a spacing above 1: it rounds to the next double, not to 1.
  const double spacing = std::ldexp(1.0, -52);
  const Expected expected = {.value = {1.0}, .rest = {0.6 * spacing}, .bound = {0}};
  const auto passes = [&](double actual) {
    return judge({encode(DType::f64, actual)}, DType::f64, {1, 1, 1, 1}, expected,
                 Rounding::nearest)
        .passed;
  };
  EXPECT_FALSE(passes(1.0));
  EXPECT_TRUE(passes(1.0 + spacing));
}

TEST(JudgeTest, EmptyTensorPassesWithNothingCompared) {
  const TensorVerdict verdict = judge({}, DType::f32, {0, 1, 1, 1}, {}, Rounding::nearest);
  EXPECT_TRUE(verdict.passed);
  EXPECT_EQ(verdict.evidence.compared, 0);
  EXPECT_TRUE(verdict.evidence.worst.empty());
}

}  // namespace
}  // namespace attest
