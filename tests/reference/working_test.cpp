// The working reference against the exact one: its values are within the error that it states for
// itself, which is the bound that it computes for a kernel without any error of its own.
#include "reference/working.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "reference/exact.h"
#include "tests/reference/random_problem.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A kernel that never rounds: what remains of the bound is the reference's own error.
Arithmetic flawless(DType dtype) {
  Arithmetic arithmetic;
  arithmetic.dtype = dtype;
  arithmetic.kv_splits = 1;
  arithmetic.rescales_output = false;
  return arithmetic;
}

// The first element that is further from the exact value than its bound, in words; empty if none.
template <typename T>
std::string first_beyond(const char* name, const Expected& got, const std::vector<T>& exact) {
  if (got.value.size() != exact.size() || got.bound.size() != exact.size()) {
    return std::string(name) + " has another size";
  }
  for (std::size_t e = 0; e < exact.size(); ++e) {
    if (got.value[e] == -kInfinity && exact[e] == -std::numeric_limits<T>::infinity() &&
        got.bound[e] == 0) {
      continue;
    }
    const T rest = got.rest.empty() ? T(0) : T(got.rest[e]);
    using std::abs;  // for the built-in types; Boost brings its own
    const T distance = abs(T(T(got.value[e]) + rest - exact[e]));
    if (!(distance <= T(got.bound[e]))) {
      return std::string(name) + "[" + std::to_string(e) + "] = " + std::to_string(got.value[e]) +
             ", off by " + std::to_string(static_cast<double>(distance)) + ", bound " +
             std::to_string(got.bound[e]);
    }
  }
  return {};
}

template <typename T>
std::string first_beyond(const Problem& problem, const Inputs& inputs) {
  const Arithmetic arithmetic = flawless(problem.dtype);
  const auto in = exact::inputs_as<T>(inputs);
  const auto outputs = exact::forward(problem, in);
  const auto gradients = exact::backward(problem, in);
  const ForwardExpected forward = expect_forward(problem, inputs, arithmetic);
  const BackwardExpected backward = expect_backward(problem, inputs, arithmetic);
  return first_beyond("o", forward.o, outputs.o.data) +
         first_beyond("lse", forward.lse, outputs.lse.data) +
         first_beyond("dq", backward.dq, gradients.dq.data) +
         first_beyond("dk", backward.dk, gradients.dk.data) +
         first_beyond("dv", backward.dv, gradients.dv.data);
}

Values random_values(const Shape& shape, double size, std::mt19937_64& random) {
  std::normal_distribution<double> normal(0, size);
  Values values = zeros(shape);
  for (double& value : values.data) value = round_to(DType::f32, normal(random));
  return values;
}

Inputs random_inputs(const Problem& problem, double size, std::mt19937_64& random) {
  return {.q = random_values(problem.q_shape(), size, random),
          .k = random_values(problem.k_shape(), 1, random),
          .v = random_values(problem.v_shape(), 1, random),
          .d_o = random_values(problem.o_shape(), 1, random)};
}

RC_GTEST_PROP(WorkingTest, IsWithinItsOwnErrorOfAHundredDigits, (RandomProblem<4> random)) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    random.problem.dtype = dtype;
    RC_ASSERT(first_beyond<exact::Digits100>(random.problem, random.inputs) == "");
  }
}

TEST(WorkingTest, IsWithinItsOwnErrorWhereBlocksAndPanelsEnd) {
  std::mt19937_64 random(1);
  for (const Index length : {1, 7, 8, 9, 17, 40}) {
    for (const Index dim : {1, 8, 13}) {
      for (const double size : {1.0, 10.0, 100.0}) {
        for (const DType dtype : {DType::f32, DType::f64}) {
          const Problem problem = {.dtype = dtype,
                                   .query_heads = 2,
                                   .query_len = length,
                                   .key_len = 50 - length,
                                   .head_dim = dim,
                                   .value_dim = 14 - dim,
                                   .scale = 0.3,
                                   .mask = Mask::causal(Anchor::bottom_right),
                                   .backward = true};
          EXPECT_EQ(first_beyond<exact::Quad>(problem, random_inputs(problem, size, random)), "")
              << to_string(problem) << " size " << size;
        }
      }
    }
  }
}

