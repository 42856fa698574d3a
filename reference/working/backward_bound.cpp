// Reads top down: of one row, P and dP with their errors, E_D, then dS of each key with e, f and t;
// then the block, whose sums make dQ, dK and dV. All of dS are scaled where they are put down: they
// are derivatives with respect to q.k.
#include "reference/working/backward_bound.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace attest::bound::working {
namespace {

// ---- One row ----------------------------------------------------------------------------------

// lambda: the gradient with respect to LSE of row i, 0 unless given.
template <class Real>
Real lambda_of(const Context<Real>& context, Index b, Index h, Index i) {
  if (!context.problem.d_lse) return 0;
  const Place place = context.problem.query_place(b, i);
  return Real(context.inputs.d_lse.at(place.batch, h, place.position, 0));
}

// dP and xi, p r and psi of the keys that row r sees.
template <class Real>
void bound_p_and_dp(const Context<Real>& context, Block<Real>& block, Index r) {
  const Model<Real>& model = context.model;
  const RowState<Real>& row = block.rows[at(r)];
  const Seen<Real>& seen = row.seen;
  const std::size_t n = seen.key.size();
  auto& [dp, xi, p_r, psi] = block.backward;
  for (auto* each : {&dp, &xi, &p_r, &psi}) each->resize(n);
  for (std::size_t t = 0; t < n; ++t) {
    const Index j = seen.key[t];
    dp[t] = block.dp.row(r)[j];
    xi[t] = model.dp_share * block.dp_size.row(r)[j] + model.z * Real(context.problem.value_dim);
    const Real exponent = kappa_prime(model, row.L, seen.s[t], seen.eps[t]) + row.lse_error;
    const Real p = seen.p[t];
    p_r[t] = exponent < Real(0.5) ? p * E(exponent) : std::exp(seen.s[t] - row.L + exponent);
    psi[t] = model.p.rho(std::max(Real(0), p - p_r[t]), p + p_r[t]);
  }
  // Rounding what is close to 1 moves it no further than to 1.
  if (n == 1 && !row.has_sink && model.u_zeta == 0 && !model.declared.truncates_p) {
    psi[0] = std::min(psi[0], p_r[0]);
  }
  for (const Rows<Real>* flushed : {&block.small_dp_v, &block.small_dp_o}) {
    if (flushed->empty()) continue;
    for (std::size_t t = 0; t < n; ++t) xi[t] += flushed->row(r)[seen.key[t]];
  }
  for (std::size_t t = 0; t < seen.zeta.size(); ++t) {
    dp[t] *= seen.zeta[t];
    xi[t] = seen.zeta[t] * xi[t] + model.u_zeta * std::abs(dp[t]);
  }
}

// E_D where D = sum_c dO_c O_c, from the O that the forward returned.
template <class Real>
Real error_of_d_by_channel(const Context<Real>& context, Block<Real>& block, Index r) {
  const Model<Real>& model = context.model;
  const Index channels = context.problem.value_dim;
  const Real u = model.u_at_least_s(model.declared.dp);
  const Real g = gamma(Real(channels + 2), u);
  Real sum = 0, magnitudes = 0;
  for (Index c = 0; c < channels; ++c) {
    const Real size = std::abs(block.o.row(r)[c]), d_o = block.d_o.size.row(r)[c];
    const Real bound = block.o_bound.row(r)[c];
    if (!(bound < kInfinity)) return kInfinity;
    magnitudes += d_o * (size + bound);
    // O as it was returned may be infinite, or the sum of what it is multiplied with.
    block.rows[at(r)].ds_lost |= sum_may_overflow(size + bound, model.output_overflow) ||
                                 sum_may_overflow(magnitudes, model.sum_overflow);
    const Real beta = bound + rho_out(model, block.o.row(r)[c], bound);
    sum += d_o * ((1 + g) * beta + g * size) + model.z;
    if (size - beta < model.tiny) sum += d_o * std::min(size + beta, model.tiny);
    if (!block.d_o.small.empty()) sum += block.d_o.small.row(r)[c] * (size + beta);
  }
  return sum;
}

// E_D where D = sum_j P_j dP_j, from the P of the backward itself.
template <class Real>
Real error_of_d_by_key(const Model<Real>& model, const RowState<Real>& row,
                       const BackwardErrors<Real>& errors) {
  const std::vector<Real>& p = row.seen.p;
  const Real u = model.u_at_least_s(model.declared.dp);
  const Real g = gamma(steps<Real>(model.declared.dp, row.n, row.span) + 8, u);
  const bool rounded_p = model.declared.ds_from_p != Choice::first;
  Real error = 0, size = 0;
  for (std::size_t t = 0; t < p.size(); ++t) {
    const Real dp = std::abs(errors.dp[t]) + errors.xi[t];
    const Real p_error = errors.p_r[t] + (rounded_p ? errors.psi[t] : 0) + model.z;
    error += p_error * dp + p[t] * errors.xi[t] + model.z;
    size += p[t] * std::abs(errors.dp[t]);
  }
  return error * (1 + g) + size * g;
}

// What a row gives to dSink: p_z (lambda - D).
template <class Real>
Sum<Real> sink_gradient(const Model<Real>& model, const RowState<Real>& row, Real D, Real E_D,
                        Real lambda) {
  const Real exponent = kappa_prime(model, row.L, row.s_z, model.z) + row.lse_error;
  const Real p_r =
      exponent < Real(0.5) ? row.p_z * E(exponent) : std::exp(row.s_z - row.L + exponent);
  const Real X = lambda - D, size = std::abs(lambda) + std::abs(D);
  const Real x_z = (4 * model.u_s + model.u_zeta) * size + E_D;
  return {.value = row.p_z * X,
          .size = row.p_z * std::abs(X),
          .bound = (row.p_z + p_r) * x_z + p_r * std::abs(X) + model.z * (std::abs(X) + x_z + 2),
          .seen = true};
}

// What weigh_key takes of the row, and the largest |dS g| and zeta P with their errors that it has
// met.
template <class Real>
struct RowGradient {
  Real D, E_D, lambda;
  Real size;        // |D| + |lambda|
  Real x_roundoff;  // of X, beside xi
  Real G_dQ;
  bool rounded_p, capped, drops;
  Real most_ds = 0, most_p = 0;
};

template <class Real>
RowGradient<Real> gradient_of(const Context<Real>& context, Block<Real>& block, Index r,
                              Real lambda) {
  const Model<Real>& model = context.model;
  const Arithmetic& declared = model.declared;
  const RowState<Real>& row = block.rows[at(r)];
  const bool d_lse = context.problem.d_lse;
  Real D = 0;
  for (Index c = 0; c < context.problem.value_dim; ++c) {
    D += block.d_o.value.row(r)[c] * block.o.row(r)[c];
  }
  const Real E_D = std::max(error_of_d_by_channel(context, block, r),
                            error_of_d_by_key(model, row, block.backward)) +
                   (d_lse ? model.z : Real(0));
  return {.D = D,
          .E_D = E_D,
          .lambda = lambda,
          .size = std::abs(D) + std::abs(lambda),
          .x_roundoff = model.u_s * (d_lse ? Real(4) : Real(3)) + model.u_zeta,
          .G_dQ = model.G(declared.dq, steps<Real>(declared.dq, row.n, row.span) + 8) +
                  3 * model.u_s + model.u_zeta + model.scale_share,
          .rounded_p = declared.ds_from_p != Choice::first,
          .capped = !row.seen.g.empty(),
          .drops = !row.seen.zeta.empty()};
}

// dS of a key, in magnitude, before it is scaled and rounded. With the derivative of the softcap,
// if there is one.
template <class Real>
struct ScoreGradient {
  Real X;      // signed
  Real size;   // |dS|, |dS g|
  Real e;      // its error but for what D brings into every key of the row alike
  Real f;      // all of it
  Real sigma;  // what the errors of P and g make of E_D, over E_D
};

// dS of the row's key t.
template <class Real>
inline ScoreGradient<Real> ds_of(const Model<Real>& model, const BackwardErrors<Real>& errors,
                                 const RowGradient<Real>& of_row, Real p, std::size_t t) {
  const Real p_r = errors.p_r[t], most = p + p_r;
  const Real X = errors.dp[t] - of_row.D + of_row.lambda, size = std::abs(X);
  const Real x = errors.xi[t] + of_row.x_roundoff * (std::abs(errors.dp[t]) + of_row.size);
  const Real stray = model.z + (of_row.rounded_p ? errors.psi[t] : Real(0));
  const Real e = most * x + p_r * size + stray * (size + x + of_row.E_D) + 2 * model.z;
  return {.X = X, .size = p * size, .e = e, .f = e + most * of_row.E_D, .sigma = p_r};
}

// The same times the derivative of the softcap, 1 - tanh^2.
template <class Real>
inline ScoreGradient<Real> times_g(const ScoreGradient<Real>& ds, Real p, Real p_r, Real g,
                                   Real eps_g, Real E_D) {
  const Real most = p + p_r, e = ds.e * (g + eps_g) + ds.size * eps_g;
  return {.X = ds.X,
          .size = ds.size * g,
          .e = e,
          .f = e + most * (g + eps_g) * E_D,
          .sigma = p_r * g + most * eps_g};
}

// What the row's key t gives to dBias, which may be summed before or after dS is rounded.
template <class Real>
inline void bound_dbias(const Model<Real>& model, const ScoreGradient<Real>& ds, Real p, Index r,
                        Index j, Block<Real>& block) {
  const Real error = ds.f + model.dbias.rho(std::max(Real(0), ds.size - ds.f), ds.size + ds.f);
  block.dbias.row(r)[j] = p * ds.X;
  block.dbias_bound.row(r)[j] = error * (1 + block.G_b) + ds.size * block.G_b + 2 * model.z;
}

// dS and the weights of |k|, |q| and |dO| in the bounds of dQ, dK and dV, for key t of row r.
template <class Real>
inline void weigh_key(const Model<Real>& model, Real scale, Index r, std::size_t t,
                      RowGradient<Real>& of_row, Block<Real>& block, KeyGradients<Real>& to) {
  RowState<Real>& row = block.rows[at(r)];
  const Seen<Real>& seen = row.seen;
  const Index j = seen.key[t];
  const Real p = seen.p[t], p_r = block.backward.p_r[t], psi = block.backward.psi[t];
  ScoreGradient<Real> ds = ds_of(model, block.backward, of_row, p, t);
  if (!block.dbias.empty()) bound_dbias(model, ds, p, r, j, block);
  if (of_row.capped) ds = times_g(ds, p, p_r, seen.g[t], seen.eps_g[t], of_row.E_D);
  const Real rounding = model.ds.rho(std::max(Real(0), ds.size - ds.f), ds.size + ds.f);
  const Real total = ds.f + rounding;
  // Sums on the way to dS, or what it is rounded to, may overflow.
  const Real dp_most = model.keep_scale * block.dp_size.row(r)[j] + of_row.size;
  const Real ds_most = ds.size + ds.f;
  if (sum_may_overflow(dp_most, model.sum_overflow) ||
      sum_may_overflow(ds_most, model.ds.overflow) ||
      sum_may_overflow(ds_most * std::max(Real(1), model.tau), model.sum_overflow)) {
    row.ds_lost = true;
    to.dk_lost[at(j)] = 1;
  } else if (total < kInfinity) {
    of_row.most_ds = std::max(of_row.most_ds, ds.size + total);
  }

  const Real tau = model.tau, underflow = model.z * (1 + tau);
  block.ds.row(r)[j] = of_row.capped ? scale * p * ds.X * seen.g[t] : scale * p * ds.X;
  block.ds_size.row(r)[j] = tau * (ds.size + total);
  block.dq_weight.row(r)[j] = tau * ((ds.e + rounding + ds.sigma * of_row.E_D) * (1 + of_row.G_dQ) +
                                     ds.size * of_row.G_dQ) +
                              underflow;
  block.dk_weight.row(r)[j] = tau * (total * (1 + block.G_dK) + ds.size * block.G_dK) + underflow;
  const Real p_error = p_r + psi + model.z;
  const Real zeta = of_row.drops ? seen.zeta[t] : Real(1);
  block.dv_size.row(r)[j] = zeta * (p + p_error);
  of_row.most_p = std::max(of_row.most_p, zeta * (p + p_error));
  block.dv_weight.row(r)[j] = zeta * (p_error * (1 + block.G_dV) + p * block.G_dV);
  if (of_row.capped || of_row.drops) block.p_g.row(r)[j] = of_row.capped ? p * seen.g[t] : p;
}

// The same for those keys of row r that lie in `wanted`. Returns the weight of |sum_j P_j g_j k_j|
// in the bound of dQ.
template <class Real>
Real weigh_row(const Context<Real>& context, const KeyHead<Real>& head, Block<Real>& block, Index r,
               Real lambda, const std::vector<Range>& wanted, KeyGradients<Real>& to) {
  const Model<Real>& model = context.model;
  RowState<Real>& row = block.rows[at(r)];
  const std::vector<Index>& keys = row.seen.key;
  bound_p_and_dp(context, block, r);
  RowGradient<Real> of_row = gradient_of(context, block, r, lambda);
  const bool d_lost = row.ds_lost;
  for (const Range& range : wanted) {
    const auto first = std::lower_bound(keys.begin(), keys.end(), range.begin);
    for (auto t = static_cast<std::size_t>(first - keys.begin());
         t < keys.size() && keys[t] < range.end; ++t) {
      weigh_key(model, Real(context.problem.scale), r, t, of_row, block, to);
    }
  }
  // The reference's own sum of P k, which E_D multiplies, is off by this much of sum P |k|.
  const Real common = gamma(Real(row.n + 8), model.u_ref) * of_row.E_D * model.tau;
  for (std::size_t t = 0; t < keys.size(); ++t) {
    block.dq_weight.row(r)[keys[t]] += common * row.seen.p[t];
  }
  // At most what any sum of dS q, dS k or P dO comes to on its way.
  const Real most_ds = of_row.most_ds * std::max(Real(1), model.tau);
  to.most += std::max(most_ds * largest_of(block.q.size, r),
                      of_row.most_p * largest_of(block.d_o.size, r));
  row.ds_k_size = most_ds * head.k_channel;
  if (d_lost) {
    row.ds_lost = true;
    for (const Index j : keys) to.dk_lost[at(j)] = 1;
  }
  if (row.has_sink) {
    Sum<Real> dsink = sink_gradient(model, row, of_row.D, of_row.E_D, lambda);
    dsink.lost = d_lost;
    dsink.beyond = row.beyond;
    block.dsink.add(dsink);
  }
  return model.tau * of_row.E_D * (1 + of_row.G_dQ);
}

// ---- A block ----------------------------------------------------------------------------------

template <class Real>
void prepare_backward(const Context<Real>& context, Block<Real>& block) {
  const Problem& problem = context.problem;
  const Model<Real>& model = context.model;
  const Index key_len = problem.lengths(block.b).key;
  pack_queries(problem, context.inputs.d_o, block.b, block.h,
               {block.begin, block.begin + block.count}, model.tiny, block.d_o);
  for (auto* rows : {&block.dp, &block.dp_size, &block.ds, &block.ds_size, &block.dq_weight,
                     &block.dk_weight, &block.dv_weight, &block.dv_size}) {
    clear(*rows, block.count, key_len);
  }
  clear(block.p_g, problem.softcap > 0 || context.drops() ? block.count : 0, key_len);
  for (auto* rows : {&block.dbias, &block.dbias_bound}) {
    clear(*rows, problem.bias_shape ? block.count : 0, key_len);
  }
  for (auto* rows : {&block.dq, &block.dq_bound, &block.p_g_k, &block.dq_flushed}) {
    clear(*rows, block.count, problem.head_dim);
  }
  block.G_dK = group_share(problem, model, model.declared.dk, block.b) + 3 * model.u_s +
               model.u_zeta + model.scale_share;
  block.G_dV = group_share(problem, model, model.declared.dv, block.b);
  if (problem.bias_shape) block.G_b = G_b_of(problem, model);
  block.dsink = {};
}

// dP before dropout, and the sums of magnitudes that its errors are made of.
template <class Real>
void multiply_values(const KeyHead<Real>& head, Index key_len, Block<Real>& block) {
  dot_products(block.d_o.value, head.v_panels, block.keys, block.dp, block.dp_size);
  const auto flushed_dp = [&](bool any, const Rows<Real>& x, const Panels<Real>& y,
                              Rows<Real>& size) {
    clear(size, any ? block.count : 0, key_len);
    if (any) dot_products(x, y, block.keys, block.small_dot, size);
  };
  flushed_dp(!head.v.small.empty(), block.d_o.value, head.v_small_panels, block.small_dp_v);
  flushed_dp(!block.d_o.small.empty(), block.d_o.small, head.v_panels, block.small_dp_o);
}

// Notes what row r makes of the keys that it sees, and of its sink if it sees nothing else. Whether
// there is anything to weigh.
template <class Real>
bool look_at_row(const Model<Real>& model, Index r, Real lambda, Block<Real>& block,
                 KeyGradients<Real>& to) {
  RowState<Real>& row = block.rows[at(r)];
  row.lost |= block.d_o.lost[at(r)] || !std::isfinite(lambda);
  if (row.has_sink && (row.lost || row.n == 0)) {
    Sum<Real> dsink =
        row.lost ? Sum<Real>{.lost = true} : sink_gradient(model, row, Real(0), model.z, lambda);
    dsink.seen = true;
    block.dsink.add(dsink);
  }
  for (const Index j : row.seen.key) {
    to.seen[at(j)] = 1;
    to.lost[at(j)] |= row.lost;
    to.beyond[at(j)] |= row.beyond;
  }
  return !row.lost && row.n > 0;
}

// What the block's rows give to dK and dV of those of `wanted` that they see.
template <class Real>
void add_key_gradients(const Block<Real>& block, Range wanted, KeyGradients<Real>& to) {
  const Range keys = {std::max(block.keys.begin, wanted.begin),
                      std::min(block.keys.end, wanted.end)};
  if (keys.begin >= keys.end) return;
  add_outer_products(block.ds, block.q.value, keys, to.dk);
  add_outer_products(block.dk_weight, block.q.size, keys, to.dk_bound);
  add_outer_products(block.p, block.d_o.value, keys, to.dv);
  add_outer_products(block.dv_weight, block.d_o.size, keys, to.dv_bound);
  if (!block.q.small.empty()) add_outer_products(block.ds_size, block.q.small, keys, to.dk_bound);
  if (!block.d_o.small.empty()) {
    add_outer_products(block.dv_size, block.d_o.small, keys, to.dv_bound);
  }
  if (!to.dk_size.empty()) {
    add_outer_products(block.ds_size, block.q.size, keys, to.dk_size);
    add_outer_products(block.dv_size, block.d_o.size, keys, to.dv_size);
  }
}

// dQ of the block's rows, and its bound from the weights of |k| and, by row, of |sum_j P_j g_j
// k_j|.
template <class Real>
void sum_dq(const Context<Real>& context, const KeyHead<Real>& head,
            const std::array<Real, kRows>& p_g_k_weight, Block<Real>& block) {
  const Model<Real>& model = context.model;
  const Index head_dim = context.problem.head_dim;
  weighted_sums(block.ds, head.k.value, block.keys, block.dq);
  weighted_sums(block.p_g.empty() ? block.p : block.p_g, head.k.value, block.keys, block.p_g_k);
  weighted_sums(block.dq_weight, head.k.size, block.keys, block.dq_bound);
  if (!head.k.small.empty()) {
    weighted_sums(block.ds_size, head.k.small, block.keys, block.dq_flushed);
  }
  block.dq_size = {};
  if (std::any_of(block.rows.begin(), block.rows.begin() + block.count, [&](const auto& row) {
        return row.n > 0 && !row.lost && row.ds_k_size >= model.sum_overflow;
      })) {
    clear(block.dq_size, block.count, head_dim);
    weighted_sums(block.ds_size, head.k.size, block.keys, block.dq_size);
    for (Real& each : block.dq_size.data) each = before_scale(model, each);
  }
  for (Index r = 0; r < block.count; ++r) {
    const Real underflow =
        model.z * (1 + model.tau) * Real(2 * block.rows[at(r)].n + 8) * model.keep_scale;
    for (Index c = 0; c < head_dim; ++c) {
      const Real bound = block.dq_bound.row(r)[c] + block.dq_flushed.row(r)[c] + underflow +
                         p_g_k_weight[at(r)] * std::abs(block.p_g_k.row(r)[c]);
      const Real size = std::abs(block.dq.row(r)[c]);
      block.dq_bound.row(r)[c] =
          (bound + (3 * model.u_s + model.u_zeta) * (size + bound)) * model.slack + model.flushed;
    }
  }
}

}  // namespace

