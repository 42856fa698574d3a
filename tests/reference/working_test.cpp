// The working reference against the exact one: its values are within the error that it states for
// itself, which is the bound that it computes for a kernel without any error of its own.
#include "reference/working.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "reference/exact.h"
#include "tests/reference/random_problem.h"

namespace attest {
namespace {

constexpr double kInfiniteDouble = std::numeric_limits<double>::infinity();
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
    if (got.value[e] == -kInfiniteDouble && exact[e] == -std::numeric_limits<T>::infinity() &&
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
  const ForwardExpected forward = expect_forward(problem, inputs, arithmetic);
  const std::string beyond = first_beyond("o", forward.o, outputs.o.data) +
                             first_beyond("lse", forward.lse, outputs.lse.data);
  if (!problem.backward) return beyond;
  const auto gradients = exact::backward(problem, in);
  const BackwardExpected backward = expect_backward(problem, inputs, arithmetic);
  return beyond + first_beyond("dq", backward.dq, gradients.dq.data) +
         first_beyond("dk", backward.dk, gradients.dk.data) +
         first_beyond("dv", backward.dv, gradients.dv.data) +
         first_beyond("dbias", backward.dbias, gradients.dbias.data) +
         first_beyond("dsink", backward.dsink, gradients.dsink.data);
}

Values random_values(const Shape& shape, double size, std::mt19937_64& random) {
  std::normal_distribution<double> normal(0, size);
  Values values = zeros(shape);
  for (double& value : values.data) value = round_to(DType::f32, normal(random));
  return values;
}

Inputs random_inputs(const Problem& problem, double size, std::mt19937_64& random) {
  Inputs inputs = {.q = random_values(problem.q_shape(), size, random),
                   .k = random_values(problem.k_shape(), 1, random),
                   .v = random_values(problem.v_shape(), 1, random),
                   .d_o = random_values(problem.o_shape(), 1, random)};
  if (problem.bias_shape) inputs.bias = random_values(*problem.bias_shape, size, random);
  if (problem.slopes_shape) inputs.slopes = random_values(*problem.slopes_shape, 0.1, random);
  if (problem.sink) inputs.sink = random_values(problem.sink_shape(), size, random);
  if (problem.d_lse) inputs.d_lse = random_values(problem.lse_shape(), 1, random);
  if (problem.dropout.mode != Dropout::Mode::none) {
    inputs.keep = {problem.keep_shape(), {}};
    for (Index e = 0; e < element_count(problem.keep_shape()); ++e) {
      inputs.keep.kept.push_back(random() % 4 != 0);
    }
  }
  return inputs;
}

// Everything at once.
Problem with_all_features(Problem problem) {
  problem.softcap = 5;
  problem.bias_shape = {1, 1, problem.query_len, problem.key_len};
  problem.slopes_shape = {1, problem.query_heads, 1, 1};
  problem.sink = true;
  problem.dropout = {.mode = Dropout::Mode::given, .probability = 0.25};
  problem.d_lse = problem.backward;
  return problem;
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
          for (const Problem& each : {problem, with_all_features(problem)}) {
            EXPECT_EQ(first_beyond<exact::Quad>(each, random_inputs(each, size, random)), "")
                << to_string(each) << " size " << size;
          }
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
  for (const Problem& each : {problem, with_all_features(problem)}) {
    EXPECT_EQ(first_beyond<long double>(each, random_inputs(each, 3, random)), "");
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

bool same_bits(const ForwardExpected& a, const ForwardExpected& b) {
  return same_bits(a.o, b.o) && same_bits(a.lse, b.lse);
}

bool same_bits(const BackwardExpected& a, const BackwardExpected& b) {
  return same_bits(a.dq, b.dq) && same_bits(a.dk, b.dk) && same_bits(a.dv, b.dv) &&
         same_bits(a.dbias, b.dbias) && same_bits(a.dsink, b.dsink);
}

// Numbers that no row sees change nothing, whatever they are: neither beyond a length, nor in a
// page that nobody names.
RC_GTEST_PROP(WorkingTest, KeysThatNobodySeesHaveNoInfluence, (const RandomProblem<5>& random)) {
  const Problem& problem = random.problem;
  Inputs poisoned = random.inputs;
  const double poison = any_of<double>({kNaN, kInfiniteDouble, 1e38, -1e38});
  const std::vector<bool> seen = keys_that_are_seen(problem, random.inputs);
  for (Values* values : {&poisoned.k, &poisoned.v}) {
    for (std::size_t e = 0; e < values->data.size(); ++e) {
      const auto channels = static_cast<std::size_t>(values->shape[kChannel]);
      if (!seen[e / channels]) values->data[e] = poison;
    }
  }
  const Arithmetic arithmetic = loosest(problem.dtype);
  RC_ASSERT(same_bits(expect_forward(problem, random.inputs, arithmetic),
                      expect_forward(problem, poisoned, arithmetic)));
  if (!problem.backward) return;
  RC_ASSERT(same_bits(expect_backward(problem, random.inputs, arithmetic),
                      expect_backward(problem, poisoned, arithmetic)));
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
    EXPECT_EQ(forward.o.bound[e] == kInfiniteDouble, lost) << e;
    EXPECT_EQ(backward.dq.bound[e] == kInfiniteDouble, lost) << e;
    EXPECT_EQ(backward.dk.bound[e], kInfiniteDouble) << e;  // rows 9 and later see all keys up to 9
    if (!lost) {
      EXPECT_EQ(forward.o.value[e], clean.o.value[e]) << e;
    }
  }
}

// -inf is what hides a key in many kernels, and NaN plus -inf is NaN: what a row holds whose own
// numbers are not finite is not specified, whether it sees a key or not (FINITE-1, FINITE-2). Of
// the gradients of keys it has no part.
TEST(WorkingTest, ARowThatSeesNoKeyIsLostByItsOwnNumbersAlone) {
  for (const bool sink : {false, true}) {
    const Problem problem = {.query_len = 4,
                             .key_len = 2,
                             .mask = Mask::causal(Anchor::bottom_right),
                             .query_lens = {4},
                             .sink = sink,
                             .backward = true};
    std::mt19937_64 random(2);
    Inputs inputs = random_inputs(problem, 1, random);
    inputs.k.data = {kNaN, 1};  // row 2 sees it, and the last
    inputs.q.data[0] = kNaN;
    inputs.d_o.data[1] = kNaN;
    const ForwardExpected forward = expect_forward(problem, inputs, loosest(DType::f32));
    const BackwardExpected backward = expect_backward(problem, inputs, loosest(DType::f32));
    EXPECT_EQ(forward.o.bound,
              (std::vector{kInfiniteDouble, 0.0, kInfiniteDouble, kInfiniteDouble}));
    EXPECT_EQ(forward.lse.bound[0], kInfiniteDouble);
    EXPECT_LT(forward.lse.bound[1], 1);
    EXPECT_TRUE(std::isnan(backward.dq.value[0]));
    EXPECT_TRUE(std::isnan(backward.dq.value[1]));
    EXPECT_EQ(backward.dq.bound[1], kInfiniteDouble);
    if (sink) {
      EXPECT_TRUE(std::isnan(backward.dsink.value[0]));
    }
    inputs.k.data = {1, 1};
    const BackwardExpected of_keys = expect_backward(problem, inputs, loosest(DType::f32));
    for (const Expected* keys : {&of_keys.dk, &of_keys.dv}) {
      for (const double bound : keys->bound) EXPECT_LT(bound, 1);
    }
  }
}

RC_GTEST_PROP(WorkingTest, WhatSeesNothingIsExactlyZero, (const RandomProblem<5>& random)) {
  const Problem& problem = random.problem;
  const Arithmetic arithmetic = loosest(problem.dtype);
  const auto demands_zero = [](const Expected& expected, const std::vector<bool>& seen,
                               Index channels) {
    for (std::size_t e = 0; e < expected.value.size(); ++e) {
      if (seen[e / static_cast<std::size_t>(channels)]) continue;
      if (expected.value[e] != 0 || expected.bound[e] != 0) return false;
    }
    return true;
  };
  const auto seeing = rows_that_see(problem, random.inputs);
  const auto seen = keys_that_are_seen(problem, random.inputs);
  const ForwardExpected forward = expect_forward(problem, random.inputs, arithmetic);
  RC_ASSERT(demands_zero(forward.o, seeing, problem.value_dim));
  for (std::size_t e = 0; e < seeing.size(); ++e) {
    if (seeing[e] || problem.sink) continue;
    RC_ASSERT(forward.lse.value[e] == -kInfiniteDouble && forward.lse.bound[e] == 0);
  }
  if (!problem.backward) return;
  const BackwardExpected backward = expect_backward(problem, random.inputs, arithmetic);
  RC_ASSERT(demands_zero(backward.dq, seeing, problem.head_dim));
  RC_ASSERT(demands_zero(backward.dk, seen, problem.head_dim));
  RC_ASSERT(demands_zero(backward.dv, seen, problem.value_dim));
}

TEST(WorkingTest, WithoutKeysTheSinkIsAllThereIs) {
  const Problem problem = {.query_len = 2,
                           .key_len = 3,
                           .mask = Mask::causal(Anchor::top_left, -1),
                           .query_lens = {1},
                           .sink = true,
                           .backward = true,
                           .d_lse = true};
  std::mt19937_64 random(5);
  Inputs inputs = random_inputs(problem, 1, random);
  inputs.sink.data = {3};
  inputs.d_lse.data = {0.25, kNaN};
  const ForwardExpected forward = expect_forward(problem, inputs, loosest(DType::f32));
  EXPECT_EQ(forward.o.value, (std::vector<double>{0, 0}));
  EXPECT_EQ(forward.o.bound, (std::vector<double>{0, 0}));
  EXPECT_EQ(forward.lse.value,
            (std::vector<double>{3, -kInfiniteDouble}));  // MASK-6: no sink beyond
  EXPECT_GT(forward.lse.bound[0], 0);
  EXPECT_LT(forward.lse.bound[0], 0x1p-17);
  EXPECT_EQ(forward.lse.bound[1], 0);
  const BackwardExpected backward = expect_backward(problem, inputs, loosest(DType::f32));
  EXPECT_EQ(backward.dsink.value, std::vector<double>{0.25});
  EXPECT_LT(backward.dsink.bound[0], 0x1p-15);
}

TEST(WorkingTest, ABiasOfMinusInfinityHidesItsKey) {
  Problem problem = {.query_len = 5,
                     .key_len = 6,
                     .head_dim = 3,
                     .value_dim = 2,
                     .bias_shape = Shape{1, 1, 1, 6},
                     .backward = true};
  std::mt19937_64 random(6);
  Inputs inputs = random_inputs(problem, 1, random);
  inputs.bias.data[2] = inputs.bias.data[5] = -kInfiniteDouble;
  inputs.v.at(0, 0, 2, 1) = kNaN;
  const Arithmetic arithmetic = loosest(DType::f32);
  const ForwardExpected by_bias = expect_forward(problem, inputs, arithmetic);
  const BackwardExpected gradients = expect_backward(problem, inputs, arithmetic);
  EXPECT_EQ(gradients.dbias.value[2], 0);
  EXPECT_EQ(gradients.dbias.bound[5], 0);
  problem.mask = Mask::dense({{1, 1, 1, 6}, {1, 1, 0, 1, 1, 0}});
  inputs.bias.data[2] = inputs.bias.data[5] = 0;
  EXPECT_TRUE(same_bits(by_bias, expect_forward(problem, inputs, arithmetic)));
  EXPECT_TRUE(same_bits(gradients, expect_backward(problem, inputs, arithmetic)));
}

TEST(WorkingTest, OnlyGradientsThatALostRowReachesAreLost) {
  const Problem problem = with_all_features({.query_heads = 2,
                                             .query_len = 9,
                                             .key_len = 9,
                                             .head_dim = 3,
                                             .value_dim = 3,
                                             .mask = Mask::causal(Anchor::top_left),
                                             .backward = true});
  std::mt19937_64 random(2);
  Inputs inputs = random_inputs(problem, 1, random);
  inputs.d_lse.at(0, 1, 4, 0) = kNaN;
  const BackwardExpected backward = expect_backward(problem, inputs, loosest(DType::f32));
  for (std::size_t e = 0; e < backward.dbias.value.size(); ++e) {
    const bool lost = e / 9 == 4 && e % 9 <= 4;
    EXPECT_EQ(std::isnan(backward.dbias.value[e]), lost) << e;
    EXPECT_EQ(backward.dbias.bound[e] == kInfiniteDouble, lost) << e;
  }
  EXPECT_FALSE(std::isnan(backward.dsink.value[0]));
  EXPECT_TRUE(std::isnan(backward.dsink.value[1]));
}

TEST(WorkingTest, TheNumberOfThreadsChangesNoBit) {
  std::mt19937_64 random(3);
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Problem problem = with_all_features({.dtype = dtype,
                                               .query_heads = 4,
                                               .key_heads = 2,
                                               .query_len = 70,
                                               .key_len = 131,
                                               .head_dim = 16,
                                               .value_dim = 24,
                                               .scale = 0.25,
                                               .mask = Mask::window(90, 5, Anchor::bottom_right),
                                               .backward = true});
    const Inputs inputs = random_inputs(problem, 1, random);
    const Arithmetic arithmetic = loosest(dtype);
    const ForwardExpected forward = expect_forward(problem, inputs, arithmetic);
    const BackwardExpected backward = expect_backward(problem, inputs, arithmetic);
    for (const int threads : {2, 3, 5}) {
      EXPECT_TRUE(same_bits(forward, expect_forward(problem, inputs, arithmetic, threads)));
      EXPECT_TRUE(same_bits(backward, expect_backward(problem, inputs, arithmetic, threads)));
    }
  }
}

TEST(WorkingTest, BothPassesAtOnceHaveTheBitsOfEach) {
  std::mt19937_64 random(5);
  for (const DType dtype : {DType::bf16, DType::f64}) {
    const Problem problem = with_all_features({.dtype = dtype,
                                               .batch = 2,
                                               .query_heads = 4,
                                               .key_heads = 2,
                                               .query_len = 37,
                                               .key_len = 29,
                                               .head_dim = 8,
                                               .value_dim = 12,
                                               .scale = 0.25,
                                               .mask = Mask::window(9, 4, Anchor::top_left),
                                               .key_lens = {3, 29},
                                               .query_lens = {37, 20},
                                               .backward = true});
    Inputs inputs = random_inputs(problem, 1, random);
    inputs.d_o.data[5] = inputs.q.data[problem.head_dim * 2] = kNaN;  // of other rows
    const Arithmetic arithmetic = loosest(dtype);
    const Excerpt excerpt = excerpt_of_all(problem, {1, 3}, {0, 2});
    for (const Excerpt* part : {static_cast<const Excerpt*>(nullptr), &excerpt}) {
      const PassesExpected both = expect_passes(problem, inputs, arithmetic, 2, part);
      EXPECT_TRUE(same_bits(both.forward, expect_forward(problem, inputs, arithmetic, 1, part)));
      EXPECT_TRUE(same_bits(both.backward, expect_backward(problem, inputs, arithmetic, 1, part)));
    }
  }
}

// Groups of 8 rows, or keys: the same bits as without an excerpt if the group is chosen, else NaN.
// What lies beyond a length may be either.
void expect_excerpt(const Problem& problem, const Expected& whole, const Expected& part,
                    const Shape& shape, const std::vector<Index>& groups, bool of_keys) {
  ASSERT_EQ(part.value.size(), whole.value.size());
  for (std::size_t e = 0; e < whole.value.size(); ++e) {
    const auto [b, h, i, c] = coordinates(shape, Index(e));
    const Lengths lengths = problem.lengths(b);
    if (i >= (of_keys ? lengths.key : lengths.query)) continue;
    if (std::find(groups.begin(), groups.end(), i / 8) == groups.end()) {
      ASSERT_TRUE(std::isnan(part.value[e])) << e;
      continue;
    }
    ASSERT_EQ(std::bit_cast<std::uint64_t>(part.value[e]),
              std::bit_cast<std::uint64_t>(whole.value[e]))
        << e;
    ASSERT_EQ(part.bound[e], whole.bound[e]) << e;
  }
}

TEST(WorkingTest, AnExcerptHasTheBitsOfTheWholeAndLeavesTheRestUnspecified) {
  std::mt19937_64 random(11);
  const Problem plain = {
      .batch = 2,
      .query_heads = 4,
      .key_heads = 2,
      .query_len = 43,
      .key_len = 70,
      .head_dim = 5,
      .value_dim = 3,
      .mask = Mask::window(9, 4, Anchor::top_left),  // rows and keys without partner
      .key_lens = {3, 70},
      .query_lens = {43, 20},
      .backward = true};
  for (const Problem& problem : {plain, with_all_features(plain)}) {
    const Inputs inputs = random_inputs(problem, 1, random);
    const Arithmetic arithmetic = loosest(problem.dtype);
    const std::vector<Index> rows = {5, 0, 2}, keys = {0, 8, 3};
    const Excerpt excerpt = excerpt_of_all(problem, rows, keys);
    const ForwardExpected whole = expect_forward(problem, inputs, arithmetic);
    const BackwardExpected gradients = expect_backward(problem, inputs, arithmetic);
    for (const int threads : {1, 2}) {
      const ForwardExpected part = expect_forward(problem, inputs, arithmetic, threads, &excerpt);
      const BackwardExpected back = expect_backward(problem, inputs, arithmetic, threads, &excerpt);
      expect_excerpt(problem, whole.o, part.o, problem.o_shape(), rows, false);
      expect_excerpt(problem, whole.lse, part.lse, problem.lse_shape(), rows, false);
      expect_excerpt(problem, gradients.dq, back.dq, problem.q_shape(), rows, false);
      expect_excerpt(problem, gradients.dk, back.dk, problem.k_shape(), keys, true);
      expect_excerpt(problem, gradients.dv, back.dv, problem.v_shape(), keys, true);
      EXPECT_EQ(back.dsink.value, gradients.dsink.value);
      EXPECT_EQ(back.dbias.value, gradients.dbias.value);
    }
  }
}

// Whatever heads and groups are chosen, by chance, and however many threads there are: what is
// chosen has the bits of the whole, all else is NaN.
void expect_heads(const Problem& problem, const Expected& whole, const Expected& part,
                  const Shape& shape, const std::vector<std::vector<Index>>& groups, Index heads,
                  bool of_keys) {
  ASSERT_EQ(part.value.size(), whole.value.size());
  for (std::size_t e = 0; e < whole.value.size(); ++e) {
    const auto [b, h, i, c] = coordinates(shape, Index(e));
    const Lengths lengths = problem.lengths(b);
    if (i >= (of_keys ? lengths.key : lengths.query)) continue;
    const auto& chosen = groups[std::size_t(b * heads + h)];
    if (std::find(chosen.begin(), chosen.end(), i / 8) == chosen.end()) {
      ASSERT_TRUE(std::isnan(part.value[e])) << e;
      continue;
    }
    ASSERT_EQ(std::bit_cast<std::uint64_t>(part.value[e]),
              std::bit_cast<std::uint64_t>(whole.value[e]))
        << e;
    ASSERT_EQ(part.bound[e], whole.bound[e]) << e;
  }
}

std::vector<std::vector<Index>> some_groups(Index heads, Index length, std::mt19937_64& random) {
  std::vector<std::vector<Index>> groups(static_cast<std::size_t>(heads));
  for (auto& chosen : groups) {
    for (Index group = 0; group <= (length - 1) / 8; ++group) {
      if (random() % 3 == 0) chosen.push_back(group);
    }
    if (random() % 2 == 0) chosen.clear();
  }
  return groups;
}

TEST(WorkingTest, AnExcerptByHeadsHasTheBitsOfTheWhole) {
  std::mt19937_64 random(23);
  for (int round = 0; round < 12; ++round) {
    Problem problem = {.dtype = round % 4 == 3 ? DType::f64 : DType::bf16,
                       .batch = 2,
                       .query_heads = 6,
                       .key_heads = round % 3 == 0 ? 6 : 2,
                       .query_len = 43,
                       .key_len = 70,
                       .head_dim = 5,
                       .value_dim = 3,
                       .mask = Mask::window(9, 4, Anchor::top_left),
                       .key_lens = {3, 70},
                       .query_lens = {43, 20},
                       .sink = round % 2 == 0,
                       .backward = true};
    if (round % 4 == 2) problem = with_all_features(problem);
    const Inputs inputs = random_inputs(problem, 1, random);
    Arithmetic arithmetic = loosest(problem.dtype);
    arithmetic.rounds_head_gradients = round % 2 == 1;
    const Excerpt excerpt = {
        .query_groups = some_groups(problem.batch * problem.query_heads, problem.query_len, random),
        .key_groups = some_groups(problem.batch * problem.key_heads, problem.key_len, random)};
    const PassesExpected whole = expect_passes(problem, inputs, arithmetic);
    const int threads = 1 + round % 3;
    const PassesExpected part = expect_passes(problem, inputs, arithmetic, threads, &excerpt);
    const ForwardExpected forward = expect_forward(problem, inputs, arithmetic, threads, &excerpt);
    EXPECT_TRUE(same_bits(part.forward, forward));
    const auto rows = [&](const Expected& all, const Expected& some, const Shape& shape) {
      expect_heads(problem, all, some, shape, excerpt.query_groups, problem.query_heads, false);
    };
    const auto keys = [&](const Expected& all, const Expected& some, const Shape& shape) {
      expect_heads(problem, all, some, shape, excerpt.key_groups, problem.key_heads, true);
    };
    rows(whole.forward.o, part.forward.o, problem.o_shape());
    rows(whole.forward.lse, part.forward.lse, problem.lse_shape());
    rows(whole.backward.dq, part.backward.dq, problem.q_shape());
    keys(whole.backward.dk, part.backward.dk, problem.k_shape());
    keys(whole.backward.dv, part.backward.dv, problem.v_shape());
    EXPECT_EQ(part.backward.dbias.value, whole.backward.dbias.value);
    for (Index h = 0; problem.sink && h < problem.query_heads; ++h) {
      bool all = true;  // of this head is walked
      for (Index b = 0; b < problem.batch && !problem.bias_shape; ++b) {
        const Index head = b * problem.key_heads + h / problem.group_size();
        all = all && !excerpt.key_groups[std::size_t(head)].empty();
      }
      const double value = part.backward.dsink.value[std::size_t(h)];
      if (all) {
        EXPECT_EQ(value, whole.backward.dsink.value[std::size_t(h)]) << h;
      } else {
        EXPECT_TRUE(std::isnan(value)) << h;
      }
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
  EXPECT_EQ(forward.o.bound[0], kInfiniteDouble);
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
  EXPECT_LT(expect_backward(problem, inputs, wide).dk.bound[0], kInfiniteDouble);
  EXPECT_FALSE(expect_backward(problem, inputs, loosest(DType::f16)).dk.bound[0] < kInfiniteDouble);
}

TEST(WorkingTest, ScoresThatMayOverflowLeaveTheirRowsUnbounded) {
  const Problem plain = {.query_len = 2,
                         .key_len = 2,
                         .mask = Mask::causal(Anchor::top_left),
                         .backward = true,
                         .d_lse = true};
  const Inputs ones = {.q = {plain.q_shape(), {1, 1}},
                       .k = {plain.k_shape(), {1, 1}},
                       .v = {plain.v_shape(), {1, 2}},
                       .d_o = {plain.o_shape(), {1, 1}},
                       .d_lse = {plain.lse_shape(), {1, 1}}};
  const double half = largest_finite(DType::f32) / 2;
  // The second row sees a second key, which alone may overflow.
  struct Way {
    Problem problem = {};
    Inputs inputs = {};
  };
  std::vector<Way> ways(4, {plain, ones});
  ways[0].inputs.k.data[1] = half;  // in the sum of products,
  ways[0].problem.scale = 0.25;     // before it is scaled
  ways[1].problem.scale = 0x1p100;
  ways[1].inputs.k.data = {0, half * 0x1p-100};
  ways[2].problem.bias_shape = Shape{1, 1, 1, 2};
  ways[2].inputs.bias = {{1, 1, 1, 2}, {0, -half}};
  ways[3].problem.mask = Mask::full();  // the distance of the first query to the second key
  ways[3].problem.slopes_shape = Shape{1, 1, 1, 1};
  ways[3].inputs.slopes = {{1, 1, 1, 1}, {half}};
  for (const Way& way : ways) {
    const std::size_t n = &way - ways.data();
    const ForwardExpected forward = expect_forward(way.problem, way.inputs, loosest(DType::f32));
    const BackwardExpected backward = expect_backward(way.problem, way.inputs, loosest(DType::f32));
    for (const std::size_t row : {std::size_t(0), std::size_t(1)}) {
      if (n == 3) continue;  // both rows see what may
      const bool lost = row == 1;
      EXPECT_EQ(forward.o.bound[row] == kInfiniteDouble, lost) << n;
      EXPECT_EQ(forward.lse.bound[row] == kInfiniteDouble, lost) << n;
      EXPECT_EQ(backward.dq.bound[row] == kInfiniteDouble, lost) << n;
    }
    EXPECT_EQ(forward.o.bound[1], kInfiniteDouble) << n;
    EXPECT_EQ(backward.dk.bound[1], kInfiniteDouble) << n;
    EXPECT_EQ(backward.dv.bound[1], kInfiniteDouble) << n;
  }
  // One that is half as large may not.
  ways[0].inputs.k.data[1] = half / 2;
  const ForwardExpected below =
      expect_forward(ways[0].problem, ways[0].inputs, loosest(DType::f32));
  EXPECT_LT(below.lse.recommended[1], kInfiniteDouble);  // beyond 2^24: not required
}

TEST(WorkingTest, HoweverLargeTheScoresAreASinglePassStaysInTheHullAndLseNearTheLargest) {
  const Problem problem = {.query_len = 1, .key_len = 2, .head_dim = 1, .value_dim = 2};
  const Inputs inputs = {.q = {problem.q_shape(), {1}},
                         .k = {problem.k_shape(), {1e9, 1e9}},
                         .v = {problem.v_shape(), {1, 7, 2, 7}}};
  Arithmetic single_pass = loosest(DType::f32);
  single_pass.kv_splits = 1;
  // Beyond 2^24 nothing of it is required (SOFTMAX-3).
  const ForwardExpected forward = expect_forward(problem, inputs, single_pass);
  EXPECT_EQ(forward.o.bound[0], kInfiniteDouble);
  EXPECT_NEAR(forward.o.recommended[0], 0.5, 1e-4);
  EXPECT_LT(forward.o.recommended[1], 1e-4);  // where all values agree, only rounding is left
  EXPECT_GT(forward.lse.recommended[0], 1e9 * 0x1p-24);
  EXPECT_LT(forward.lse.recommended[0], 1e9 * 0x1p-18);
}

TEST(WorkingTest, WhereTheReferenceGuessesTheWholeHullIsAllowed) {
  const Problem problem = {.query_len = 1, .key_len = 2, .head_dim = 1, .value_dim = 1};
  Inputs inputs = {.q = {problem.q_shape(), {1}},
                   .k = {problem.k_shape(), {1e9, 1e9}},
                   .v = {problem.v_shape(), {1, 2}}};
  Arithmetic single_pass = loosest(DType::f32);
  single_pass.kv_splits = 1;
  EXPECT_NEAR(expect_forward(problem, inputs, single_pass).o.recommended[0], 0.5, 1e-4);
  inputs.k.data = {1e16, 1e16};
  EXPECT_NEAR(expect_forward(problem, inputs, single_pass).o.recommended[0], 1, 1e-4);
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
