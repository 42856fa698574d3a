// The allowed error of one element, as a function of what the testee declares of its arithmetic.
// Each function here is one formula of NUMERICS.md and carries its name; the sums over keys, rows
// and channels around them are in working/, coarse.cpp and statistical.cpp. exact_bound states
// them a second time, and includes nothing of this.
//
// Real is the type that the reference computes in: double, or long double for f64 testees. The
// reference is itself a kernel of the model, with one pass over the keys and the roundoff of Real.
// Every bound is a power series in the roundoffs with no negative coefficient and no constant, so
// adding the reference's roundoffs to the declared ones covers its own error as well (NUMERICS.md,
// "The reference's own error").
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/at.h"
#include "reference/expected.h"
#include "spec/arithmetic.h"
#include "spec/dtype.h"
#include "spec/problem.h"

namespace attest::bound {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Covers what the counts of roundings leave out, namely products of two roundoffs, and the
// roundings of the bound itself. Each is below 16 roundoffs of what it belongs to.
inline constexpr double kSlack = 1 + 0x1p-18;

// gamma_k = k u / (1 - k u): what k roundings of a product or partial sum come to.
template <class Real>
Real gamma(Real roundings, Real u) {
  const Real ku = roundings * u;
  return ku < 1 ? ku / (1 - ku) : std::numeric_limits<Real>::infinity();
}

// E(x), at least exp(x) - 1, for x >= 0, and less than 2 % above it where x < 0.5.
template <class Real>
Real E(Real x) {
  return x < Real(0.5) ? x / (1 - x / 2) : std::exp(x);
}

// steps(k, span): how many roundings a sum of `terms` products takes in any order. A matrix unit
// that truncates aligns its accumulator and a few products, at least 4, to the largest of them and
// cuts off: two more for each step. The terms lie within `span` consecutive places.
template <class Real>
Real steps(const Product& product, Index terms, Index span) {
  return Real(terms + (product.truncates ? 2 * std::min(terms, span / 4 + 2) : 0));
}

// Rounding to a narrower format, in the unit of the number that is rounded.
template <class Real>
struct Narrow {
  Real roundoff = 0;
  Real underflow = 0;                                     // of a subnormal result
  Real flushed_below = 0;                                 // smaller results become 0
  Real overflow = std::numeric_limits<Real>::infinity();  // from here on results may be infinite

  // The error of rounding a number whose magnitude lies between low and high.
  Real rho(Real low, Real high) const {
    if (high >= overflow) return std::numeric_limits<Real>::infinity();
    const Real absolute = low < flushed_below ? flushed_below : underflow;
    return std::max(roundoff * high, std::min(absolute, high));
  }

  // The same for numbers that are kept `factor` times as large as they are rounded.
  Narrow times(Real factor) const {
    if (roundoff == 0) return {};
    return {roundoff, underflow * factor, flushed_below * factor, overflow * factor};
  }
};

// What follows from the problem and the declaration alone.
template <class Real>
struct Model {
  Arithmetic declared;
  Real u_ref;           // the roundoff of the reference
  Real u_s;             // each operation of the softmax
  Real e_x;             // the exponential function
  Real z;               // the smallest normal number of the softmax: what underflows is below it
  Real tau;             // |scale|
  Real score_share;     // of a_j in the error of s_j
  Real dp_share;        // of A_ij in the error of dP_ij
  Real score_absolute;  // of the products q k that underflow
  Real score_operand;   // of scaling q or k before the product: times the sum of |q| and |k|
  Real score_overflow;  // from here on scores, or their products with log2(e), may be infinite
  Narrow<Real> scores;  // after each step of them
  Narrow<Real> p, ds;   // p in the unit of P, normalised
  Narrow<Real> dbias;   // dS as it may be summed to dBias: scaled or not
  Real tiny;            // V and dO below it count as 0
  Real tiny_score;      // Q and K below it count as 0
  Real flushed;         // what a flushed output adds
  Real flushed_lse;
  Real u_out;  // of O as the backward reads it
  Real eta_out;
  Real output_overflow;  // from here on it may be infinite
  bool output_nearest;   // rounded to the nearest number, subnormal or not
  Real u_l;
  Real softcap;               // c; 0: none
  Real e_t;                   // the tanh of a softcap
  Real addend_share;          // of |bias| and |ALiBi| in the error of s_j
  Real tiny_f32;              // slopes below it count as 0
  Real m_lambda;              // how far the running maximum may lie below the true one, or above
  Real w_m;                   // of the largest key: 1, unless the maximum may lie above it
  Real scale_share;           // of a scale that is subnormal in the softmax's format
  Real sum_overflow;          // from here on sums of products may be infinite
  Narrow<Real> stored;        // dK and dV, where they are added up in memory, in their own format
  Real keep_scale = 1;        // 1 / (1 - theta) of dropout
  Real u_zeta = 0;            // of multiplying by it
  Real slack = Real(kSlack);  // of what may be multiplied by it