template <class Real>
void backward_block(const Context<Real>& context, const KeyHead<Real>& head, bool with_dq,
                    const std::vector<Range>& keys, Block<Real>& block, KeyGradients<Real>& to) {
  const Index key_len = context.problem.lengths(block.b).key;
  prepare_backward(context, block);
  multiply_values(head, key_len, block);
  // Rows of which dQ is not wanted matter to the wanted keys alone.
  const std::vector<Range> whole = {{0, key_len}};
  const bool all = with_dq || context.problem.bias_shape;
  std::array<Real, kRows> p_g_k_weight = {};
  for (Index r = 0; r < block.count; ++r) {
    const Real lambda = lambda_of(context, block.b, block.h, block.begin + r);
    if (!look_at_row(context.model, r, lambda, block, to)) continue;
    p_g_k_weight[at(r)] = weigh_row(context, head, block, r, lambda, all ? whole : keys, to);
  }
  for (const Range& wanted : keys) add_key_gradients(block, wanted, to);
  if (with_dq) sum_dq(context, head, p_g_k_weight, block);
}

#define ATTEST_BACKWARD_FOR(Real)                                                        \
  template void backward_block(const Context<Real>&, const KeyHead<Real>&, bool with_dq, \
                               const std::vector<Range>& keys, Block<Real>&, KeyGradients<Real>&);
ATTEST_BACKWARD_FOR(double)
ATTEST_BACKWARD_FOR(long double)
#undef ATTEST_BACKWARD_FOR

}  // namespace attest::bound::working
