// Reads top down: the softmax of one row; its kappa, y, den and v_weight; its B_L; then the block,
// whose sums make S and B_O.
#include "reference/working/forward_bound.h"

#include <algorithm>
#include <cmath>

#include "reference/working/scores.h"

namespace attest::bound::working {
namespace {

// ---- One row ----------------------------------------------------------------------------------

template <class Real>
void softmax(RowState<Real>& row) {
  Seen<Real>& seen = row.seen;
  row.m = *std::max_element(seen.s.begin(), seen.s.end());
  if (row.has_sink) row.m = std::max(row.m, row.s_z);
  row.l = row.p_z = row.has_sink ? std::exp(row.s_z - row.m) : Real(0);
  for (std::size_t t = 0; t < seen.s.size(); ++t) {
    seen.p[t] = std::exp(seen.s[t] - row.m);
    row.l += seen.p[t];
  }
  const Real share = 1 / row.l;
  for (Real& p : seen.p) p *= share;
  row.p_z *= share;
  row.L = row.m + std::log(row.l);
}

// From B_L of what is computed to that of what is returned.
template <class Real>
void store_lse(const Model<Real>& model, RowState<Real>& row, Real largest_kappa) {
  const ErrorsOfLse<Real> errors = stored_lse(model, row, row.lse_bound, largest_kappa);
  row.lse_bound = errors.judged;
  row.lse_error = errors.read;
}

// A row that sees nothing but its sink: LSE is the sink, converted to another base and back, and
// the logarithm of what should be exp(0), twice if it is merged, and with every block if exp(0) is
// not 1.
template <class Real>
void see_only_sink(const Model<Real>& model, RowState<Real>& row) {
  row.m = row.L = row.s_z;
  row.l = row.p_z = 1;
  const Real factors = Real(2 + (model.declared.exp_zero_inexact ? most_rescales(model, row) : 0));
  row.lse_bound = (model.u_s * (8 * std::abs(row.s_z) + 4) + factors * model.e_x) * Real(kSlack) +
                  model.flushed_lse + model.z;
  store_lse(model, row, Real(0));
}

// R, chi, and what follows from them: h, G, G', W and the like.
template <class Real>
void count_roundings(const Model<Real>& model, RowState<Real>& row) {
  const Seen<Real>& seen = row.seen;
  row.R = most_rescales(model, row);
  if (counts_rescales(model) && row.R > kFewRescales) {
    row.R = std::min(row.R, count_rescales(seen.s, seen.eps));
  }
  if (row.has_sink) {
    ++row.R;
    // It may be added to the sum of all keys, or of one of several parts.
    const auto [least, most] = std::minmax_element(seen.s.begin(), seen.s.end());
    row.chi = std::max(Real(0), row.s_z - (model.declared.kv_splits == 1 ? *most : *least));
  }
  complete_row(model, row);
}

// kappa_j, 1 + E(kappa_j), y_j, and Y with the sink's part of it. Returns the largest kappa.
template <class Real>
Real bound_common(const Model<Real>& model, RowState<Real>& row, ForwardErrors<Real>& errors) {
  const Seen<Real>& seen = row.seen;
  const std::size_t n = seen.s.size();
  for (auto* each : {&errors.kappa, &errors.growth, &errors.y, &errors.v_weight}) each->resize(n);
  Real largest = 0;
  for (std::size_t t = 0; t < n; ++t) {
    const Real kappa_t =
        row.exact ? exact_kappa(model, row) : kappa(model, row, seen.s[t], seen.eps[t]);
    errors.kappa[t] = kappa_t;
    largest = std::max(largest, kappa_t);
  }
  for (std::size_t t = 0; t < n; ++t) {
    const Real growth = errors.kappa[t] / (1 - errors.kappa[t] / 2);
    errors.growth[t] = 1 + growth;
    errors.y[t] = seen.p[t] * growth;
  }
  for (std::size_t t = 0; t < n && !(largest < Real(0.5)); ++t) {
    if (errors.kappa[t] < Real(0.5)) {
      errors.y[t] = seen.p[t] * (errors.growth[t] - 1);
    } else {  // p may have underflowed where p e^kappa would not
      errors.y[t] = std::exp(seen.s[t] - row.L + errors.kappa[t]);
      errors.growth[t] = 2;  // so that nothing is known of the least weight
    }
  }
  row.Y = row.Y_of_zeros = 0;
  if (row.has_sink) {
    const Real kappa_z = kappa_z_of(model, row);
    largest = std::max(largest, kappa_z);
    row.Y_of_zeros =
        kappa_z < Real(0.5) ? row.p_z * E(kappa_z) : std::exp(row.s_z - row.L + kappa_z);
    row.Y = row.Y_of_zeros;
  }
  for (const Real y : errors.y) row.Y += y;
  return largest;
}

template <class Real>
Real den_of(const Model<Real>& model, const RowState<Real>& row) {
  return row.Y + row.G_sum * (1 + row.Y) + U_of(model, row) * Real(row.terms());
}

// v_weight_j, from pi_j, the rounding of P; and den.
template <class Real>
void bound_unshared(const Model<Real>& model, RowState<Real>& row, ForwardErrors<Real>& errors) {
  const std::vector<Real>& p = row.seen.p;
  const bool alone = row.terms() == 1, sums_rounded = model.declared.sums_rounded_p;
  const Real underflow = U_of(model, row);
  row.den = den_of(model, row);
  // Of sums over the rounded P nothing is known before they are rounded.
  const Real weakest = sums_rounded ? Real(0) : 1 / ((1 + row.den) * Real(kSlack));
  for (std::size_t t = 0; t < p.size(); ++t) {
    const Real low = std::max(Real(0), p[t] * (2 - errors.growth[t])) * weakest;
    Real pi = row.p.rho(low, p[t] + errors.y[t]);
    if (alone && model.alone_is_one()) pi = std::min(pi, errors.y[t]);
    Real own = pi;  // what the row sum does not share
    if (sums_rounded) {
      errors.y[t] += pi;
      row.Y += pi;
      // Dropout is in between: P may be rounded once more, or the sum's apart from it.
      own = model.u_zeta > 0 ? 2 * pi : Real(0);
    }
    errors.v_weight[t] = (p[t] + errors.y[t]) * row.G + own * (1 + row.G) + underflow;
  }
  if (sums_rounded) row.den = den_of(model, row);
}

// B_L, and what is known of O where the errors of the scores are large: LSE moves by no more than
// the largest of them, and the weights are not negative, the largest of them being 1 (SOFTMAX-2).
template <class Real>
void bound_lse_and_hull(const Model<Real>& model, RowState<Real>& row, Real largest_kappa) {
  const Large<Real> large = large_errors(model, row);
  const Real moved = error_of_log_l(row, large, largest_kappa);
  row.lse_bound =
      (moved + model.u_s * (8 * (row.L - row.m + model.m_lambda) + 13 * row.chi +
                            5 * (std::abs(row.m) + model.m_lambda) + std::abs(row.L) + 2)) *
          Real(kSlack) +
      model.flushed_lse;
  store_lse(model, row, largest_kappa);
  row.hull_share = kInfinity;
  // A key that is alone is its part's and its row's maximum, so that splits change nothing.
  const bool one_maximum = model.declared.kv_splits == 1 || row.terms() == 1;
  if (row.den > Real(0.25) && one_maximum && large.G < Real(0.5)) {
    row.hull_share = beyond_hull(row, large);
  }
}

// Whether some score is too large for SOFTMAX-2: any of them may be the running maximum for a
// while.
template <class Real>
bool is_beyond(const Model<Real>& model, const RowState<Real>& row) {
  const Real limit = softmax_2_limit<Real>(model.declared.dtype);
  const Seen<Real>& seen = row.seen;
  bool beyond = row.has_sink && std::abs(row.s_z) > limit;
  for (std::size_t t = 0; t < seen.s.size(); ++t) {
    beyond |= std::abs(seen.s[t]) + seen.eps[t] > limit;
  }
  return beyond;
}

// How far O can be off while it stays in the hull of the visible values, or within hull_share of
// it; empty if nothing is known of the weights. A single visible key leaves nothing but roundings.
// The values of dropped keys, and of a sink, are 0. Where the scores are so large that the
// reference's own are no more than a guess, the true O may be at the other end of the hull.
template <class Real>
std::vector<Real> hull_bound(const RowState<Real>& row, const Strips<Real>& v, const Real* o) {
  if (std::isinf(row.hull_share)) return {};
  const Seen<Real>& seen = row.seen;
  std::vector<Real> bounds;
  for (Index c = 0; c < v.width; ++c) {
    Real low = row.has_sink ? Real(0) : kInfinity, high = row.has_sink ? Real(0) : -kInfinity;
    for (std::size_t t = 0; t < seen.key.size(); ++t) {
      const Real value = v.at(seen.key[t], c) * (seen.zeta.empty() ? Real(1) : seen.zeta[t]);
      low = std::min(low, value);
      high = std::max(high, value);
    }
    const Real size = std::max(std::abs(low), std::abs(high));
    const bool guessed = row.eps_ref > Real(0x1p-6);
    const Real distance = guessed ? high - low : std::max({high - o[c], o[c] - low, Real(0)});
    bounds.push_back(distance + row.hull_share * size);
  }
  return bounds;
}

// ---- A block ----------------------------------------------------------------------------------

template <class Real>
void prepare(const Context<Real>& context, Block<Real>& block) {
  const Problem& problem = context.problem;
  pack_queries(problem, context.inputs.q, block.b, block.h,
               {block.begin, block.begin + block.count}, context.model.tiny_score, block.q);
  const Index key_len = problem.lengths(block.b).key;
  for (auto* rows : {&block.dot, &block.size, &block.small_dot, &block.small_size, &block.p,
                     &block.y, &block.v_weight}) {
    clear(*rows, block.count, key_len);
  }
  for (auto* rows : {&block.o, &block.o_bound, &block.o_flushed}) {
    clear(*rows, block.count, problem.value_dim);
  }
}

// From the keys that row r sees to all keys, as dropout leaves the weights of their values.
template <class Real>
void scatter(const Seen<Real>& seen, const std::vector<Real>& from, Real* to) {
  if (seen.zeta.empty()) {
    for (std::size_t t = 0; t < seen.key.size(); ++t) to[seen.key[t]] = from[t];
    return;
  }
  for (std::size_t t = 0; t < seen.key.size(); ++t) {
    to[seen.key[t]] = seen.zeta[t] > 0 ? seen.zeta[t] * from[t] : Real(0);
  }
}

// LSE of row r with its bound, and the weights of its values: P, y, v_weight.
template <class Real>
void weigh_values(const Context<Real>& context, Block<Real>& block, Index r) {
  const Model<Real>& model = context.model;
  RowState<Real>& row = block.rows[at(r)];
  if (row.n == 0 && row.has_sink) see_only_sink(model, row);
  // What may overflow is unspecified, as what sees a NaN is.
  row.lost |= row.n > 0 && row.overflows;
  if (row.lost || row.n == 0) return;
  softmax(row);
  if (std::abs(row.m) >= model.score_overflow) {
    row.lost = true;
    return;
  }
  ForwardErrors<Real>& errors = block.forward;
  count_roundings(model, row);
  const Real largest_kappa = bound_common(model, row, errors);
  bound_unshared(model, row, errors);
  bound_lse_and_hull(model, row, largest_kappa);
  row.beyond = is_beyond(model, row);
  if (context.drops()) {
    drop(context, block, r, row.seen);
    for (std::size_t t = 0; t < row.seen.key.size(); ++t) {
      if (row.seen.zeta[t] == 0) row.Y_of_zeros += errors.y[t];
    }
  }
  scatter(row.seen, row.seen.p, block.p.row(r));
  scatter(row.seen, errors.y, block.y.row(r));
  scatter(row.seen, errors.v_weight, block.v_weight.row(r));
}

// Whether a sum of P v may overflow: before it is normalised, in any order, every weight may have
// been as large as one of the largest score.
template <class Real>
void find_overflow(const Context<Real>& context, const KeyHead<Real>& head, Block<Real>& block) {
  const Model<Real>& model = context.model;
  const Real most = std::exp(model.m_lambda) * model.keep_scale;
  block.o_size = {};
  if (head.v_channel * most < model.sum_overflow) return;
  Rows<Real> weights(block.count, block.p.width);
  clear(block.o_size, block.count, context.problem.value_dim);
  for (Index r = 0; r < block.count; ++r) {
    for (const Index j : block.rows[at(r)].seen.key) weights.row(r)[j] = most;
  }
  weighted_sums(weights, head.v.size, block.keys, block.o_size);
  for (Index r = 0; r < block.count; ++r) {
    for (Index c = 0; c < context.problem.value_dim; ++c) {
      // D is made of O.
      block.rows[at(r)].ds_lost |= sum_may_overflow(block.o_size.row(r)[c], model.sum_overflow);
    }
  }
}

// O, the sums of S over keys, and those over keys whose values may be flushed.
template <class Real>
void sum_values(const Context<Real>& context, const KeyHead<Real>& head, Block<Real>& block) {
  weighted_sums(block.p, head.v.value, block.keys, block.o);
  if (context.drops()) {  // |v / (1 - theta) - O| = |v - (1 - theta) O| / (1 - theta)
    block.centre = block.o;
    for (Real& each : block.centre.data) each /= context.model.keep_scale;
  }
  weighted_distances(block.y, block.v_weight, head.v.value, block.keys,
                     context.drops() ? block.centre : block.o, block.o_bound);
  if (head.v.small.empty()) return;
  clear(block.w, block.count, context.problem.lengths(block.b).key);
  for (std::size_t e = 0; e < block.w.data.size(); ++e) {
    block.w.data[e] = block.p.data[e] + block.y.data[e];
  }
  weighted_sums(block.w, head.v.small, block.keys, block.o_flushed);
}

// B_O of row r.
template <class Real>
void bound_o(const Context<Real>& context, const KeyHead<Real>& head, Block<Real>& block, Index r) {
  const Model<Real>& model = context.model;
  const RowState<Real>& row = block.rows[at(r)];
  if (row.n == 0 || row.lost) return;
  const Real underflow = U_of(model, row) * Real(2 * row.n + 8) * model.keep_scale;
  const std::vector<Real> hull = hull_bound(row, head.v.value, block.o.row(r));
  for (Index c = 0; c < context.problem.value_dim; ++c) {
    const Real size = std::abs(block.o.row(r)[c]), flushed = block.o_flushed.row(r)[c];
    const Real s = block.o_bound.row(r)[c] + flushed +
                   (row.G * (1 + row.Y) + row.Y_of_zeros) * size + underflow;
    Real bound = row.den < 1 ? s / (1 - row.den) : Real(kInfinity);
    if (!hull.empty()) bound = std::min(bound, hull[at(c)] + flushed + underflow);
    block.o_bound.row(r)[c] =
        (bound + (3 * model.u_s + model.u_zeta + row.W) * (size + bound)) * model.slack +
        model.flushed;
  }
}

}  // namespace

template <class Real>
void forward_block(const Context<Real>& context, const KeyHead<Real>& head, Block<Real>& block) {
  prepare(context, block);
  look(context, head, block);
  score(context, head, block);
  for (Index r = 0; r < block.count; ++r) weigh_values(context, block, r);
  sum_values(context, head, block);
  find_overflow(context, head, block);
  for (Index r = 0; r < block.count; ++r) bound_o(context, head, block, r);
}

template void forward_block(const Context<double>&, const KeyHead<double>&, Block<double>&);
template void forward_block(const Context<long double>&, const KeyHead<long double>&,
                            Block<long double>&);

}  // namespace attest::bound::working
