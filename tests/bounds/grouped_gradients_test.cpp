// What is allowed to kernels that round dK and dV of each query head before the group's sum still
// tells one head of eight that is lost.
#include <gtest/gtest.h>

#include <cmath>

#include "reference/working.h"
#include "tests/bounds/kernel.h"
#include "tests/bounds/random.h"

namespace attest {
namespace {

// The share of elements beyond their bound.
double share_beyond(const Expected& expected, const std::vector<double>& returned, DType dtype) {
  std::size_t beyond = 0;
  for (std::size_t e = 0; e < returned.size(); ++e) {
    const Cell cell = rounding_cell(dtype, returned[e], Rounding::nearest);
    const long double exact = expected.value[e];
    const long double away = std::max({0.0L, cell.low - exact, exact - cell.high});
    beyond += !(away <= expected.bound[e]);
  }
  return double(beyond) / double(returned.size());
}

TEST(GroupedGradientsTest, AHeadOfEightThatIsLostIsSeenThoughEachIsRounded) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Problem p = {.dtype = dtype,
                       .query_heads = 8,
                       .key_heads = 1,
                       .query_len = 64,
                       .key_len = 64,
                       .head_dim = 32,
                       .value_dim = 32,
                       .scale = 0.25,
                       .mask = Mask::window(kUnbounded, 0, Anchor::top_left),
                       .backward = true};
    bounds::Random random(1, 1);
    const auto values = [&](const Shape& shape) {
      Values result = zeros(shape);
      for (double& value : result.data) value = round_to(dtype, random.normal());
      return result;
    };
    const Inputs in = {.q = values(p.q_shape()),
                       .k = values(p.k_shape()),
                       .v = values(p.v_shape()),
                       .d_o = values(p.o_shape())};
    Inputs without_last = in;
    const Index row = p.value_dim * p.query_len;
    std::fill(without_last.d_o.data.end() - row, without_last.d_o.data.end(), 0.0);
    const bounds::Style style = {
        .name = "rounds heads", .block = 16, .rounds_head_gradients = true};
    const auto seen = bounds::visible_elements(p, in);
    const BackwardExpected expected = expect_backward(p, in, bounds::declared(style, dtype));
    const bounds::Outputs right = bounds::run_kernel(p, in, seen, style);
    const bounds::Outputs wrong = bounds::run_kernel(p, without_last, seen, style);
    EXPECT_EQ(share_beyond(expected.dv, right.dv, dtype), 0);
    EXPECT_EQ(share_beyond(expected.dk, right.dk, dtype), 0);
    EXPECT_GT(share_beyond(expected.dv, wrong.dv, dtype), 0.4) << name(dtype);
    EXPECT_GT(share_beyond(expected.dk, wrong.dk, dtype), 0.4) << name(dtype);
  }
}

// Rows whose scores are all 0 are exact in each of a declared number of parts.
TEST(ExactRowsTest, AKeyOfThousandsThatIsLostIsSeenUnderDeclaredSplits) {
  const Problem p = {.query_len = 1, .key_len = 8192, .head_dim = 1, .value_dim = 1, .scale = 1};
  Inputs in = {.q = zeros(p.q_shape()), .k = zeros(p.k_shape()), .v = zeros(p.v_shape())};
  in.v.data[5000] = 1;
  for (const Index splits : {1, 8}) {
    const bounds::Style style = {.name = "splits", .block = 64, .splits = splits};
    const Expected o = expect_forward(p, in, bounds::declared(style, DType::f32)).o;
    EXPECT_EQ(o.value[0], 1.0 / 8192);
    EXPECT_LT(o.bound[0], 1e-3 / 8192) << splits;
    const bounds::Outputs out = bounds::run_kernel(p, in, bounds::visible_elements(p, in), style);
    EXPECT_EQ(share_beyond(o, out.o, DType::f32), 0) << splits;
  }
  bounds::Style undeclared = {.name = "any", .block = 64};
  Arithmetic arithmetic = bounds::declared(undeclared, DType::f32);
  arithmetic.kv_splits = 0;
  EXPECT_GT(expect_forward(p, in, arithmetic).o.bound[0], 1e-3 / 8192);
}

// A sink that is added last, to sums relative to a maximum that lags: the factor to the new maximum
// is smaller than the weight of the largest key.
TEST(LaggingMaximumTest, AFactorThatIsFlushedIsPartOfWeightsAbove1) {
  const Problem p = {.query_len = 1, .key_len = 2, .head_dim = 1, .value_dim = 1, .sink = true};
  Inputs in = {.q = zeros(p.q_shape()), .k = zeros(p.k_shape()), .v = zeros(p.v_shape())};
  in.q.data = {1};
  in.k.data = {-1.5, 3.5};
  in.v.data = {1000, -1000};
  in.sink = zeros({1, 1, 1, 1});
  in.sink.data = {86.4};
  const bounds::Style style = {.name = "lags",
                               .block = 1,
                               .lag = 8,
                               .sink = bounds::Style::Sink::last,
                               .flushes_outputs = true};
  const Expected o = expect_forward(p, in, bounds::declared(style, DType::f32)).o;
  EXPECT_LT(o.value[0], -1e-34);
  const bounds::Outputs out = bounds::run_kernel(p, in, bounds::visible_elements(p, in), style);
  EXPECT_EQ(out.o[0], 0);
  EXPECT_EQ(share_beyond(o, out.o, DType::f32), 0);
}

}  // namespace
}  // namespace attest
