// The exact reference in each number type against itself in 100 digits: the difference stays within
// the error that rounding each operation once can make, derived here from the formula.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>

#include "reference/exact.h"
#include "tests/reference/random_problem.h"

namespace attest::exact {
namespace {

using Real = Digits100;

// The largest error of a type whose unit roundoff is `u`. Terms of second order in u are covered by
// a hundredth more; what falls below `tiny`, the smallest normal number, may be lost.
//
// A score is off by u (D a + |s|), where a = |scale| sum |q||k|. Subtracting m costs u (|s| + |m|),
// and exp of x at most u (2|x| + 4): the functions of <cmath> are far better, those of Boost lose
// digits in proportion to their argument (measured: 1.2 |x|). Altogether p_j is off by a relative
//   kappa_j = u (D a_j + 4 |s_j| + 4 |m| + 4)
// before it is divided by the sum. Since the p add up to 1, O feels only how kappa acts on V - O.
struct ErrorBound {
  Outputs<Real> forward;
  Gradients<Real> backward;
};

ErrorBound error_bound(const Problem& problem, const Inputs<Real>& in, const Real& u,
                       const Real& tiny) {
  struct Term {
    Index key;
    Real s, a, p, kappa;
  };
  ErrorBound bound = {{Tensor<Real>(problem.o_shape()), Tensor<Real>(problem.lse_shape())},
                      {Tensor<Real>(problem.q_shape()), Tensor<Real>(problem.k_shape()),
                       Tensor<Real>(problem.v_shape())}};
  const Real scale = problem.scale, size = abs(scale);
  const Real dims = Real(problem.head_dim), value_dims = Real(problem.value_dim);
  // How many products one element of dK or dV sums.
  const Real queries =
      problem.query_heads == 0 ? 0 : Real(problem.query_len * problem.group_size());

  for (Index row = 0; row < element_count(problem.lse_shape()); ++row) {
    const auto [b, h, i, only] = coordinates(problem.lse_shape(), row);
    const Index g = h / problem.group_size();
    std::vector<Term> terms;
    for (Index j = 0; j < problem.key_len; ++j) {
      if (!visible(problem, {.batch = b, .head = h, .query = i, .key = j})) continue;
      Term term = {j, 0, 0, 0, 0};
      for (Index c = 0; c < problem.head_dim; ++c) {
        const Real product = scale * in.q.at(b, h, i, c) * in.k.at(b, g, j, c);
        term.s += product;
        term.a += abs(product);
      }
      terms.push_back(term);
    }
    if (terms.empty()) continue;  // exact: O = 0, LSE = -inf

    const Real n = Real(terms.size());
    Real m = terms[0].s, l = 0, mean_kappa = 0;
    for (const Term& t : terms) m = std::max(m, t.s);
    for (const Term& t : terms) l += exp(Real(t.s - m));
    const Real lse = m + log(l);
    for (Term& t : terms) {
      t.p = exp(Real(t.s - lse));
      t.kappa = u * (dims * t.a + 4 * abs(t.s) + 4 * abs(m) + 4);
      mean_kappa += t.p * t.kappa;
    }
    // LSE: the sum of exp, the logarithm (Boost's: 32 u) and the last addition.
    bound.forward.lse.at(b, h, i, 0) = mean_kappa + u * (n + 32 * log(l) + abs(lse)) + n * tiny;

    // O and D = dO.O, with what dO.O adds of its own.
    Real common = 0, e_common = 0;
    for (Index c = 0; c < problem.value_dim; ++c) {
      Real o = 0, a = 0, e = 0;
      for (const Term& t : terms) {
        o += t.p * in.v.at(b, g, t.key, c);
        a += t.p * abs(in.v.at(b, g, t.key, c));
      }
      for (const Term& t : terms) {
        e += (t.p * t.kappa + tiny) * abs(in.v.at(b, g, t.key, c) - o) + tiny;
      }
      e += (n + 8) * u * (a + abs(o));
      bound.forward.o.at(b, h, i, c) = e;
      const Real d_o = in.d_o.at(b, h, i, c);
      common += d_o * o;
      e_common += abs(d_o) * e + value_dims * u * abs(d_o * o) + tiny;
    }

    for (const Term& t : terms) {
      Real dp = 0, a = 0;
      for (Index c = 0; c < problem.value_dim; ++c) {
        const Real product = in.d_o.at(b, h, i, c) * in.v.at(b, g, t.key, c);
        dp += product;
        a += abs(product);
      }
      // p with the sum's own error and the division; then scale p (dP - D).
      const Real e_p = t.p * (t.kappa + mean_kappa + (n + 4) * u) + tiny;
      const Real x = dp - common, e_x = value_dims * (u * a + tiny) + e_common + u * abs(x);
      const Real ds = size * t.p * abs(x);
      const Real e_ds = size * (e_p * abs(x) + t.p * e_x) + 2 * u * ds + tiny;
      for (Index c = 0; c < problem.head_dim; ++c) {
        const Real k = abs(in.k.at(b, g, t.key, c)), q = abs(in.q.at(b, h, i, c));
        bound.backward.dq.at(b, h, i, c) += e_ds * k + (n + 1) * u * ds * k + tiny;
        bound.backward.dk.at(b, g, t.key, c) += e_ds * q + (queries + 1) * u * ds * q + tiny;
      }
      for (Index c = 0; c < problem.value_dim; ++c) {
        const Real d_o = abs(in.d_o.at(b, h, i, c));
        bound.backward.dv.at(b, g, t.key, c) += e_p * d_o + (queries + 1) * u * t.p * d_o + tiny;
      }
    }
  }
  for (Tensor<Real>* tensor : {&bound.forward.o, &bound.forward.lse, &bound.backward.dq,
                               &bound.backward.dk, &bound.backward.dv}) {
    for (Real& e : tensor->data) e *= Real(1.01);
  }
  return bound;
}

// The largest error of any element of O, LSE and the gradients in T, in units of its bound. The
// bound is that of `Judge`: the type itself, unless the test wants to see a failure.
template <typename T, typename Judge = T>
double largest_ratio(const Problem& problem, const attest::Inputs& inputs) {
  const auto truth_in = inputs_as<Real>(inputs);
  const auto in = inputs_as<T>(inputs);
  const ErrorBound bound =
      error_bound(problem, truth_in, Real(std::numeric_limits<Judge>::epsilon()) / 2,
                  Real((std::numeric_limits<Judge>::min)()));
  double largest = 0;
  const auto compare = [&](const Tensor<T>& actual, const Tensor<Real>& truth,
                           const Tensor<Real>& allowed) {
    ASSERT_EQ(actual.shape, truth.shape);
    for (std::size_t n = 0; n < actual.data.size(); ++n) {
      const Real value = Real(actual.data[n]);
      if (value == truth.data[n]) continue;  // -inf too
      const double ratio =
          static_cast<double>(Real(abs(Real(value - truth.data[n])) / allowed.data[n]));
      if (!(ratio <= largest)) largest = ratio;  // keeps a NaN
    }
  };
  const Outputs<T> out = forward(problem, in);
  const Outputs<Real> truth_out = forward(problem, truth_in);
  compare(out.o, truth_out.o, bound.forward.o);
  compare(out.lse, truth_out.lse, bound.forward.lse);
  const Gradients<T> gradients = backward(problem, in);
  const Gradients<Real> truth_gradients = backward(problem, truth_in);
  compare(gradients.dq, truth_gradients.dq, bound.backward.dq);
  compare(gradients.dk, truth_gradients.dk, bound.backward.dk);
  compare(gradients.dv, truth_gradients.dv, bound.backward.dv);
  return largest;
}

RC_GTEST_PROP(ExactTypesTest, EveryTypeStaysWithinItsOwnErrorOfTheTruth,
              (RandomProblem<5> random)) {
  Problem& problem = random.problem;
  // Up to scores of a few thousand, where most of the exponentials vanish.
  problem.scale *= any_of<double>({1, 1, 1, 1.0 / 3, 37});
  RC_ASSERT(largest_ratio<double>(problem, random.inputs) <= 1);
  RC_ASSERT(largest_ratio<long double>(problem, random.inputs) <= 1);
  RC_ASSERT(largest_ratio<Quad>(problem, random.inputs) <= 1);
}

// The error terms have teeth: a type that rounds more than it says is found out.
TEST(ExactTypesTest, ATypeFailsTheErrorTermOfTheNextWiderOne) {
  const Problem problem = {.batch = 2,
                           .query_heads = 2,
                           .query_len = 6,
                           .key_len = 7,
                           .head_dim = 4,
                           .value_dim = 3,
                           .scale = 0.7071,
                           .mask = Mask::causal(Anchor::bottom_right)};
  int state = 1;
  const auto values = [&](const Shape& shape) {
    Values filled = zeros(shape);
    for (double& value : filled.data) value = 0.125 * ((state = state * 75 % 65537) % 65 - 32);
    return filled;
  };
  const attest::Inputs inputs = {.q = values(problem.q_shape()),
                                 .k = values(problem.k_shape()),
                                 .v = values(problem.v_shape()),
                                 .d_o = values(problem.o_shape())};
  const double own = largest_ratio<double>(problem, inputs);
  EXPECT_LE(own, 1);
  EXPECT_GT(own, 0.01);  // an error term many times too large would prove nothing
  EXPECT_GT((largest_ratio<double, long double>(problem, inputs)), 1);
  EXPECT_GT((largest_ratio<long double, Quad>(problem, inputs)), 1);
  EXPECT_GT((largest_ratio<Quad, Digits100>(problem, inputs)), 1);
}

}  // namespace
}  // namespace attest::exact