TEST(WorkingTest, IsWithinItsOwnErrorWhereGradientsAreSummedInParts) {
  std::mt19937_64 random(4);
  const Problem problem = {.query_heads = 2,
                           .query_len = 150,
                           .key_len = 67,
                           .head_dim = 5,
                           .value_dim = 3,
                           .scale = 0.5,
                           .mask = Mask::causal(Anchor::top_left),
                           .backward = true};
  EXPECT_EQ(first_beyond<long double>(problem, random_inputs(problem, 3, random)), "");
}

// Numbers that no row sees change nothing, whatever they are.
RC_GTEST_PROP(WorkingTest, KeysThatNobodySeesHaveNoInfluence, (const RandomProblem<5>& random)) {
  const Problem& problem = random.problem;
  Inputs poisoned = random.inputs;
  const double poison = any_of<double>({kNaN, kInfinity, 1e38, -1e38});
  for (Index b = 0; b < problem.batch; ++b) {
    for (Index h = 0; h < problem.key_heads; ++h) {
      for (Index j = 0; j < problem.key_len; ++j) {
        if (problem.query_heads > 0 && is_seen(problem, b, h, j)) continue;
        for (Index c = 0; c < problem.head_dim; ++c) poisoned.k.at(b, h, j, c) = poison;
        for (Index c = 0; c < problem.value_dim; ++c) poisoned.v.at(b, h, j, c) = poison;
      }
    }
  }
  const Arithmetic arithmetic = loosest(problem.dtype);
  const auto forward = expect_forward(problem, random.inputs, arithmetic);
  const auto forward_poisoned = expect_forward(problem, poisoned, arithmetic);
  RC_ASSERT(forward.o.value == forward_poisoned.o.value);
  RC_ASSERT(forward.o.bound == forward_poisoned.o.bound);
  RC_ASSERT(forward.lse.value == forward_poisoned.lse.value);
  RC_ASSERT(forward.lse.bound == forward_poisoned.lse.bound);
  const auto backward = expect_backward(problem, random.inputs, arithmetic);
  const auto backward_poisoned = expect_backward(problem, poisoned, arithmetic);
  RC_ASSERT(backward.dq.value == backward_poisoned.dq.value);
  RC_ASSERT(backward.dq.bound == backward_poisoned.dq.bound);
  RC_ASSERT(backward.dk.value == backward_poisoned.dk.value);
  RC_ASSERT(backward.dv.bound == backward_poisoned.dv.bound);
}

TEST(WorkingTest, ARowIsLostOnlyIfItSeesTheNaN) {
  std::mt19937_64 random(2);
  const Problem problem = {.query_len = 12,
                           .key_len = 12,
                           .head_dim = 3,
                           .value_dim = 3,
                           .mask = Mask::causal(Anchor::top_left),
                           .backward = true};
  Inputs inputs = random_inputs(problem, 1, random);
  const ForwardExpected clean = expect_forward(problem, inputs, loosest(DType::f32));
  inputs.v.at(0, 0, 9, 1) = kNaN;
  const ForwardExpected forward = expect_forward(problem, inputs, loosest(DType::f32));
  const BackwardExpected backward = expect_backward(problem, inputs, loosest(DType::f32));
  for (std::size_t e = 0; e < forward.o.value.size(); ++e) {
    const bool lost = e / 3 >= 9;
    EXPECT_EQ(std::isnan(forward.o.value[e]), lost) << e;
    EXPECT_EQ(forward.o.bound[e] == kInfinity, lost) << e;
    EXPECT_EQ(backward.dq.bound[e] == kInfinity, lost) << e;
    EXPECT_EQ(backward.dk.bound[e], kInfinity) << e;  // rows 9 and later see all keys up to 9
    if (!lost) {
      EXPECT_EQ(forward.o.value[e], clean.o.value[e]) << e;
    }
  }
}

