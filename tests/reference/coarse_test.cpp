// Coarse bounds are never below B, and sharp enough to be of use; reaches say what the mask says.
#include "reference/coarse.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "reference/reach.h"
#include "reference/working.h"
#include "tests/reference/random_problem.h"

namespace attest {
namespace {

using Random = std::mt19937_64;

Index pick(Random& random, Index low, Index high) {
  return std::uniform_int_distribution<Index>(low, high)(random);
}
bool one_in(Random& random, Index times) { return pick(random, 1, times) == 1; }

Mask some_mask(Random& random) {
  const Anchor anchor = one_in(random, 2) ? Anchor::top_left : Anchor::bottom_right;
  switch (pick(random, 0, 5)) {
    case 0:
    case 1:
      return Mask::full();
    case 2:
      return Mask::causal(anchor, pick(random, -3, 3));
    case 3:
      return Mask::window(pick(random, 0, 6), pick(random, 0, 3), anchor, pick(random, -3, 3));
    case 4:
      return Mask::all_of({Mask::prefix({pick(random, 0, 12)}), Mask::causal(anchor)});
    default:
      return Mask::dilated(pick(random, 1, 3), anchor);
  }
}

Problem some_problem(Random& random) {
  Problem p = {.dtype = kDTypes[static_cast<std::size_t>(pick(random, 0, std::ssize(kDTypes) - 1))],
               .batch = pick(random, 1, 2),
               .query_heads = 2,
               .key_heads = pick(random, 1, 2),
               .query_len = pick(random, 1, 20),
               .key_len = pick(random, 1, 90),
               .head_dim = pick(random, 1, 9),
               .value_dim = pick(random, 1, 9),
               .scale = std::ldexp(one_in(random, 2) ? 1.0 : -0.7, int(pick(random, -3, 1))),
               .mask = some_mask(random),
               .backward = true};
  const auto lengths_of = [&](Index most) {
    return std::vector<Index>(std::size_t(p.batch), pick(random, 0, most));
  };
  if (one_in(random, 3)) p.key_lens = lengths_of(p.key_len);
  if (one_in(random, 4)) p.query_lens = lengths_of(p.query_len);
  p.d_lse = one_in(random, 4);
  return p;
}

Values some_values(const Shape& shape, DType dtype, double size, Random& random) {
  Values values = zeros(shape);
  std::normal_distribution<double> normal;
  const Index kind = pick(random, 0, 9);
  for (double& x : values.data) {
    x = normal(random) * size;
    if (kind == 0) x = 0;
    if (kind == 1) x = std::nearbyint(4 * x);
    if (kind == 2 && one_in(random, 3)) x *= smallest_normal(dtype) / 4;  // subnormal
    x = round_to(dtype, x);
  }
  return values;
}

Inputs some_inputs(const Problem& p, Random& random) {
  const double loud = one_in(random, 5) ? 8 : 1;
  // Their products overflow.
  const double huge = one_in(random, 8) ? std::sqrt(largest_finite(p.dtype)) * 32 : 1;
  Inputs in = {.q = some_values(p.q_shape(), p.dtype, loud, random),
               .k = some_values(p.k_shape(), p.dtype, loud, random),
               .v = some_values(p.v_shape(), p.dtype, huge, random),
               .d_o = some_values(p.o_shape(), p.dtype, huge, random)};
  if (p.d_lse) in.d_lse = some_values(p.lse_shape(), p.lse_dtype(), 1, random);
  return in;
}

Arithmetic some_arithmetic(DType dtype, Random& random) {
  Arithmetic a = loosest(dtype);
  const auto maybe = [&](auto& field, auto value) {
    if (one_in(random, 2)) field = value;
  };
  for (Product* each : {&a.qk, &a.pv, &a.dp, &a.dv, &a.dq, &a.dk}) {
    if (one_in(random, 2)) {
      each->truncates = false;
      each->accumulator_roundoff = unit_roundoff(dtype == DType::f64 ? DType::f64 : DType::f32);
    }
    if (one_in(random, 6)) each->operand_roundoff = 0x1p-11;
  }
  maybe(a.exp_error, a.softmax_roundoff);
  if (one_in(random, 6)) a.scores = a.p;
  maybe(a.p, Narrowing{});
  maybe(a.ds, Narrowing{});
  maybe(a.p_normalised, one_in(random, 2) ? Choice::first : Choice::last);
  maybe(a.ds_scaled, one_in(random, 2) ? Choice::first : Choice::last);
  maybe(a.ds_from_p, one_in(random, 2) ? Choice::first : Choice::last);
  maybe(a.kv_splits, Index(1));
  maybe(a.rescales_output, false);
  maybe(a.key_block, pick(random, 1, 64));
  maybe(a.flushes_inputs, false);
  maybe(a.flushes_outputs, false);
  maybe(a.output_rounding, Rounding::nearest);
  return a;
}

// The first element whose coarse bound is below its bound.
std::string below(const char* name, const std::vector<double>& coarse,
                  const std::vector<double>& bound) {
  if (coarse.size() != bound.size()) return std::string(name) + " has another size";
  for (std::size_t e = 0; e < bound.size(); ++e) {
    if (!(coarse[e] >= bound[e])) {
      return std::string(name) + "[" + std::to_string(e) + "]: " + std::to_string(coarse[e]) +
             " < " + std::to_string(bound[e]);
    }
  }
  return {};
}

std::vector<double> sums_over_keys(const Problem& p, const Expected& each, const Shape& shape) {
  std::vector<double> sums;
  for (Index b = 0; b < p.batch; ++b) {
    for (Index h = 0; h < p.key_heads; ++h) {
      for (Index c = 0; c < shape[kChannel]; ++c) {
        double sum = 0;
        for (Index j = 0; j < p.lengths(b).key; ++j) {
          const Place place = p.key_place(b, j);
          sum += each.bound[std::size_t(dense_index(shape, place.batch, h, place.position, c))];
        }
        sums.push_back(sum);
      }
    }
  }
  return sums;
}

TEST(CoarseTest, IsNeverBelowTheBound) {
  Random random(1);
  std::size_t finite = 0, all = 0;
  for (int round = 0; round < 3000; ++round) {
    const Problem p = some_problem(random);
    const Inputs in = some_inputs(p, random);
    const Arithmetic a = some_arithmetic(p.dtype, random);
    const ForwardExpected forward = expect_forward(p, in, a);
    const BackwardExpected backward = expect_backward(p, in, a);
    const ForwardExpected above = coarse_forward(p, in, a);
    const CoarseBackward gradients = coarse_backward(p, in, a);
    ASSERT_EQ(below("O", above.o.bound, forward.o.bound), "") << round << ": " << to_string(p);
    ASSERT_EQ(below("LSE", above.lse.bound, forward.lse.bound), "") << round << to_string(p);
    ASSERT_EQ(below("dQ", gradients.each.dq.bound, backward.dq.bound), "") << to_string(p);
    ASSERT_EQ(below("dK", gradients.each.dk.bound, backward.dk.bound), "") << to_string(p);
    ASSERT_EQ(below("dV", gradients.each.dv.bound, backward.dv.bound), "") << to_string(p);
    ASSERT_EQ(below("sum of dK", gradients.sums.dk, sums_over_keys(p, backward.dk, p.k_shape())),
              "")
        << to_string(p);
    ASSERT_EQ(below("sum of dV", gradients.sums.dv, sums_over_keys(p, backward.dv, p.v_shape())),
              "")
        << to_string(p);
    for (const double bound : above.o.bound) finite += std::isfinite(bound);
    for (const double bound : gradients.sums.dv) finite += std::isfinite(bound);
    all += above.o.bound.size() + gradients.sums.dv.size();
  }
  EXPECT_GT(static_cast<double>(finite), 0.75 * static_cast<double>(all));
}

RC_GTEST_PROP(CoarseTest, HoldsForEveryFeatureOrTellsNothing,
              (const RandomProblem<5, kTraining>& random)) {
  const auto& [p, in] = random;
  const Arithmetic a = loosest(p.dtype);
  const ForwardExpected forward = expect_forward(p, in, a);
  const BackwardExpected backward = expect_backward(p, in, a);
  const ForwardExpected above = coarse_forward(p, in, a);
  const CoarseBackward gradients = coarse_backward(p, in, a);
  RC_ASSERT(below("O", above.o.bound, forward.o.bound) == "");
  RC_ASSERT(below("LSE", above.lse.bound, forward.lse.bound) == "");
  RC_ASSERT(below("dQ", gradients.each.dq.bound, backward.dq.bound) == "");
  RC_ASSERT(below("dK", gradients.each.dk.bound, backward.dk.bound) == "");
  RC_ASSERT(below("dV", gradients.each.dv.bound, backward.dv.bound) == "");
}

RC_GTEST_PROP(ReachTest, IsWhatTheMaskAllows, (const RandomProblem<5, kTraining>& random)) {
  const Problem& p = random.problem;
  RC_PRE(has_reaches(p));
  for_each_position(p, [&](const Position& at) {
    RC_ASSERT(keys_seen(p, at.batch, at.query).contains(at.key) == visible(p, at));
    RC_ASSERT(queries_that_see(p, at.batch, at.key).contains(at.query) == visible(p, at));
  });
}

TEST(ReachTest, IsWhatBandsAllow) {
  for (Index queries = 1; queries <= 5; ++queries) {
    for (Index keys = 1; keys <= 5; ++keys) {
      for (const Anchor anchor : {Anchor::top_left, Anchor::bottom_right}) {
        for (Index offset = -4; offset <= 4; ++offset) {
          for (const Index left : {Index(0), Index(1), Index(3), kUnbounded}) {
            for (const Index right : {Index(0), Index(2), kUnbounded}) {
              const Problem p = {.query_len = queries,
                                 .key_len = keys,
                                 .mask = Mask::window(left, right, anchor, offset)};
              for_each_position(p, [&](const Position& at) {
                const bool seen = visible(p, at);
                ASSERT_EQ(keys_seen(p, 0, at.query).contains(at.key), seen) << to_string(p);
                ASSERT_EQ(queries_that_see(p, 0, at.key).contains(at.query), seen) << to_string(p);
              });
            }
          }
        }
      }
    }
  }
}

// ---- Of use -------------------------------------------------------------------------------------

Problem long_problem(Index length) {
  return {.query_len = length,
          .key_len = length,
          .head_dim = 16,
          .value_dim = 4,
          .scale = 0.25,
          .mask = Mask::causal(Anchor::top_left),
          .backward = true};
}

Arithmetic like_a_flash_kernel() {
  Arithmetic a = loosest(DType::f32);
  for (Product* each : {&a.qk, &a.pv, &a.dp, &a.dv, &a.dq, &a.dk}) {
    *each = {.accumulator_roundoff = 0x1p-24};
  }
  a.p_normalised = Choice::last;
  a.kv_splits = 1;
  a.rescales_output = false;
  a.key_block = 64;
  return a;
}

Inputs normal_inputs(const Problem& p) {
  Random random(7);
  std::normal_distribution<double> normal;
  Inputs in = {.q = zeros(p.q_shape()),
               .k = zeros(p.k_shape()),
               .v = zeros(p.v_shape()),
               .d_o = zeros(p.o_shape())};
  for (Values* values : {&in.q, &in.k, &in.v, &in.d_o}) {
    for (double& x : values->data) x = round_to(DType::f32, normal(random));
  }
  return in;
}

TEST(CoarseTest, OfTheCapsAreFarBelowTheValuesAt4096Keys) {
  // n + R + 4 n / 16 roundings of 2^-23, R < n, and as many errors of exp of 2.25 ulp, come to less
  // than 2^12 (2.25 + 2.25 * 2) 2^-23 < 0.01 of the largest V.
  const Problem p = long_problem(4096);
  const Inputs in = normal_inputs(p);
  const ForwardExpected above = coarse_forward(p, in, loosest(DType::f32));
  double most = 0;
  for (const double v : in.v.data) most = std::max(most, std::abs(v));
  for (const double bound : above.o.bound) EXPECT_LT(bound, 0.02 * most);
  for (const double bound : above.lse.bound) EXPECT_LT(bound, 0.02);
  EXPECT_GT(*std::max_element(above.o.bound.begin(), above.o.bound.end()), 0);
}

TEST(CoarseTest, OfAFlashKernelSeesOneKeyOf4096InARowOfZeroScores) {
  const Problem p = long_problem(4096);
  Inputs in = normal_inputs(p);
  for (double& q : in.q.data) q = 0;
  for (double& v : in.v.data) v = std::nearbyint(4 * v);
  const ForwardExpected above = coarse_forward(p, in, like_a_flash_kernel());
  // LSE = log n moves by 1 / n if a key is lost, O by more than its roundings.
  for (const double bound : above.lse.bound) EXPECT_LT(bound, 0.25 / 4096);
  for (const double bound : above.o.bound) EXPECT_LT(bound, 1e-5);
}

TEST(CoarseTest, OfGradientsAreSharpWhereAllScoresAreZero) {
  const Problem p = long_problem(600);
  Inputs in = normal_inputs(p);
  for (double& k : in.k.data) k = 0;
  const BackwardExpected gradients = expect_backward(p, in, like_a_flash_kernel());
  const CoarseBackward above = coarse_backward(p, in, like_a_flash_kernel());
  // Norms in place of products: the largest X of a row is several times the mean of |X|.
  for (std::size_t e = 0; e < gradients.dk.bound.size(); ++e) {
    EXPECT_LT(above.each.dk.bound[e], 32 * gradients.dk.bound[e]) << e;
  }
  for (std::size_t e = 0; e < gradients.dv.bound.size(); ++e) {
    EXPECT_LT(above.each.dv.bound[e], 4 * gradients.dv.bound[e]) << e;
  }
}

TEST(CoarseTest, SumsOverKeysAreBoundedByAShareOfTheLoss) {
  const Problem p = long_problem(1024);
  const Inputs in = normal_inputs(p);
  const CoarseBackward above = coarse_backward(p, in, loosest(DType::f32));
  for (Index c = 0; c < p.value_dim; ++c) {
    double loss = 0;
    for (Index i = 0; i < p.query_len; ++i) loss += std::abs(in.d_o.at(0, 0, i, c));
    EXPECT_LT(above.sums.dv[std::size_t(c)], 0.01 * loss);
  }
  for (const double bound : above.sums.dk) EXPECT_LT(bound, 0.05 * 1024);
}

}  // namespace
}  // namespace attest
