// Reads top down, as sections 2 and 3 do.
#include "reference/exact_bound/row.h"

#include <algorithm>
#include <cmath>

namespace attest::exact_bound {

Real Row::v(Index t, Index c) const { return zeta[at(t)] * view.v(key[at(t)], c); }

namespace {

// ---- Section 2: the score ---------------------------------------------------------------------

// A score on its way, and its error.
struct Score {
  Real s, eps, a;
  Real g = 1, eps_g = 0;
};

// x_j, "The score".
Score product_of(const Symbols& sy, const View& view, Index j) {
  const Index d = sy.p.head_dim;
  const auto q = [&](Index c) { return std::abs(view.q(c)); };
  const auto k = [&](Index c) { return std::abs(view.k(j, c)); };
  const Real x = Real(sy.p.scale) * sum(d, [&](Index c) { return view.q(c) * view.k(j, c); });
  const Real a = sy.tau * sum(d, [&](Index c) { return q(c) * k(c); });
  const Real phi = sy.tau * sum(d, [&](Index c) {
                     return q(c) * k(c) * Real(int(q(c) < sy.small_qk) + int(k(c) < sy.small_qk));
                   });
  const Real larger =
      std::max({Real(1), sy.tau, Real(sy.p.softcap)}) * std::pow(Real(kMostScale), sy.stored_qk);
  const Real sizes = sum(d, [&](Index c) { return q(c) + k(c); });
  const Real G = share(sy.a.qk, steps(sy.a.qk, d, d), sy.u(sy.a.qk));
  const Real eps = (G + 2 * (1 + sy.stored_qk) * sy.u_s + sy.scale_share) * a + phi +
                   sy.z * Real(d) * larger +
                   2 * Real(unit_roundoff(sy.p.lse_dtype())) * sy.z * larger * sizes;
  return {.s = x, .eps = eps + sy.stored(2, std::abs(x) + eps, sy.tau), .a = a};
}

// "Softcap."
Score softcapped(const Symbols& sy, const Score& x) {
  const Real c = sy.p.softcap, t = std::tanh(x.s / c), size = std::abs(t);
  const auto slope_at = [&](Real y) { return 1 / (std::cosh(y / c) * std::cosh(y / c)); };
  const Real eps = x.eps + 5 * sy.u_s * std::abs(x.s) + sy.stored(1, std::abs(x.s) + x.eps, c);
  const Real steepest = slope_at(std::max(Real(0), std::abs(x.s) - eps));
  const Real moved = std::min(eps * steepest, c * (1 + size)) * (1 + sy.e_t) +
                     (sy.e_t + 3 * sy.u_s) * c * size + sy.z * (1 + c);
  const Real capped = moved + sy.stored(2, c * size + moved, c);
  const Real eps_t = capped / c + 3 * sy.u_s * size;
  return {.s = c * t,
          .eps = capped,
          .a = x.a,
          .g = slope_at(x.s),
          .eps_g = eps_t * (2 * size + eps_t) + 4 * sy.u_s};
}

// "Bias and ALiBi."
Score with_bias_and_alibi(const Symbols& sy, const View& view, Index j, Score score) {
  const Real b = view.bias(j), alpha = view.alpha(j), added = std::abs(b) + std::abs(alpha);
  const Index d = sy.p.head_dim;
  score.eps += 6 * sy.u_s * (std::abs(score.s) + added) + 4 * sy.z;
  if (sy.p.softcap == 0) {
    score.eps += gamma_of(steps(sy.a.qk, d + 2, d + 2), sy.u(sy.a.qk)) * added;
  }
  score.eps += sy.stored(3, std::abs(score.s) + added + score.eps, sy.tau);
  if (std::abs(b) < sy.small) score.eps += std::abs(b);
  if (sy.a.flushes_inputs && std::abs(view.slope()) < 0x1p-126L) score.eps += std::abs(alpha);
  score.s += b - alpha;
  return score;
}

// The keys that the row sees.
void see(const Symbols& sy, Row& row) {
  const View& view = row.view;
  for (Index j = 0; j < sy.p.lengths(view.b).key; ++j) {
    if (!view.sees(j)) continue;
    row.key.push_back(j);
    row.zeta.push_back(view.keeps(j) ? sy.kept() : 0);
    Score score = product_of(sy, view, j);
    if (sy.p.softcap > 0) score = softcapped(sy, score);
    if (sy.p.bias_shape || sy.p.slopes_shape) score = with_bias_and_alibi(sy, view, j, score);
    // Section 3, "Where the reference's own scores may be off by 2^-6".
    const Real size = score.a + std::abs(view.bias(j)) + std::abs(view.alpha(j));
    row.guess |= sy.u_ref * Real(sy.p.head_dim + 8) * size > 0x1p-6L;
    row.s.push_back(score.s);
    row.eps.push_back(score.eps);
    row.g.push_back(score.g);
    row.eps_g.push_back(score.eps_g);
  }
}

// m, l, L, p_j and p_z of section 1.
void softmax(Row& row) {
  const bool sink = row.view.p.sink;
  const Real s_z = row.view.s_z();
  row.m = *std::max_element(row.s.begin(), row.s.end());
  if (sink) row.m = std::max(row.m, s_z);
  row.l = sum(row.n(), [&](Index t) { return std::exp(row.s[at(t)] - row.m); });
  if (sink) row.l += std::exp(s_z - row.m);
  row.L = row.m + std::log(row.l);
  // exp(s - L), without what L loses where m is large.
  for (const Real s : row.s) row.p.push_back(std::exp(s - row.m) / row.l);
  if (sink) row.p_z = std::exp(s_z - row.m) / row.l;
}

// ---- Section 2: roundings ---------------------------------------------------------------------

// R by its definition: from every key on, in both directions, how many later keys can exceed all
// those in between.
Real counted_rescales(const Row& row) {
  Index most = 0;
  for (const Index step : {1, -1}) {
    for (Index from = 0; from < row.n(); ++from) {
      Real top = row.s[at(from)] - row.eps[at(from)];
      Index count = 0;
      for (Index t = from + step; t >= 0 && t < row.n(); t += step) {
        count += row.s[at(t)] + row.eps[at(t)] > top;
        top = std::max(top, row.s[at(t)] - row.eps[at(t)]);
      }
      most = std::max(most, count);
    }
  }
  return Real(most);
}

// R, without a sink.
Real rescales(const Symbols& sy, const Row& row) {
  const Arithmetic& a = sy.a;
  const auto blocks = [&](Index keys) { return std::ceil(Real(keys) / Real(a.key_block)); };
  if (a.key_block > 0 && a.exp_zero_inexact) return blocks(sy.p.lengths(row.view.b).key);
  Real R = Real(row.n() - 1);
  if (a.key_block > 0) R = std::min(R, blocks(row.span()));
  const bool counts = a.kv_splits == 1 && !a.exp_zero_inexact && !a.any_block_order;
  return counts && R > 32 ? std::min(R, counted_rescales(row)) : R;
}

// Section 3, "Exact rows".
bool is_exact(const Symbols& sy, const Row& row) {
  const Arithmetic& a = sy.a;
  const View& view = row.view;
  const Index keys = sy.p.lengths(view.b).key;
  if (sy.p.sink || sy.p.dropout.mode != Dropout::Mode::none) return false;
  if (a.kv_splits == 0 || a.rescales_output || a.pv.operand_roundoff > 0 ||
      a.p_normalised != Choice::last || a.exp_zero_inexact || sy.p.stored.v) {
    return false;
  }
  for (Index c = 0; c < sy.p.value_dim; ++c) {
    const auto v = [&](Index j) { return std::abs(view.v(j, c)); };
    for (Index j = 0; j < keys; ++j) {
      if (v(j) != std::floor(v(j))) return false;
    }
    if (!(sum(keys, v) < 0x1p24L)) return false;
  }
  return std::all_of(row.key.begin(), row.key.end(), [&](Index j) {
    const Real a_j =
        sum(sy.p.head_dim, [&](Index c) { return std::abs(view.q(c) * view.k(j, c)); });
    return a_j == 0 && view.bias(j) == 0 && view.alpha(j) == 0;
  });
}

// R, h, G, G', w_m, U and W.
void count_roundings(const Symbols& sy, Row& row) {
  const Arithmetic& a = sy.a;
  const Index n = row.n(), span = row.span();
  const bool sink = sy.p.sink;
  row.exact = is_exact(sy, row);
  row.R = rescales(sy, row) + (sink ? 1 : 0);
  row.h = steps(a.pv, n, a.any_block_order ? 4 * n : span) + row.R + 8;
  if (a.rescales_output) {
    row.h += 4 * Real(std::min(n, span / (a.key_block > 0 ? a.key_block : 16) + 2));
  }
  row.h += (sink ? 8 : 0) + (sy.u_zeta > 0 ? 2 : 0) + (sy.p.stored.v ? 2 : 0);
  const Real u = sy.widest(a.pv);
  row.G = share(a.pv, row.h, u);
  row.G_sum = gamma_of(row.h, u);
  if (row.exact) {
    row.G = gamma_of(Real(n + 8), sy.u_ref);
    if (a.kv_splits > 1) row.G += gamma_of(Real(std::min(a.kv_splits, n) + 12), u);
    row.G_sum = row.G;
  }
  row.w_m = a.integer_max ? 0.5L : 1;
  if (a.exp_zero_inexact) row.w_m *= std::exp(-sy.e_x * (1 + row.R));
  row.U = (row.R + 4) * sy.z * std::exp(sy.m_lambda) / row.w_m;
  if (a.kv_splits != 1 && row.terms() > 1) {
    const Real entropy = std::log(Real(row.terms() + 1)) + sy.m_lambda;
    row.W = growth(row.G_sum + 2 * sy.e_x + sy.u_s * (5 * std::abs(row.L) + 9 * entropy + 4));
  }
}

// ---- Section 2: kappa -------------------------------------------------------------------------

// kappa_j; that of an exact row.
Real kappa_of(const Symbols& sy, const Row& row, Real s, Real eps) {
  const Real size = std::max(std::abs(s), std::abs(row.m)) + sy.m_lambda;
  const Real below = row.m - s + 2 * sy.m_lambda;
  const Real entropy = std::log(Real(row.terms() + 1)) + sy.m_lambda;
  const bool splits = sy.a.kv_splits != 1;
  const Real of_splits =
      row.G_sum + 6 * sy.u_s * entropy + 2 * sy.e_x + 4 * sy.u_s;  // the same for all keys
  if (row.exact) return 4 * sy.u_ref + (splits ? of_splits * kSlack : 0);
  Real kappa = eps + 2 * sy.u_s * size + 5 * sy.u_s * below + sy.e_x * (1 + row.R);
  if (splits) kappa += of_splits + 6 * sy.u_s * size;
  if (splits && sy.p.sink) kappa += 3 * sy.u_s * below;
  return kappa * kSlack;
}

// "The sink."
Real kappa_of_sink(const Symbols& sy, const Row& row) {
  const Real s_z = row.view.s_z();
  const Real size = std::max(std::abs(s_z), std::abs(row.m)) + row.chi + sy.m_lambda;
  const Real below = std::max(row.m - s_z, row.chi) + 2 * sy.m_lambda;
  const Real entropy = std::log(Real(row.terms() + 1)) + sy.m_lambda;
  return (sy.u_s * (14 * size + 8 * below) + row.G_sum + 6 * sy.u_s * entropy + 4 * sy.u_s +
          2 * sy.e_x + sy.e_x * (1 + row.R) + sy.z) *
         kSlack;
}

// ---- Sections 2 and 3: the weights, Y and den -------------------------------------------------

// y of a weight p = exp(s - L), which may underflow where p e^kappa does not.
Real y_of(const Row& row, Real s, Real p, Real kappa) {
  return kappa < 0.5L ? p * growth(kappa) : std::exp(s - row.L + kappa);
}

// kappa_j, y_j and pi_j ("The rounding of P", "A row sum over the rounded P").
void bound_weights(const Symbols& sy, Row& row) {
  const Index n = row.n();
  for (Index t = 0; t < n; ++t) {
    row.kappa.push_back(kappa_of(sy, row, row.s[at(t)], row.eps[at(t)]));
    row.y.push_back(y_of(row, row.s[at(t)], row.p[at(t)], row.kappa[at(t)]));
  }
  if (sy.p.sink) {
    const auto [least, most] = std::minmax_element(row.s.begin(), row.s.end());
    row.chi = std::max(Real(0), row.view.s_z() - (sy.a.kv_splits == 1 ? *most : *least));
    row.kappa_z = kappa_of_sink(sy, row);
    row.y_z = y_of(row, row.view.s_z(), row.p_z, row.kappa_z);
  }
  const auto set_den = [&] {
    row.Y = sum(n, [&](Index t) { return row.y[at(t)]; }) + row.y_z;
    row.den = row.Y + (1 + row.Y) * row.G_sum + Real(row.terms()) * row.U;
  };
  set_den();
  // The rounding of P.
  const Real eta = row.exact                             ? 0
                   : sy.a.p_normalised == Choice::last   ? 1 / (row.l * row.w_m)
                   : sy.a.p_normalised == Choice::either ? 1 / row.w_m
                                                         : 1;
  const bool near_1 = row.terms() == 1 && sy.u_zeta == 0 && !sy.a.truncates_p &&
                      !sy.a.integer_max && (!sy.p.stored.v || sy.a.stored_p);
  for (Index t = 0; t < n; ++t) {
    const Real p = row.p[at(t)], y = row.y[at(t)], E = growth(row.kappa[at(t)]);
    const Real low =
        sy.a.sums_rounded_p ? 0 : p * std::max(Real(0), 1 - E) / (1 + row.den) / kSlack;
    const Real pi = row.exact ? 0 : sy.rho(sy.a.p, eta, low, p + y);
    row.pi.push_back(near_1 ? std::min(pi, y) : pi);
  }
  if (!sy.a.sums_rounded_p) return;
  for (Index t = 0; t < n; ++t) {  // pi is common to both sums; dropout is between them
    row.y[at(t)] += row.pi[at(t)];
    row.pi[at(t)] *= sy.u_zeta > 0 ? 2 : 0;
  }
  set_den();
}

// ---- Section 3: B_O and B_L -------------------------------------------------------------------

// u_p + n eta_p / w_m, and G'', of "Large errors of the scores".
struct Large {
  Real narrowed, G;
};

Large large_errors(const Symbols& sy, const Row& row) {
  const Narrowing& p = sy.a.p;
  const Real eta = sy.flushes && p.roundoff > 0 ? p.underflow / p.roundoff : p.underflow;
  const Real narrowed = p.roundoff + Real(row.n()) * eta / row.w_m;
  return {narrowed,
          row.G_sum + 0x1p60L * Real(row.terms()) * row.U + (sy.a.sums_rounded_p ? narrowed : 0)};
}

// How far O_c may lie from any number in the hull of the visible values.
Real hull_distance(const Row& row, Index c) {
  Real low = row.view.p.sink ? 0 : kInfinity, high = -low;
  for (Index t = 0; t < row.n(); ++t) {
    low = std::min(low, row.v(t, c));
    high = std::max(high, row.v(t, c));
  }
  return row.guess ? high - low : std::max(high - row.o[at(c)], row.o[at(c)] - low);
}

// S_c and B_O, and what "Large errors of the scores" makes of it.
Real bound_of_o(const Symbols& sy, const Row& row, Index c) {
  const Index n = row.n();
  const Real o = row.o[at(c)], size = std::abs(o);
  const Real underflow = row.U * Real(2 * n + 8) * sy.kept();
  const auto v = [&](Index t) { return std::abs(row.v(t, c)); };
  const auto largest = [&](Index t) { return row.p[at(t)] + row.y[at(t)]; };
  const Real flushed = sum(n, [&](Index t) {
    const Real value = std::abs(row.view.v(row.key[at(t)], c));
    return value > 0 && value < sy.small ? largest(t) * v(t) : 0;
  });
  const Real S = sum(n,
                     [&](Index t) {
                       return row.y[at(t)] * std::abs(row.v(t, c) - o) +
                              (largest(t) * row.G + row.pi[at(t)] * (1 + row.G) + row.U) * v(t);
                     }) +
                 flushed + (row.y_z + row.G * (1 + row.Y)) * size + underflow;
  Real bound = row.den < 1 ? S / (1 - row.den) : kInfinity;
  const Large large = large_errors(sy, row);
  if (row.den > 0.25L && (sy.a.kv_splits == 1 || row.terms() == 1) && large.G < 0.5L) {
    Real most = 0;
    for (Index t = 0; t < n; ++t) most = std::max(most, v(t));
    const Real beyond = most * (row.G + large.narrowed * (1 + row.G) + 2 * large.G) / (1 - large.G);
    bound = std::min(bound, hull_distance(row, c) + beyond + flushed + underflow);
  }
  return sy.complete(bound, o, sy.u_zeta + row.W) + sy.flush;
}

Real largest_kappa(const Symbols& sy, const Row& row) {
  Real kappa = sy.p.sink ? row.kappa_z : 0;
  for (const Real each : row.kappa) kappa = std::max(kappa, each);
  return kappa;
}

Real bound_of_l(const Symbols& sy, const Row& row) {
  const Large large = large_errors(sy, row);
  const Real kappa = largest_kappa(sy, row);
  const Real moved = std::min(row.den < 1 ? -std::log1p(-row.den) : kInfinity,
                              large.G < 1 ? kappa - std::log1p(-large.G) : kInfinity);
  const Real roundings = sy.u_s * (8 * (row.L - row.m + sy.m_lambda) + 13 * row.chi +
                                   5 * (std::abs(row.m) + sy.m_lambda) + std::abs(row.L) + 2);
  return (moved + roundings) * kSlack + sy.flush_l;
}

// Section 4, "LSE in another form": C, rho_L and rho'_L. `kappa` is the largest of the row.
void store_lse(const Symbols& sy, Row& row, Real kappa) {
  const LseForm& form = sy.a.lse;
  if (!form.base_2 && !form.apart) {
    row.b_l_read = row.b_l + sy.u_l * (std::abs(row.L) + row.b_l);
    return;
  }
  const Real size = form.apart ? std::abs(row.m) + sy.m_lambda + row.chi + kappa : std::abs(row.L);
  if (form.base_2) row.b_l += 2 * sy.u_s * size;  // C
  const Real whole = size + row.b_l;
  const Real rho =
      form.apart ? (sy.u_l + 4 * sy.u_ref) * (whole + 2) + sy.z : (sy.u_l + 4 * sy.u_ref) * whole;
  const Real of_base = form.base_2 ? 2 * sy.u_s * whole : 0;
  const Real of_log =
      form.apart ? sy.u_s * (8 * (row.L - row.m + sy.m_lambda) + std::abs(row.L) + 2) : 0;
  row.b_l += rho;
  row.b_l_read = row.b_l + of_base + of_log;
}

// "Only a sink."
void see_only_sink(const Symbols& sy, Row& row) {
  row.m = row.L = row.view.s_z();
  row.p_z = 1;
  const Real blocks = sy.a.exp_zero_inexact && sy.a.key_block > 0
                          ? std::ceil(Real(sy.p.lengths(row.view.b).key) / Real(sy.a.key_block))
                          : 0;
  row.b_l =
      (sy.u_s * (8 * std::abs(row.L) + 4) + (2 + blocks) * sy.e_x) * kSlack + sy.z + sy.flush_l;
  store_lse(sy, row, 0);
}

}  // namespace

Row row_of(const Symbols& symbols, const View& view) {
  Row row = {.view = view};
  row.o.assign(at(symbols.p.value_dim), 0);
  row.b_o = row.o;
  see(symbols, row);
  if (row.n() == 0) {
    if (symbols.p.sink) see_only_sink(symbols, row);
    return row;
  }
  softmax(row);
  count_roundings(symbols, row);
  bound_weights(symbols, row);
  for (Index c = 0; c < symbols.p.value_dim; ++c) {
    row.o[at(c)] = sum(row.n(), [&](Index t) { return row.p[at(t)] * row.v(t, c); });
    row.b_o[at(c)] = bound_of_o(symbols, row, c);
  }
  row.b_l = bound_of_l(symbols, row);
  store_lse(symbols, row, largest_kappa(symbols, row));
  return row;
}

}  // namespace attest::exact_bound