RC_GTEST_PROP(WorkingTest, WhatSeesNothingIsExactlyZero, (const RandomProblem<5>& random)) {
  const Problem& problem = random.problem;
  const Arithmetic arithmetic = loosest(problem.dtype);
  const ForwardExpected forward = expect_forward(problem, random.inputs, arithmetic);
  const BackwardExpected backward = expect_backward(problem, random.inputs, arithmetic);
  const auto demands = [](const Expected& expected, const Shape& shape, Index b, Index h, Index s,
                          double value) {
    for (Index c = 0; c < shape[kChannel]; ++c) {
      const auto e = static_cast<std::size_t>(dense_index(shape, b, h, s, c));
      if (expected.value[e] != value || expected.bound[e] != 0) return false;
    }
    return true;
  };
  for (Index b = 0; b < problem.batch; ++b) {
    for (Index h = 0; h < problem.query_heads; ++h) {
      for (Index i = 0; i < problem.query_len; ++i) {
        if (sees_a_key(problem, b, h, i)) continue;
        RC_ASSERT(demands(forward.o, problem.o_shape(), b, h, i, 0));
        RC_ASSERT(demands(forward.lse, problem.lse_shape(), b, h, i, -kInfinity));
        RC_ASSERT(demands(backward.dq, problem.q_shape(), b, h, i, 0));
      }
    }
    for (Index h = 0; h < problem.key_heads; ++h) {
      for (Index j = 0; j < problem.key_len; ++j) {
        if (problem.query_heads > 0 && is_seen(problem, b, h, j)) continue;
        RC_ASSERT(demands(backward.dk, problem.k_shape(), b, h, j, 0));
        RC_ASSERT(demands(backward.dv, problem.v_shape(), b, h, j, 0));
      }
    }
  }
}

bool same_bits(const Expected& a, const Expected& b) {
  const auto same = [](const std::vector<double>& x, const std::vector<double>& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](double p, double q) {
      return std::bit_cast<std::uint64_t>(p) == std::bit_cast<std::uint64_t>(q);
    });
  };
  return same(a.value, b.value) && same(a.rest, b.rest) && same(a.bound, b.bound);
}

TEST(WorkingTest, TheNumberOfThreadsChangesNoBit) {
  std::mt19937_64 random(3);
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Problem problem = {.dtype = dtype,
                             .query_heads = 4,
                             .key_heads = 2,
                             .query_len = 70,
                             .key_len = 131,
                             .head_dim = 16,
                             .value_dim = 24,
                             .scale = 0.25,
                             .mask = Mask::window(90, 5, Anchor::bottom_right),
                             .backward = true};
    const Inputs inputs = random_inputs(problem, 1, random);
    const Arithmetic arithmetic = loosest(dtype);
    const ForwardExpected forward = expect_forward(problem, inputs, arithmetic);
    const BackwardExpected backward = expect_backward(problem, inputs, arithmetic);
    for (const int threads : {2, 3, 5}) {
      const ForwardExpected other = expect_forward(problem, inputs, arithmetic, threads);
      EXPECT_TRUE(same_bits(forward.o, other.o) && same_bits(forward.lse, other.lse)) << threads;
      const BackwardExpected gradients = expect_backward(problem, inputs, arithmetic, threads);
      EXPECT_TRUE(same_bits(backward.dq, gradients.dq)) << threads;
      EXPECT_TRUE(same_bits(backward.dk, gradients.dk)) << threads;
      EXPECT_TRUE(same_bits(backward.dv, gradients.dv)) << threads;
    }
  }
}

