// Reads top down, as section 4 does.
#include "reference/exact_bound/gradient.h"

#include <algorithm>
#include <cmath>

namespace attest::exact_bound {
namespace {

// r_j, from kappa'_j and the error of the LSE that the forward pass returned.
Real relative_error_of_p(const Symbols& sy, const Row& row, Real s, Real eps) {
  const Real size = std::max(std::abs(s), std::abs(row.L)) + sy.m_lambda;
  const Real below = row.L - s + 2 * sy.m_lambda;
  const Real kappa = eps + 6 * sy.u_s * size + 5 * sy.u_s * below + 2 * sy.e_x;
  return growth(kappa * kSlack + row.b_l_read);
}

// xi_j, r_j and psi_j.
void bound_p_and_dp(const Symbols& sy, Gradient& out) {
  const Row& row = out.row;
  const View& view = row.view;
  const Index d_v = sy.p.value_dim;
  const Product& product = sy.a.dp;
  const Real G = share(product, steps(product, d_v, d_v), sy.u(product));
  const bool near_1 = row.terms() == 1 && sy.u_zeta == 0 && !sy.a.truncates_p;
  for (Index t = 0; t < row.n(); ++t) {
    const Index j = row.key[at(t)];
    const Real zeta = row.zeta[at(t)], p = row.p[at(t)];
    out.dp.push_back(zeta * sum(d_v, [&](Index c) { return view.d_o(c) * view.v(j, c); }));
    const Real error = sum(d_v, [&](Index c) {
      const Real x = std::abs(view.d_o(c)), y = std::abs(view.v(j, c));
      return x * y * (G + Real(int(x < sy.small) + int(y < sy.small)));
    });
    out.xi.push_back(zeta * (error + sy.z * Real(d_v)) + sy.u_zeta * std::abs(out.dp.back()));
    const Real r = relative_error_of_p(sy, row, row.s[at(t)], row.eps[at(t)]);
    const Real psi = sy.rho(sy.a.p, 1, p * std::max(Real(0), 1 - r), p * (1 + r));
    out.r.push_back(r);
    out.psi.push_back(near_1 ? std::min(psi, p * r) : psi);
  }
}

// E_D where D = sum_c dO_c O_c, from the O that the forward returned.
Real error_of_d_by_channel(const Symbols& sy, const Row& row) {
  const Real g = gamma_of(Real(sy.p.value_dim + 2), sy.widest(sy.a.dp));
  const Real nearest = sy.a.output_rounding == Rounding::nearest ? sy.u_out / 2 : 0;
  const Real overflow = Real(largest_finite(sy.p.dtype)) * (1 + nearest);
  return sum(sy.p.value_dim, [&](Index c) {
    const Real o = std::abs(row.o[at(c)]), b_o = row.b_o[at(c)], x = std::abs(row.view.d_o(c));
    if (!(o + b_o < overflow)) return kInfinity;
    const Real beta = b_o + sy.rho_out(row.o[at(c)], b_o);
    const Real flushed = (o - beta < sy.small ? x * std::min(o + beta, sy.small) : 0) +
                         (x < sy.small ? x * (o + beta) : 0);
    return x * ((1 + g) * beta + g * o) + sy.z + flushed;
  });
}

// Whether dS is formed from the P that was rounded.
bool takes_rounded_p(const Symbols& sy) { return sy.a.ds_from_p != Choice::first; }

// E_D where D = sum_j P_j dP_j.
Real error_of_d_by_key(const Symbols& sy, const Gradient& out) {
  const Row& row = out.row;
  const Real g = gamma_of(steps(sy.a.dp, row.n(), row.span()) + 8, sy.widest(sy.a.dp));
  return sum(row.n(), [&](Index t) {
    const Real p = row.p[at(t)], dp = std::abs(out.dp[at(t)]), xi = out.xi[at(t)];
    const Real psi = takes_rounded_p(sy) ? out.psi[at(t)] : 0;
    return (1 + g) * ((p * out.r[at(t)] + psi + sy.z) * (dp + xi) + p * xi + sy.z) + g * p * dp;
  });
}

// D and E_D.
void bound_d(const Symbols& sy, Gradient& out) {
  const Row& row = out.row;
  out.D = sum(sy.p.value_dim, [&](Index c) { return row.view.d_o(c) * row.o[at(c)]; });
  out.E_D = std::max(error_of_d_by_channel(sy, row), error_of_d_by_key(sy, out)) +
            (sy.p.d_lse ? sy.z : 0);
}

// How many times eta_dS counts, for the scale and for dropout.
Real eta_factor(const Symbols& sy) {
  return sy.kept() * (sy.a.ds_scaled == Choice::last    ? 1
                      : sy.a.ds_scaled == Choice::first ? 1 / sy.tau
                                                        : 1 / std::min(Real(1), sy.tau));
}

// xi'_j, e and f without g, sigma_j, e_j, f_j and t_j.
void bound_ds(const Symbols& sy, Gradient& out) {
  const Row& row = out.row;
  const Real lambda = row.view.lambda(), E_D = out.E_D;
  const Real x_share = (sy.p.d_lse ? 4 : 3) * sy.u_s + sy.u_zeta;
  for (Index t = 0; t < row.n(); ++t) {
    const Real p = row.p[at(t)], r = out.r[at(t)], g = row.g[at(t)], eps_g = row.eps_g[at(t)];
    const Real dp = out.dp[at(t)], X = dp - out.D + lambda, size = std::abs(X);
    const Real x = out.xi[at(t)] + x_share * (std::abs(dp) + std::abs(out.D) + std::abs(lambda));
    const Real psi = takes_rounded_p(sy) ? out.psi[at(t)] : 0;
    const Real e_raw = p * ((1 + r) * x + r * size) + (sy.z + psi) * (size + x + E_D) + 2 * sy.z;
    const Real sigma = p * (r * g + (1 + r) * eps_g);
    const Real e = e_raw * (g + eps_g) + p * size * eps_g;
    const Real f = e + (p * g + sigma) * E_D, whole = p * size * g;
    out.X.push_back(X);
    out.f_raw.push_back(e_raw + p * (1 + r) * E_D);
    out.ds.push_back(p * X * g);
    out.e.push_back(e);
    out.f.push_back(f);
    out.sigma.push_back(sigma);
    out.t.push_back(sy.rho(sy.a.ds, eta_factor(sy), std::max(Real(0), whole - f), whole + f));
  }
}

}  // namespace

Gradient gradient_of(const Symbols& symbols, const Row& row) {
  Gradient out = {.row = row};
  bound_p_and_dp(symbols, out);
  bound_d(symbols, out);
  bound_ds(symbols, out);
  return out;
}

// "dBias": t without g, with the larger eta of scaled and unscaled.
Term dbias_term(const Symbols& sy, const Gradient& of_row, Index t) {
  const Real ds = of_row.row.p[at(t)] * of_row.X[at(t)], f = of_row.f_raw[at(t)];
  const Real low = std::max(Real(0), std::abs(ds) - f), high = std::abs(ds) + f;
  const Real factor =
      sy.kept() * (sy.a.ds_scaled == Choice::last ? 1 : 1 / std::min(Real(1), sy.tau));
  if (!sy.a.rounds_dbias_terms) return {ds, f + sy.rho(sy.a.ds, factor, low, high)};
  // And once more, in the format of the bias.
  const Real u_ds = sy.a.ds.roundoff, eta = u_ds > 0 ? Real(sy.a.ds.underflow) * factor : 0;
  const Real normal = (u_ds > 0 && sy.flushes ? eta / u_ds : 0) + sy.flush;
  const Real absolute = low < normal ? normal : eta + sy.eta_out;
  return {ds, f + std::max((u_ds + sy.u_out * (1 + u_ds)) * high, std::min(absolute, high))};
}

// "dSink": r_z, xi'_z and the term in brackets.
Term dsink_term(const Symbols& sy, const Row& row, Real D, Real E_D) {
  const Real lambda = row.view.lambda(), size = std::abs(lambda - D);
  const Real r = relative_error_of_p(sy, row, row.view.s_z(), sy.z);
  const Real x = (4 * sy.u_s + sy.u_zeta) * (std::abs(lambda) + std::abs(D)) + E_D;
  return {row.p_z * (lambda - D), row.p_z * ((1 + r) * x + r * size) + sy.z * (size + x + 2)};
}

}  // namespace attest::exact_bound
