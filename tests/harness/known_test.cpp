#include "harness/laws/known.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/harness/not_finite.h"

namespace attest::laws {
namespace {

bool holds(const Known& known, long double exact) {
  return known.low <= exact && exact <= known.high;
}

TEST(KnownTest, ReturnedNumberTellsOfItsCellAndItsBound) {
  const Known one = returned(DType::bf16, 1, 0.25, Rounding::nearest);
  EXPECT_TRUE(holds(one, 1.25 + 0x1p-8));
  EXPECT_FALSE(holds(one, 1.25 + 0x1p-8 + 1e-12));
  EXPECT_TRUE(holds(one, 0.75 - 0x1p-9));
  EXPECT_FALSE(holds(one, 0.75 - 0x1p-9 - 1e-12));
  EXPECT_TRUE(holds(returned(DType::bf16, 1, 0, Rounding::faithful), 1 + 0x1p-7));
}

TEST(KnownTest, NanFitsNothingAndAnInfiniteBoundTellsNothing) {
  const Known nan = returned(DType::f32, std::nan(""), 1e30, Rounding::nearest);
  EXPECT_GT(gap_between(nan, exactly(0)).ratio, 1);
  EXPECT_TRUE(returned(DType::f32, 1, kInfinity, Rounding::nearest).tells_nothing());
  EXPECT_TRUE(returned(DType::f32, 1, std::nan(""), Rounding::nearest).tells_nothing());
  EXPECT_EQ(gap_between(nothing_known(), exactly(5)).ratio, 0);
}

TEST(KnownTest, InfiniteLseIsMetByItselfAlone) {
  const Known empty = returned(DType::f32, -kInfinity, 0, Rounding::nearest);
  EXPECT_LE(gap_between(empty, empty).ratio, 1);
  EXPECT_GT(gap_between(empty, returned(DType::f32, -50, 1, Rounding::nearest)).ratio, 1);
  const Known part = returned(DType::f32, 2, 0, Rounding::nearest);
  EXPECT_LE(gap_between(log_sum_exp(part, empty), part).ratio, 1);
  EXPECT_LE(gap_between(mixture(weight_beside(part, empty), part, exactly(-7)), part).ratio, 1);
}

TEST(KnownTest, GapIsAboveOneExactlyWhereNothingFitsBoth) {
  const Known a = {1, 0, 2}, b = {3, 2, 4}, c = {3, 2.5, 4};
  EXPECT_LE(gap_between(a, b).ratio, 1);
  EXPECT_LE(gap_between(b, a).ratio, 1);
  EXPECT_GT(gap_between(a, c).ratio, 1);
  EXPECT_GT(gap_between(c, a).ratio, 1);
}

// Whatever lies in the intervals, the result of an operation on it lies in that of theirs.
RC_GTEST_PROP(KnownTest, OperationsHoldAllThatTheirOperandsHold, ()) {
  const auto number = [] { return *rc::gen::inRange(-4000, 4000) / 256.0L; };
  const auto known = [&](long double exact) {
    const long double below = *rc::gen::inRange(0, 300) / 512.0L;
    const long double above = *rc::gen::inRange(0, 300) / 512.0L;
    return Known{exact + (above - below) / 3, exact - below, exact + above};
  };
  const long double x = number(), y = number(), w = *rc::gen::inRange(0, 257) / 256.0L;
  const Known a = known(x), b = known(y);
  Known weight = known(w);
  weight.low = std::max(weight.low, 0.0L);
  weight.high = std::min(weight.high, 1.0L);
  RC_ASSERT(holds(a + b, x + y));
  RC_ASSERT(holds(a - b, x - y));
  RC_ASSERT(holds(-2 * a, -2 * x));
  RC_ASSERT(holds(a * b, x * y));
  RC_ASSERT(holds(widened(a, 1), x + 1));
  RC_ASSERT(holds(exp_of_difference(a, b), std::exp(x - y)));
  RC_ASSERT(holds(weight_beside(a, b), 1 / (1 + std::exp(y - x))));
  RC_ASSERT(holds(mixture(weight, a, b), w * x + (1 - w) * y));
  RC_ASSERT(holds(log_sum_exp(a, b), std::log(std::exp(x) + std::exp(y))));
}

}  // namespace
}  // namespace attest::laws