TEST(WorkingTest, AnErrorThatCouldBeAnythingIsInfinite) {
  // Scores of 1e9: in f32 their error exceeds 1, so nothing can be said of O where keys compete.
  const Problem problem = {.query_len = 1, .key_len = 2, .head_dim = 1, .value_dim = 1};
  const Inputs inputs = {.q = {problem.q_shape(), {1}},
                         .k = {problem.k_shape(), {1e9, 1e9}},
                         .v = {problem.v_shape(), {1, 2}}};
  const ForwardExpected forward = expect_forward(problem, inputs, loosest(DType::f32));
  EXPECT_EQ(forward.o.value[0], 1.5);
  EXPECT_EQ(forward.o.bound[0], kInfinity);
}

TEST(WorkingTest, GradientsAreUnboundedWhereTheirDsOverflowsItsFormat) {
  // dS is near 0.25 * 1000 * 2000: beyond f16, where a kernel may round it, and well within f32.
  const Problem problem = {.dtype = DType::f16, .key_len = 2, .backward = true};
  const Inputs inputs = {.q = {problem.q_shape(), {1}},
                         .k = {problem.k_shape(), {1, 1}},
                         .v = {problem.v_shape(), {1000, -1000}},
                         .d_o = {problem.o_shape(), {1000}}};
  Arithmetic wide = loosest(DType::f16);
  wide.ds = {};
  EXPECT_LT(expect_backward(problem, inputs, wide).dk.bound[0], kInfinity);
  EXPECT_FALSE(expect_backward(problem, inputs, loosest(DType::f16)).dk.bound[0] < kInfinity);
}

TEST(WorkingTest, HoweverLargeTheScoresAreASinglePassStaysInTheHullAndLseNearTheLargest) {
  const Problem problem = {.query_len = 1, .key_len = 2, .head_dim = 1, .value_dim = 2};
  const Inputs inputs = {.q = {problem.q_shape(), {1}},
                         .k = {problem.k_shape(), {1e9, 1e9}},
                         .v = {problem.v_shape(), {1, 7, 2, 7}}};
  Arithmetic single_pass = loosest(DType::f32);
  single_pass.kv_splits = 1;
  const ForwardExpected forward = expect_forward(problem, inputs, single_pass);
  EXPECT_NEAR(forward.o.bound[0], 0.5, 1e-4);
  EXPECT_LT(forward.o.bound[1], 1e-4);  // where all values agree, nothing but rounding is left
  EXPECT_GT(forward.lse.bound[0], 1e9 * 0x1p-24);
  EXPECT_LT(forward.lse.bound[0], 1e9 * 0x1p-18);
}

TEST(WorkingTest, EqualScoresAndIntegersLeaveOnlyTheLastRounding) {
  const Problem problem = {
      .dtype = DType::bf16, .query_len = 1, .key_len = 100, .head_dim = 4, .value_dim = 1};
  Inputs inputs = {
      .q = zeros(problem.q_shape()), .k = zeros(problem.k_shape()), .v = zeros(problem.v_shape())};
  for (std::size_t j = 0; j < 100; ++j) inputs.v.data[j] = j % 2 == 0 ? 101 : -99;
  Arithmetic arithmetic = loosest(DType::bf16);
  arithmetic.kv_splits = 1;
  arithmetic.rescales_output = false;
  arithmetic.p_normalised = Choice::last;
  arithmetic.flushes_outputs = false;
  EXPECT_EQ(std::round(expect_forward(problem, inputs, arithmetic).o.value[0] * 1e9), 1e9);
  EXPECT_LT(expect_forward(problem, inputs, arithmetic).o.bound[0], 4 * 0x1p-23);
  inputs.v.data[0] += 0.5;  // no longer integers
  EXPECT_GT(expect_forward(problem, inputs, arithmetic).o.bound[0], 0.1);
  inputs.v.data[0] -= 0.5;
  arithmetic.rescales_output = true;  // each block divides: no longer exact
  EXPECT_GT(expect_forward(problem, inputs, arithmetic).o.bound[0], 0.1);
}

}  // namespace
}  // namespace attest
