// The exact reference in each number type against itself in 100 digits: the difference stays within
// the error that rounding each operation once can make, derived here from the formula.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>

#include "reference/exact.h"
#include "tests/reference/filled.h"
#include "tests/reference/random_problem.h"

namespace attest::exact {
namespace {

using Real = Digits100;

// The largest error of a type whose unit roundoff is `u`. Terms of second order in u are covered by
// a hundredth more; what falls below `tiny`, the smallest normal number, may be lost.
//
// x = scale q.k is off by u (D + 1) a, where a = |scale| sum |q||k|. A cap passes this on times its
// slope, and adds what its own three operations do: a division, tanh, a product (16 u of the result
// and u of the argument, times the slope). Adding bias and ALiBi costs u of each of their terms.
// Subtracting m costs u (|s| + |m|), and exp of y at most u (2|y| + 4): the functions of <cmath>
// are far better, those of Boost lose digits in proportion to their argument (measured: 1.2 |y|).
// Altogether p_j is off by a relative kappa_j before it is divided by the sum. A sink is one more
// term with an exact score and without value. Since the p add up to 1, O feels only how kappa acts
// on V - O, V being what dropout makes of it.
struct ErrorBound {
  Outputs<Real> forward;
  Gradients<Real> backward;
};

ErrorBound error_bound(const Problem& problem, const Inputs<Real>& in, const Real& u,
                       const Real& tiny) {
  struct Term {
    Position at;
    Real s, slope, e_slope, z, p, kappa;
  };
  ErrorBound bound = {{Tensor<Real>(problem.o_shape()), Tensor<Real>(problem.lse_shape())},
                      {Tensor<Real>(problem.q_shape()), Tensor<Real>(problem.k_shape()),
                       Tensor<Real>(problem.v_shape())}};
  if (problem.bias_shape) bound.backward.dbias = Tensor<Real>(*problem.bias_shape);
  if (problem.sink) bound.backward.dsink = Tensor<Real>(problem.sink_shape());
  const Real scale = problem.scale, size = abs(scale), cap = problem.softcap;
  const Real dims = Real(problem.head_dim), value_dims = Real(problem.value_dim);
  // How many products one element of dK or dV sums at most, and how many dS or shares of the sink
  // one element of dBias or dSink.
  const Real queries =
      problem.query_heads == 0 ? 0 : Real(problem.query_len * problem.group_size());
  const Real scores = Real(element_count(problem.keep_shape()));
  const Real rows = Real(problem.batch * problem.query_len);

  for_each_position(problem, [&](const Position& query) {
    if (query.key != 0 || query.query >= problem.lengths(query.batch).query) return;
    std::vector<Term> terms;
    for (Index j = 0; j < problem.key_len; ++j) {
      Term term = {};
      term.at = query;
      term.at.key = j;
      if (!visible(problem, term.at)) continue;
      Real x = 0, a = 0;
      for (Index c = 0; c < problem.head_dim; ++c) {
        const Real product = scale * query_element(problem, in.q, term.at, c) *
                             key_element(problem, in.k, term.at, c);
        x += product;
        a += abs(product);
      }
      Real e_s = u * (dims + 1) * a;
      term.s = x, term.slope = 1;
      if (problem.softcap > 0) {
        const Real t = tanh(Real(x / cap));
        term.s = cap * t;
        term.slope = 1 - t * t;
        e_s = term.slope * (e_s + u * abs(x)) + 16 * u * abs(term.s);
        term.e_slope = 2 * abs(t) * e_s / cap + 2 * u;
      }
      if (problem.bias_shape) {
        term.s += broadcast_element(in.bias, term.at);
        e_s += u * abs(term.s);
      }
      if (problem.slopes_shape) {
        const Lengths lengths = problem.lengths(query.batch);
        const Real alibi = broadcast_element(in.slopes, term.at) *
                           abs(Real(query.query + lengths.key - lengths.query - j));
        term.s -= alibi;
        e_s += u * (abs(alibi) + abs(term.s));
      }
      if (term.s == -std::numeric_limits<Real>::infinity()) continue;
      term.kappa = e_s;
      term.z = problem.dropout.mode == Dropout::Mode::none ? Real(1)
               : in.keep.at(term.at) ? Real(1 / (1 - Real(problem.dropout.probability)))
                                     : Real(0);
      terms.push_back(term);
    }
    const bool has_sink = problem.sink;
    if (terms.empty() && !has_sink) return;  // exact: O = 0, LSE = -inf

    const Real n = Real(terms.size() + 1);
    const Real sink = has_sink ? in.sink.at(0, query.head, 0, 0) : Real(0);
    Real m = has_sink ? sink : terms[0].s, l = 0, mean_kappa = 0;
    for (const Term& t : terms) m = std::max(m, t.s);
    for (const Term& t : terms) l += exp(Real(t.s - m));
    if (has_sink) l += exp(Real(sink - m));
    const Real lse = m + log(l);
    for (Term& t : terms) {
      t.p = exp(Real(t.s - lse));
      t.kappa += u * (3 * abs(t.s) + 4 * abs(m) + 4);
      mean_kappa += t.p * t.kappa;
    }
    const Real p_sink = has_sink ? Real(exp(Real(sink - lse))) : Real(0);
    const Real kappa_sink = u * (3 * abs(sink) + 4 * abs(m) + 4);
    mean_kappa += p_sink * kappa_sink;
    // LSE: the sum of exp, the logarithm (Boost's: 32 u) and the last addition.
    query_element(problem, bound.forward.lse, query, 0) =
        mean_kappa + u * (n + 32 * log(l) + abs(lse)) + n * tiny;

    // O and D = dO.O, with what dO.O adds of its own.
    Real common = 0, e_common = 0;
    for (Index c = 0; c < problem.value_dim; ++c) {
      Real o = 0, a = 0, e = 0;
      for (const Term& t : terms) {
        o += t.p * t.z * key_element(problem, in.v, t.at, c);
        a += t.p * t.z * abs(key_element(problem, in.v, t.at, c));
      }
      for (const Term& t : terms) {
        const Real v = t.z * key_element(problem, in.v, t.at, c);
        e += (t.p * t.kappa + tiny) * abs(v - o) + tiny;
      }
      e += (p_sink * kappa_sink + tiny) * abs(o);
      e += (n + 12) * u * (a + abs(o));
      query_element(problem, bound.forward.o, query, c) = e;
      if (!problem.backward) continue;
      const Real d_o = query_element(problem, in.d_o, query, c);
      common += d_o * o;
      e_common += abs(d_o) * e + value_dims * u * abs(d_o * o) + tiny;
    }
    if (!problem.backward) return;
    const Real d_lse = problem.d_lse ? query_element(problem, in.d_lse, query, 0) : Real(0);

    // A share with the sum's own error and the division.
    const auto error_of_share = [&](const Real& p, const Real& kappa) {
      return p * (kappa + mean_kappa + (n + 4) * u) + tiny;
    };
    if (has_sink) {
      const Real y = d_lse - common, dsink = p_sink * abs(y);
      bound.backward.dsink.at(0, query.head, 0, 0) += error_of_share(p_sink, kappa_sink) * abs(y) +
                                                      p_sink * (e_common + u * abs(y)) +
                                                      (rows + 1) * u * dsink + tiny;
    }
    for (const Term& t : terms) {
      Real dp = 0, a = 0;
      for (Index c = 0; c < problem.value_dim; ++c) {
        const Real product =
            t.z * query_element(problem, in.d_o, t.at, c) * key_element(problem, in.v, t.at, c);
        dp += product;
        a += abs(product);
      }
      const Real e_p = error_of_share(t.p, t.kappa);
      const Real x = dp - common + d_lse;
      const Real e_x =
          (value_dims + 4) * (u * a + tiny) + e_common + u * (abs(dp - common) + abs(x));
      const Real ds = t.p * abs(x), e_ds = e_p * abs(x) + t.p * e_x + u * ds + tiny;
      if (problem.bias_shape) {
        broadcast_element(bound.backward.dbias, t.at) += e_ds + scores * u * ds;
      }
      // With respect to q.k.
      const Real dx = size * t.slope * ds;
      const Real e_dx = size * (t.slope * e_ds + t.e_slope * ds) + 2 * u * dx + tiny;
      for (Index c = 0; c < problem.head_dim; ++c) {
        const Real k = abs(key_element(problem, in.k, t.at, c));
        const Real q = abs(query_element(problem, in.q, t.at, c));
        query_element(problem, bound.backward.dq, t.at, c) +=
            e_dx * k + (n + 1) * u * dx * k + tiny;
        key_element(problem, bound.backward.dk, t.at, c) +=
            e_dx * q + (queries + 1) * u * dx * q + tiny;
      }
      for (Index c = 0; c < problem.value_dim; ++c) {
        const Real d_o = t.z * abs(query_element(problem, in.d_o, t.at, c));
        key_element(problem, bound.backward.dv, t.at, c) +=
            e_p * d_o + (queries + 4) * u * t.p * d_o + tiny;
      }
    }
  });
  for (Tensor<Real>* tensor :
       {&bound.forward.o, &bound.forward.lse, &bound.backward.dq, &bound.backward.dk,
        &bound.backward.dv, &bound.backward.dbias, &bound.backward.dsink}) {
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
  if (!problem.backward) return largest;
  const Gradients<T> gradients = backward(problem, in);
  const Gradients<Real> truth_gradients = backward(problem, truth_in);
  compare(gradients.dq, truth_gradients.dq, bound.backward.dq);
  compare(gradients.dk, truth_gradients.dk, bound.backward.dk);
  compare(gradients.dv, truth_gradients.dv, bound.backward.dv);
  compare(gradients.dbias, truth_gradients.dbias, bound.backward.dbias);
  compare(gradients.dsink, truth_gradients.dsink, bound.backward.dsink);
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
void expect_each_type_to_fail_the_next_wider_ones_terms(const Problem& problem) {
  const attest::Inputs inputs = scattered_inputs(problem, 0.125, 2);
  const double own = largest_ratio<double>(problem, inputs);
  EXPECT_LE(own, 1);
  EXPECT_GT(own, 0.01);  // an error term many times too large would prove nothing
  EXPECT_GT((largest_ratio<double, long double>(problem, inputs)), 1);
  if (std::numeric_limits<long double>::digits < std::numeric_limits<Quad>::digits) {
    EXPECT_GT((largest_ratio<long double, Quad>(problem, inputs)), 1);
  }
  EXPECT_GT((largest_ratio<Quad, Digits100>(problem, inputs)), 1);
}

const Problem kPlain = {.batch = 2,
                        .query_heads = 2,
                        .query_len = 6,
                        .key_len = 7,
                        .head_dim = 4,
                        .value_dim = 3,
                        .scale = 0.7071,
                        .mask = Mask::causal(Anchor::bottom_right),
                        .backward = true};

TEST(ExactTypesTest, ATypeFailsTheErrorTermOfTheNextWiderOne) {
  expect_each_type_to_fail_the_next_wider_ones_terms(kPlain);
}

TEST(ExactTypesTest, ATypeFailsTheErrorTermOfTheNextWiderOneWithAllFeatures) {
  Problem problem = kPlain;
  problem.packed = true;
  problem.query_lens = {6, 5};
  problem.key_lens = {4, 7};
  problem.softcap = 5;
  problem.bias_shape = Shape{1, 2, 1, 7};
  problem.slopes_shape = Shape{1, 2, 1, 1};
  problem.sink = problem.d_lse = true;
  problem.dropout = {.mode = Dropout::Mode::given, .probability = 0.1};
  expect_each_type_to_fail_the_next_wider_ones_terms(problem);
}

}  // namespace
}  // namespace attest::exact