  bool stores_scores_in_less_range = false;  // than the softmax's
  bool stores_values = false;                // V in fewer bits, with scales

  bool random_sums = false;  // sums of the softmax are left to the deviation

  Model(const Problem& problem, const Arithmetic& arithmetic, Roundings roundings = Roundings::all);

  // Of an accumulator.
  Real u(const Product& product) const { return Real(product.accumulator_roundoff) + u_ref; }
  // The same of sums that may be made in the softmax's format.
  Real u_at_least_s(const Product& product) const {
    return random_sums ? u(product) : std::max(u(product), u_s);
  }

  // What is added to the error of a score, `size` at most, by storing it so many times: it, what is
  // added to it, or either over a constant of at least 1 / `unit`.
  Real stored_scores(int times, Real size, Real unit = 1) const {
    if (scores.roundoff == 0) return 0;
    const Real absolute = std::max(scores.underflow, scores.flushed_below);
    return (std::pow(1 + scores.roundoff, Real(times)) - 1) * size +
           Real(times + 1) * absolute * std::max(Real(1), unit);
  }

  // The error of a sum of products, as a share of the sum of their magnitudes.
  Real G(const Product& product, Real roundings) const { return G(product, roundings, u(product)); }
  static Real G(const Product& product, Real roundings, Real accumulator) {
    const Real operand = product.operand_roundoff;
    const Real both = operand * (2 + operand);
    const Real sum = gamma(roundings, accumulator);
    return sum + both + sum * both;
  }

  // Whether every value of P is 1 before its sum is divided out, if all scores are exactly 0, and
  // stays so: then sums of small integers are exact.
  bool adds_exactly() const {
    return declared.kv_splits >= 1 && !declared.rescales_output && !stores_values &&
           declared.pv.operand_roundoff == 0 && declared.p_normalised == Choice::last &&
           !declared.exp_zero_inexact;
  }

  // Whether P of a key that is alone in its row is so near to 1, which every format holds, that
  // rounding it moves it no further than to 1.
  bool alone_is_one() const {
    // Multiplied by a scale of V it is any number; in 8 bits nobody multiplies it so.
    const bool is_scaled = stores_values && !declared.stored_p;
    return u_zeta == 0 && !declared.truncates_p && !declared.integer_max && !is_scaled;
  }

 private:
  // In this order, since each needs what is set before.
  void set_scores(const Problem& problem);
  void set_narrowing(const Problem& problem);
  void set_flushing(const Problem& problem, bool rounds_operands);
  void set_outputs(const Problem& problem, Roundings roundings);
  void set_dropout(const Problem& problem);
  void set_gradients();
};

// What one row brings along: n keys between the first and the last it sees. G_sum is G'.
template <class Real>
struct Row {
  Index n = 0;
  Index span = 0;
  Index key_len = 0;   // of its batch element
  bool exact = false;  // P is 1 for every key, V small integers: nothing rounds before the end
  bool has_sink = false;
  Real s_z = 0;  // its logit
  Real chi = 0;  // how far it lies above the maximum that it may be added to
  Real m = 0;    // the largest score, or the sink
  Real L = -std::numeric_limits<Real>::infinity();  // LSE
  Real l = 1;                                       // of exp(s_j - m)
  Index R = 0;
  bool overflows = false;  // what makes a score of some key may (SOFTMAX-2)
  Real h = 0;
  Real G = 0;      // of the numerator
  Real G_sum = 0;  // of the denominator
  Real split = 0;  // of kappa: what does not depend on the key
  Real W = 0;      // how far the weights of merged parts are from adding up to 1
  Real den = 0;
  Real w_m = 1;  // of the largest key, before P is divided by its sum
  Narrow<Real> p = {};

