#include "harness/judge/noise.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reference/working.h"
#include "tests/reference/filled.h"

namespace attest {
namespace {

// 400 elements of f32 around 1, each with this drift and deviation; their errors in units of what
// is predicted, which is far above a spacing.
constexpr std::size_t kCount = 400;
constexpr double kDeviation = 1e-3;

NoiseEvidence noise_with(double (*error)(std::size_t), double groups, double drift = 0) {
  const Expected expected = {.value = std::vector<double>(kCount, 1.0),
                             .rest = {},
                             .bound = std::vector<double>(kCount, 1.0)};
  const Spread spread = {.drift = std::vector<double>(kCount, drift),
                         .deviation = std::vector<double>(kCount, kDeviation)};
  std::vector<double> returned;
  for (std::size_t e = 0; e < kCount; ++e) {
    returned.push_back(1 + (drift + kDeviation) * error(e));
  }
  return noise_of(returned, DType::f32, expected, spread, Rounding::nearest, groups);
}

double both_signs(std::size_t e) { return e % 2 == 0 ? 0.9 : -0.9; }

TEST(NoiseTest, ErrorsWithinWhatIsPredictedPass) {
  EXPECT_EQ(complaint_of(noise_with(both_signs, kCount)), "");
  EXPECT_EQ(complaint_of(noise_with(both_signs, 1)), "");
}

TEST(NoiseTest, OneErrorBeyondLambdaDeviationsIsTold) {
  const auto one = [](std::size_t e) { return e == 7 ? 9.0 : 0.0; };
  const NoiseEvidence noise = noise_with(one, kCount);
  EXPECT_GT(noise.max_ratio, 1);
  EXPECT_EQ(noise.worst, 7);
  EXPECT_NE(complaint_of(noise).find("times the statistical bound"), std::string::npos);
}

TEST(NoiseTest, TooMuchNoiseIsToldWhereNoElementIs) {
  const auto loud = [](std::size_t e) { return e % 2 == 0 ? 2.0 : -2.0; };
  EXPECT_LE(noise_with(loud, kCount).max_ratio, 1);
  EXPECT_NE(complaint_of(noise_with(loud, kCount)).find("rms"), std::string::npos);
  EXPECT_EQ(complaint_of(noise_with(loud, 1)), "") << "as one group they may all be bad luck";
}

TEST(NoiseTest, ErrorsOfOneSignAreToldWhereTheirSizeIsNot) {
  const auto high = [](std::size_t) { return 0.9; };
  EXPECT_NE(complaint_of(noise_with(high, kCount)).find("mean"), std::string::npos);
  EXPECT_EQ(complaint_of(noise_with(high, kCount, 1)), "") << "where drift is allowed for";
}

TEST(NoiseTest, ErrorsTowardsZeroAreToldWhereTheirMeanIsNot) {
  Expected expected = {.value = {}, .rest = {}, .bound = std::vector<double>(kCount, 1.0)};
  const Spread spread = {.drift = std::vector<double>(kCount, 0),
                         .deviation = std::vector<double>(kCount, kDeviation)};
  std::vector<double> returned;
  for (std::size_t e = 0; e < kCount; ++e) {
    expected.value.push_back(e % 2 == 0 ? 1 : -1);
    returned.push_back(expected.value[e] * (1 - 0.9 * kDeviation));
  }
  const auto noise = noise_of(returned, DType::f32, expected, spread, Rounding::nearest, kCount);
  EXPECT_LE(std::abs(noise.bias), noise.bias_limit);
  EXPECT_NE(complaint_of(noise).find("away from 0"), std::string::npos);
}

TEST(NoiseTest, ElementsWithoutAllowedErrorOrWithAnInfiniteBoundAreLeftOut) {
  const Expected expected = {.value = {1, 1, 1}, .rest = {}, .bound = {0, HUGE_VAL, 1}};
  const Spread spread = {.drift = {0, 1, 1}, .deviation = {0, 1, 1}};
  EXPECT_EQ(noise_of({1, 1, 1}, DType::f32, expected, spread, Rounding::nearest, 3).compared, 1);
}

TEST(NoiseTest, LimitsFollowChernoffAndTheUnionBound) {
  // 2 exp(-lambda^2 / 2) = chance / elements.
  EXPECT_NEAR(2 * std::exp(-std::pow(deviations_of(1e5, 1e-6), 2) / 2), 1e-11, 1e-16);
  for (const double groups : {1.0, 30.0, 1e4}) {
    const double x = mean_square_limit(groups, 1e-6);
    EXPECT_NEAR(std::exp(-groups * (x - 1 - std::log(x)) / 2), 1e-6, 1e-11) << groups;
  }
  EXPECT_LT(mean_square_limit(1e4, 1e-6), 1.08);
}

Problem some_problem(DType dtype) {
  Problem problem;
  problem.dtype = dtype;
  problem.query_heads = 2;
  problem.query_len = 9;
  problem.key_len = 40;
  problem.head_dim = problem.value_dim = 16;
  problem.scale = 0.25;
  problem.softcap = 3;
  problem.sink = problem.backward = true;
  return problem;
}

TEST(SpreadTest, ArithmeticWithoutAnyRandomRoundingHasDriftAlone) {
  const Problem problem = some_problem(DType::f32);
  const Inputs inputs = exact::scattered_inputs(problem, 1.0 / 32, 0);
  Arithmetic truncating = loosest(DType::f32);
  truncating.output_rounding = Rounding::faithful;
  ASSERT_TRUE(truncating.qk.truncates);
  const Spread o = spread_forward(problem, inputs, truncating).o;
  const Expected bound = expect_forward(problem, inputs, truncating).o;
  for (std::size_t e = 0; e < o.drift.size(); ++e) {
    ASSERT_EQ(o.drift[e], bound.bound[e]) << e;
  }
}

// What P is for: below B, and by the more the longer the sums are.
TEST(SpreadTest, RandomRoundingsComeToLessThanTheirSum) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    Problem problem = some_problem(dtype);
    problem.softcap = 0;
    problem.key_len = 400;
    const Inputs inputs = exact::scattered_inputs(problem, 1.0 / 32, 0);
    Arithmetic nearest = loosest(dtype);
    for (Product* each :
         {&nearest.qk, &nearest.pv, &nearest.dp, &nearest.dv, &nearest.dq, &nearest.dk}) {
      *each = {.operand_roundoff = 0, .accumulator_roundoff = 0x1p-24, .truncates = false};
    }
    nearest.softmax_roundoff = 0x1p-24;
    nearest.kv_splits = 1;
    nearest.rescales_output = nearest.flushes_inputs = nearest.flushes_outputs = false;
    const BackwardSpread spread = spread_backward(problem, inputs, nearest);
    const BackwardExpected bound = expect_backward(problem, inputs, nearest);
    const auto sum = [](const std::vector<double>& values) {
      double total = 0;
      for (const double value : values) total += value;
      return total;
    };
    for (const auto& [s, b] : {std::pair(&spread.dq, &bound.dq), std::pair(&spread.dk, &bound.dk),
                               std::pair(&spread.dv, &bound.dv)}) {
      EXPECT_LT(sum(s->drift), sum(b->bound)) << name(dtype);
      EXPECT_GT(sum(s->deviation), 0) << name(dtype);
      EXPECT_LT(sum(s->drift) + sum(s->deviation), sum(b->bound)) << name(dtype);
    }
  }
}

}  // namespace
}  // namespace attest
