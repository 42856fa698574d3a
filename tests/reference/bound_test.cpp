// The fast bounds agree to the last digits with exact_bound, which states them as NUMERICS.md does.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <sstream>
#include <string>

#include "reference/exact_bound.h"
#include "reference/working.h"
#include "tests/reference/random_problem.h"
#include "tests/reference/some_features.h"

namespace attest {
namespace {

using exact_bound::Real;

// Everything that may be declared, drawn at random.
Arithmetic any_arithmetic(DType dtype, std::mt19937_64& random) {
  const auto flip = [&] { return random() % 2 == 0; };
  const auto choice = [&] { return static_cast<Choice>(random() % 3); };
  Arithmetic a = loosest(dtype);
  for (Product* product : {&a.qk, &a.pv, &a.dp, &a.dv, &a.dq, &a.dk}) {
    product->truncates = flip();
    product->accumulator_roundoff = product->truncates ? 0x1p-23 : 0x1p-24;
    product->operand_roundoff = random() % 4 == 0 ? 0x1p-11 : 0;
  }
  a.softmax_roundoff = flip() ? 0x1p-23 : 0x1p-24;
  a.tanh_error = flip() ? 0x1p-11 : 0x1p-22;
  if (flip()) a.p = {};
  if (flip()) a.ds = {};
  a.p_normalised = choice();
  a.ds_scaled = choice();
  a.ds_from_p = choice();
  a.kv_splits = static_cast<Index>(random() % 3);
  a.key_block = static_cast<Index>(random() % 4);
  a.rescales_output = flip();
  a.flushes_inputs = flip();
  a.flushes_outputs = flip();
  a.output_rounding = flip() ? Rounding::nearest : Rounding::faithful;
  // What is never taken for granted.
  const auto seldom = [&] { return random() % 5 == 0; };
  a.exp_zero_inexact = a.key_block > 0 && seldom();
  if (seldom()) a.exp_error = 1024 * 0x1p-23;
  if (format_of(dtype).bytes == 2) {
    if (seldom()) a.scores = {unit_roundoff(dtype), half_smallest_subnormal(dtype)};
  }
  a.sums_rounded_p = a.p.roundoff > 0 && a.p_normalised == Choice::last && seldom();
  if (a.p.roundoff > 0 && seldom()) {
    a.truncates_p = true;
    a.p = {2 * a.p.roundoff, 2 * a.p.underflow};
  }
  if (seldom()) a.max_lag = 8;
  a.integer_max = seldom();
  a.any_block_order = a.key_block > 0 && seldom();
  if (seldom()) a.gradient_block = 3;
  a.rounds_head_gradients = seldom();
  a.rounds_dbias_terms = seldom();
  a.lse = {.base_2 = seldom(), .apart = seldom()};
  if (seldom()) a.unstored_roundoff = unit_roundoff(dtype);
  if (seldom()) a.stored_p = Narrowing{0x1p-4, 0x1p-10 / 256};
  return a;
}

// The same without what goes beyond the default column.
Arithmetic within_default(Arithmetic a) {
  if (a.truncates_p) a.p = {a.p.roundoff / 2, a.p.underflow / 2};
  a.exp_error = std::min(a.exp_error, loosest(a.dtype).exp_error);
  a.exp_zero_inexact = a.sums_rounded_p = a.truncates_p = a.integer_max = a.any_block_order = false;
  a.rounds_head_gradients = a.rounds_dbias_terms = false;
  a.max_lag = 0;
  a.gradient_block = 0;
  a.lse = {};
  a.scores = {};
  return a;
}

// Where the first of the bounds differ, and how; empty if none does.
std::string difference(const char* name, const Expected& expected_fast,
                       const std::vector<Real>& readable, double tolerance) {
  std::vector<double> fast = expected_fast.bound;
  for (std::size_t e = 0; e < expected_fast.recommended.size(); ++e) {
    fast[e] = std::min(fast[e], expected_fast.recommended[e]);
  }
  if (fast.size() != readable.size()) return std::string(name) + " has another size";
  for (std::size_t e = 0; e < fast.size(); ++e) {
    const auto expected = static_cast<double>(readable[e]);
    const bool unknown = !(expected < std::numeric_limits<double>::infinity());
    if (unknown ? std::isinf(fast[e]) : std::abs(fast[e] - expected) <= tolerance * expected)
      continue;
    std::ostringstream text;
    text << name << "[" << e << "]: " << fast[e] << " instead of " << expected;
    return text.str();
  }
  return "";
}

std::string difference(const Problem& problem, const Inputs& inputs, const Arithmetic& arithmetic,
                       double tolerance = 1e-10) {
  const ForwardExpected forward = expect_forward(problem, inputs, arithmetic);
  const exact_bound::Forward readable = exact_bound::forward(problem, inputs, arithmetic);
  std::string all = difference("o", forward.o, readable.o, tolerance) +
                    difference("lse", forward.lse, readable.lse, tolerance);
  if (!problem.backward) return all;
  const BackwardExpected backward = expect_backward(problem, inputs, arithmetic);
  const exact_bound::Backward gradients = exact_bound::backward(problem, inputs, arithmetic);
  return all + difference("dq", backward.dq, gradients.dq, tolerance) +
         difference("dk", backward.dk, gradients.dk, tolerance) +
         difference("dv", backward.dv, gradients.dv, tolerance) +
         difference("dbias", backward.dbias, gradients.dbias, tolerance) +
         difference("dsink", backward.dsink, gradients.dsink, tolerance);
}

TEST(BoundTest, TheFastFormsAgreeWithTheReadableOnesWhateverIsDeclared) {
  std::mt19937_64 random(1);
  for (int repeat = 0; repeat < 500 && !HasFailure(); ++repeat) {
    const auto size = [&](Index most) {
      return static_cast<Index>(random() % std::uint64_t(most)) + 1;
    };
    const DType dtype = std::array{DType::f32, DType::f16, DType::bf16}[random() % 3];
    const Index group = size(2);
    Problem problem = {
        .dtype = dtype,
        .query_heads = 2 * group,
        .key_heads = 2,
        .query_len = size(11),
        .key_len = size(90),
        .head_dim = size(9),
        .value_dim = size(9),
        .scale = std::array{0.125, -0.5, 2.0, 0x1p-133}[random() % 4],
        .mask = repeat % 2 ? Mask::full() : Mask::window(60, 3, Anchor::bottom_right),
        .backward = true};
    add_some_features(problem, random, {0.7, 30}, {0.25});
    const double spread = std::array{0.3, 1.0, 10.0}[random() % 3];
    std::normal_distribution<double> normal;
    const auto values = [&](const Shape& shape, double scale) {
      Values result = zeros(shape);
      for (double& value : result.data) {
        const std::uint64_t kind = random() % 16;
        value = round_to(dtype, kind == 0   ? 0
                                : kind == 1 ? normal(random) * smallest_normal(dtype)
                                            : normal(random) * scale);
      }
      return result;
    };
    Inputs inputs = {.q = values(problem.q_shape(), spread),
                     .k = values(problem.k_shape(), 1),
                     .v = values(problem.v_shape(), 1),
                     .d_o = values(problem.o_shape(), 1)};
    if (problem.bias_shape) {
      inputs.bias = values(*problem.bias_shape, spread);
      for (double& value : inputs.bias.data) {
        if (random() % 16 == 0) value = -std::numeric_limits<double>::infinity();
      }
    }
    if (problem.slopes_shape) inputs.slopes = values(*problem.slopes_shape, 0.3);
    if (problem.sink) inputs.sink = values(problem.sink_shape(), spread);
    if (problem.d_lse) inputs.d_lse = values(problem.lse_shape(), 1);
    if (problem.dropout.mode != Dropout::Mode::none) {
      inputs.keep = {problem.keep_shape(), {}};
      for (Index e = 0; e < element_count(problem.keep_shape()); ++e) {
        inputs.keep.kept.push_back(random() % 4 != 0);
      }
    }
    const Arithmetic arithmetic = any_arithmetic(dtype, random);
    SCOPED_TRACE(to_string(problem) + " repeat " + std::to_string(repeat));
    EXPECT_EQ(difference(problem, inputs, arithmetic), "");
  }
}

// Of every format, mask and layout.
RC_GTEST_PROP(BoundPropertyTest, TheFastFormsAgreeWithTheReadableOnesOnAnyProblem,
              (RandomProblem<9> random)) {
  Problem& problem = random.problem;
  problem.dtype = any_of<DType>({kDTypes.begin(), kDTypes.end()});
  if (any_index(0, 1) == 1) {
    problem.backward = problem.d_lse = false;
    problem.stored.k = Stored{};
    if (any_index(0, 1) == 1) problem.stored.q = Stored{};
    if (any_index(0, 1) == 1) problem.stored.v = Stored{};
  }
  std::mt19937_64 draws(*rc::gen::arbitrary<std::uint64_t>());
  RC_ASSERT(difference(problem, random.inputs, any_arithmetic(problem.dtype, draws)) == "");
}

// Weights that are exactly 1 (NUMERICS.md, section 3).
RC_GTEST_PROP(BoundPropertyTest, TheFastFormsAgreeWithTheReadableOnesOnExactRows,
              (RandomProblem<9> random)) {
  Problem& problem = random.problem;
  problem.softcap = 0;
  problem.sink = false;
  problem.dropout = {};
  std::fill(random.inputs.q.data.begin(), random.inputs.q.data.end(), 0);
  // Without cancellation, which would leave of O the reference's own error.
  for (double& value : random.inputs.v.data) value = 8 * std::abs(value);
  std::mt19937_64 draws(*rc::gen::arbitrary<std::uint64_t>());
  Arithmetic arithmetic = any_arithmetic(problem.dtype, draws);
  arithmetic.p_normalised = Choice::last;
  arithmetic.pv.operand_roundoff = 0;
  RC_ASSERT(difference(problem, random.inputs, arithmetic) == "");
}

// Scores beyond SOFTMAX-2, of which the reference knows little itself (a power of two leaves them
// exact here).
RC_GTEST_PROP(BoundPropertyTest, TheFastFormsAgreeWithTheReadableOnesOnHugeScores,
              (RandomProblem<9> random)) {
  Problem& problem = random.problem;
  problem.scale = 0x1p40;
  problem.backward = problem.d_lse = false;
  std::mt19937_64 draws(*rc::gen::arbitrary<std::uint64_t>());
  RC_ASSERT(difference(problem, random.inputs, any_arithmetic(problem.dtype, draws), 1e-6) == "");
}

// Declaring less leaves room for less.
TEST(BoundTest, TheLoosestDeclarationBoundsEveryOther) {
  std::mt19937_64 random(2);
  Problem problem = {.dtype = DType::f16,
                     .query_len = 9,
                     .key_len = 20,
                     .head_dim = 5,
                     .value_dim = 6,
                     .scale = 0.5,
                     .softcap = 2,
                     .bias_shape = Shape{1, 1, 1, 20},
                     .slopes_shape = Shape{1, 1, 1, 1},
                     .sink = true,
                     .dropout = {.mode = Dropout::Mode::given, .probability = 0.25},
                     .backward = true,
                     .d_lse = true};
  std::normal_distribution<double> normal;
  const auto values = [&](const Shape& shape) {
    Values result = zeros(shape);
    for (double& value : result.data) value = round_to(DType::f16, normal(random));
    return result;
  };
  Inputs inputs = {.q = values(problem.q_shape()),
                   .k = values(problem.k_shape()),
                   .v = values(problem.v_shape()),
                   .bias = values(*problem.bias_shape),
                   .slopes = values(*problem.slopes_shape),
                   .sink = values(problem.sink_shape()),
                   .d_o = values(problem.o_shape()),
                   .d_lse = values(problem.lse_shape())};
  inputs.keep = {problem.keep_shape(), {}};
  for (Index e = 0; e < element_count(problem.keep_shape()); ++e) {
    inputs.keep.kept.push_back(random() % 4 != 0);
  }
  const auto widest = expect_backward(problem, inputs, loosest(DType::f16));
  const auto widest_forward = expect_forward(problem, inputs, loosest(DType::f16));
  for (int repeat = 0; repeat < 200; ++repeat) {
    Arithmetic arithmetic = any_arithmetic(DType::f16, random);
    for (Product* product : {&arithmetic.qk, &arithmetic.pv, &arithmetic.dp, &arithmetic.dv,
                             &arithmetic.dq, &arithmetic.dk}) {
      product->operand_roundoff = 0;
    }
    if (arithmetic.rescales_output) arithmetic.key_block = 0;  // smaller blocks divide more often
    arithmetic = within_default(arithmetic);
    const auto forward = expect_forward(problem, inputs, arithmetic);
    const auto backward = expect_backward(problem, inputs, arithmetic);
    const auto within = [](const Expected& small, const Expected& large) {
      for (std::size_t e = 0; e < small.bound.size(); ++e) {
        if (!(small.bound[e] <= large.bound[e])) return false;
      }
      return true;
    };
    EXPECT_TRUE(within(forward.o, widest_forward.o)) << repeat;
    EXPECT_TRUE(within(forward.lse, widest_forward.lse)) << repeat;
    EXPECT_TRUE(within(backward.dq, widest.dq)) << repeat;
    EXPECT_TRUE(within(backward.dk, widest.dk)) << repeat;
    EXPECT_TRUE(within(backward.dv, widest.dv)) << repeat;
    EXPECT_TRUE(within(backward.dbias, widest.dbias)) << repeat;
    EXPECT_TRUE(within(backward.dsink, widest.dsink)) << repeat;
  }
}

}  // namespace
}  // namespace attest