  Index terms() const { return n + (has_sink ? 1 : 0); }  // n', of the denominator
};

// A score c tanh(x / c), and the derivative 1 - tanh^2, each with its error.
template <class Real>
struct Capped {
  Real score, score_error, slope, slope_error;
};
template <class Real>
Capped<Real> cap(const Model<Real>& model, Real x, Real x_error);

// What adding a bias and an ALiBi term to a score that is off by `score_error` brings: `size` is
// the sum of the three magnitudes, `added` that of the two.
template <class Real>
Real addend_error(const Model<Real>& model, Real size, Real added, Real score_error) {
  const Real error = 6 * model.u_s * size + model.addend_share * added + 4 * model.z;
  return error + model.stored_scores(3, size + score_error + error, model.tau);
}

// x_j = tau Σ q k as it is stored, before and after the scale: what comes to its error.
template <class Real>
Real stored_product(const Model<Real>& model, Real x, Real error) {
  return model.stored_scores(2, std::abs(x) + error, model.tau);
}

// Whether a score may overflow, or a sum on the way to it: `products` is the sum of |q||k|, `added`
// that of |bias| and |ALiBi|.
template <class Real>
bool may_overflow(const Model<Real>& model, Real products, Real added = 0) {
  return std::max(Real(1), model.tau) * products + added >= model.score_overflow;
}

// Whether a sum whose magnitudes add up to `magnitude` may overflow. Of an infinite one nothing is
// known, and its bound is infinite too.
template <class Real>
bool sum_may_overflow(Real magnitude, Real overflow) {
  return magnitude >= overflow && magnitude < Real(kInfinity);
}

// R without a sink, the number of rescales that a key may live through: one for each later key or
// declared block; where exp(0) is not 1, for every block there is, whether the maximum rises or
// not.
template <class Real>
Index most_rescales(const Model<Real>& model, const Row<Real>& row) {
  const Index block = model.declared.key_block;
  if (model.declared.exp_zero_inexact && block > 0) return (row.key_len + block - 1) / block;
  return block > 0 ? std::min(row.n - 1, (row.span + block - 1) / block) : row.n - 1;
}

// Up to so many rescales it is not worth while to count how many there can be at most in a single
// pass: the most often that a running maximum of the computed scores can rise after a key, over all
// contiguous runs of the keys, upwards or downwards. A key can raise it only if its score plus its
// error exceeds the scores less their errors of all the keys of the run before it.
inline constexpr Index kFewRescales = 32;
template <class Real>
bool counts_rescales(const Model<Real>& model) {
  const Arithmetic& declared = model.declared;
  return declared.kv_splits == 1 && !declared.any_block_order && !declared.exp_zero_inexact;
}
template <class Real>
Index count_rescales(const std::vector<Real>& score, const std::vector<Real>& error);

// The members from h to w_m, but for den, and p, once the others are known.
template <class Real>
void complete_row(const Model<Real>& model, Row<Real>& row);

// kappa_j: the error of the logarithm of a weight, as far as numerator and denominator share it.
template <class Real>
Real kappa(const Model<Real>& model, const Row<Real>& row, Real score, Real score_error) {
  const Real size = std::max(std::abs(score), std::abs(row.m)) + model.m_lambda;
  const Real distance = row.m - score + 2 * model.m_lambda;
  Real sum = score_error + model.u_s * (2 * size + 5 * distance) + model.e_x * Real(1 + row.R);
  if (model.declared.kv_splits != 1) {
    sum += row.split + 6 * model.u_s * size;
    if (row.has_sink) sum += 3 * model.u_s * distance;
  }
  return sum * Real(kSlack);
}

// U, what an exponential and its rescales lose at most where they underflow: where the maximum
// lags, beside factors above 1.
template <class Real>
Real U_of(const Model<Real>& model, const Row<Real>& row) {
  return model.z * Real(row.R + 4) * std::exp(model.m_lambda) / row.w_m;
}

// Of "Large errors of the scores": u_p + n eta_p / w_m, and G''.
template <class Real>
struct Large {
  Real narrowed, G;
};
template <class Real>
Large<Real> large_errors(const Model<Real>& model, const Row<Real>& row) {
  const Real eta = std::max(model.p.underflow, model.p.flushed_below);
  const Real narrowed = model.p.roundoff + Real(row.n) * eta / row.w_m;
  return {narrowed, row.G_sum + U_of(model, row) * Real(row.terms()) * Real(0x1p60) +
                        (model.declared.sums_rounded_p ? narrowed : Real(0))};
}

// The error of log l: log sum exp moves by no more than its arguments do, however large that is.
template <class Real>
Real error_of_log_l(const Row<Real>& row, const Large<Real>& large, Real largest_kappa) {
  return std::min(row.den < 1 ? -std::log1p(-row.den) : Real(kInfinity),
                  large.G < 1 ? largest_kappa - std::log1p(-large.G) : Real(kInfinity));
}

// How far beyond the hull of V the output may lie in a single pass, as a share of max |v|. Not
// where G'' is 1/2 or more.
template <class Real>
Real beyond_hull(const Row<Real>& row, const Large<Real>& large) {
  return (row.G + large.narrowed * (1 + row.G) + 2 * large.G) / (1 - large.G);
}

// kappa of a row of weights that are exactly 1, but for the merge of its parts.
template <class Real>
Real exact_kappa(const Model<Real>& model, const Row<Real>& row) {
  return 4 * model.u_ref + (model.declared.kv_splits > 1 ? row.split * Real(kSlack) : Real(0));
}

// The largest score up to which SOFTMAX-2 binds: 2^24, and 2^53 for f64.
template <class Real>
Real softmax_2_limit(DType dtype) {
  return 1 / Real(unit_roundoff(dtype == DType::f64 ? DType::f64 : DType::f32));
}

// kappa of the sink. It may be merged by LSE even where the keys are covered in one pass.
template <class Real>
Real kappa_z_of(const Model<Real>& model, const Row<Real>& row) {
  const Real size = std::max(std::abs(row.s_z), std::abs(row.m)) + row.chi + model.m_lambda;
  const Real distance = std::max(row.m - row.s_z, row.chi) + 2 * model.m_lambda;
  const Real sum =
      model.u_s * (14 * size + 8 * distance) + row.split + model.e_x * Real(1 + row.R) + model.z;
  return sum * Real(kSlack);
}

// kappa'_j of the backward, where P = exp(s - L) or exp(s - m) / l.
template <class Real>
Real kappa_prime(const Model<Real>& model, Real L, Real score, Real score_error) {
  const Real size = std::max(std::abs(score), std::abs(L)) + model.m_lambda;
  const Real distance = L - score + 2 * model.m_lambda;
  return (score_error + model.u_s * (6 * size + 5 * distance) + 2 * model.e_x) * Real(kSlack);
}

// The error of LSE as the harness reads it, which is what is judged, and as the testee's own
// backward pass does ("LSE in another form"): from B_L, that of LSE before it is stored, and the
// largest kappa of the row.
template <class Real>
struct ErrorsOfLse {
  Real judged, read;
};
template <class Real>
ErrorsOfLse<Real> stored_lse(const Model<Real>& model, const Row<Real>& row, Real bound,
                             Real largest_kappa) {
  const LseForm& form = model.declared.lse;
  if (form == LseForm{}) return {bound, bound + model.u_l * (std::abs(row.L) + bound)};
  const Real above = row.L - row.m + model.m_lambda;
  const Real size =
      form.apart ? std::abs(row.m) + model.m_lambda + row.chi + largest_kappa : std::abs(row.L);
  if (form.base_2) bound += 2 * model.u_s * size;
  const Real whole = size + bound;
  Real judged = bound + (model.u_l + 4 * model.u_ref) * (whole + (form.apart ? 2 : 0));
  if (form.apart) judged += model.z;
  Real read = judged;
  if (form.base_2) read += 2 * model.u_s * whole;
  if (form.apart) read += model.u_s * (8 * above + std::abs(row.L) + 2);
  return {judged, read};
}

// How often dK and dV are stored before all query rows of the group are added, and rounded to their
// format thereby; 0 unless that is declared.
template <class Real>
Real times_stored(const Problem& problem, const Model<Real>& model, Index b) {
  const Index block = model.declared.gradient_block;
  if (block == 0) return 0;
  return Real(problem.group_size() * ((problem.lengths(b).query + block - 1) / block + 1));
}

// What the sums of dV and dK over the query rows of a whole group come to.
template <class Real>
Real group_share(const Problem& problem, const Model<Real>& model, const Product& product,
                 Index b) {
  const Index group = problem.group_size(), rows = group * problem.lengths(b).query;
  const Real sum = model.G(product, steps<Real>(product, rows, rows + 4 * group) + 8);
  const Real stored = gamma(times_stored(problem, model, b), model.stored.roundoff);
  return sum + stored + sum * stored;
}

// G_b: what the sum of all that reads one element of the bias comes to, in any order.
template <class Real>
Real G_b_of(const Problem& problem, const Model<Real>& model) {
  Index terms = 1;
  const Shape whole = problem.keep_shape();
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if ((*problem.bias_shape)[axis] == 1) terms *= whole[axis];
  }
  const Real u = model.u_at_least_s(model.declared.dk);
  return gamma(steps<Real>(model.declared.dk, terms, 4 * terms) + 8, u);
}

// A sum of scaled magnitudes before it is scaled, or after, whichever is more.
template <class Real>
Real before_scale(const Model<Real>& model, Real sum) {
  if (model.tau >= 1) return sum;
  return model.tau > 0 ? sum / model.tau : std::numeric_limits<Real>::max();
}

// The rounding of an output, or of a gradient, that is known up to `bound`. Rounding to the nearest
// moves a number no further than to any other that is representable.
template <class Real>
Real rho_out(const Model<Real>& model, Real value, Real bound) {
  const Real any = model.u_out * (std::abs(value) + bound) + model.eta_out;
  if (!model.output_nearest) return any;
  const DType dtype = model.declared.dtype;
  return std::min(any, std::abs(Real(round_to(dtype, static_cast<double>(value))) - value) + bound);
}

extern template struct Model<double>;
extern template struct Model<long double>;

}  // namespace attest::bound
