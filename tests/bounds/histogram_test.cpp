#include "tests/bounds/histogram.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace attest::bounds {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Histogram histogram_of(const std::vector<double>& values) {
  Histogram histogram;
  for (const double value : values) histogram.add(value);
  return histogram;
}

TEST(HistogramTest, NothingHasNoMedian) {
  EXPECT_EQ(Histogram().median(), std::nullopt);
  Histogram sum;
  sum.add(Histogram());
  EXPECT_EQ(sum.median(), std::nullopt);
}

TEST(HistogramTest, ZerosAreTheMedianIfTheyAreHalf) {
  EXPECT_EQ(histogram_of({0, 1, 0, 2}).median(), 0);
  EXPECT_NEAR(histogram_of({0, 1, 0, 2, 1}).median().value(), 1, 0.03125);
}

TEST(HistogramTest, WhatIsOutOfRangeStaysAtItsEnd) {
  EXPECT_NEAR(histogram_of({0, 1e-300, 1}).median().value() / 0x1p-80, 1, 0.03125);
  EXPECT_EQ(histogram_of({1, kInfinity, 1e300}).median(), 4);
  EXPECT_EQ(histogram_of({1, std::nan(""), std::nan("")}).median(), 4);
}

RC_GTEST_PROP(HistogramTest, MedianIsWithinThreePercentHoweverCountsWereAdded, ()) {
  const auto exponents =
      *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(-1000, 25)));
  std::vector<double> values;
  Histogram parts[3];
  for (const int each : exponents) {
    values.push_back(std::exp2(each * 0.078125));  // 2^-78 to almost 4
    parts[values.size() % 3].add(values.back());
  }
  Histogram sum;
  for (const Histogram& part : parts) sum.add(part);
  std::sort(values.begin(), values.end());
  const double median = values[(values.size() - 1) / 2];
  RC_ASSERT(std::abs(sum.median().value() / median - 1) <= 0.03125);
  RC_ASSERT(sum.median() == histogram_of(values).median());
}

}  // namespace
}  // namespace attest::bounds
