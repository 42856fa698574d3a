#include "reference/exact_bound/symbols.h"

#include <algorithm>
#include <cmath>

#include "reference/roundoff.h"

namespace attest::exact_bound {

Real gamma_of(Real k, Real u) { return k * u / (1 - k * u); }

Real growth(Real x) { return x < 0.5L ? x / (1 - x / 2) : std::exp(x); }

Real steps(const Product& product, Index k, Index span) {
  return Real(k) + (product.truncates ? 2 * Real(std::min(k, span / 4 + 2)) : 0);
}

Real share(const Product& product, Real k, Real u) {
  const Real u_op = (1 + Real(product.operand_roundoff)) * (1 + Real(product.operand_roundoff)) - 1;
  return (1 + gamma_of(k, u)) * (1 + u_op) - 1;
}

Symbols::Symbols(const Problem& problem, const Arithmetic& arithmetic)
    : p(problem),
      a(arithmetic),
      u_ref(p.dtype == DType::f64 ? kRoundoff<long double> : Real(kRoundoff<double>)),
      tau(std::abs(Real(p.scale))),
      z(smallest_normal(p.lse_dtype())),
      stored_qk(Real(p.stored.q.has_value() + p.stored.k.has_value())),
      u_s(Real(a.softmax_roundoff) + u_ref),
      e_x(Real(a.exp_error) + 4 * u_ref),
      e_t(Real(a.tanh_error) + 4 * u_ref),
      m_lambda((Real(a.max_lag) + (a.integer_max ? 1 : 0)) * std::log(2.0L)),
      flushes(a.flushes_inputs || a.flushes_outputs) {
  const Real least_tau = tau * std::pow(Real(kLeastScale), stored_qk);
  if (tau > 0 && least_tau < z) {
    const Real spacing = z * 2 * Real(unit_roundoff(p.lse_dtype()));
    scale_share = flushes ? 1 : std::min(1.0L, 4 * spacing / least_tau);
  }
  const Real normal = smallest_normal(p.dtype);
  if (a.flushes_outputs) {
    flush = normal;
    flush_l = z;
  }
  const Real ulps = a.output_rounding == Rounding::nearest ? 1 : 2;  // in half units
  u_out = ulps * Real(unit_roundoff(p.dtype));
  eta_out = ulps * Real(half_smallest_subnormal(p.dtype)) + flush;
  u_l = ulps * Real(unit_roundoff(p.lse_dtype()));

  bool rounds_operands = false;
  for (const Product& each : {a.qk, a.pv, a.dp, a.dv, a.dq, a.dk}) {
    rounds_operands |= each.operand_roundoff > 0;
  }
  small = a.flushes_inputs || rounds_operands ? normal : 0;
  const Real factor = std::max(Real(1), Real(p.softcap)) / std::min(Real(1), tau);
  small_qk =
      std::max({small, flushes ? z * factor : 0, a.qk.operand_roundoff > 0 ? normal * factor : 0});

  if (p.dropout.mode != Dropout::Mode::none) {
    theta = p.dropout.probability;
    u_zeta = gamma_of(3 + theta / (1 - theta), u_s);
    slack = kSlack * (1 + 4 * u_zeta);
  }
}

Real Symbols::stored(int times, Real x, Real f) const {
  const Real u_S = a.scores.roundoff;
  if (u_S == 0) return 0;
  const Real eta_S = flushes ? Real(smallest_normal(p.dtype)) : Real(a.scores.underflow);
  Real factor = 1;
  for (int k = 0; k < times; ++k) factor *= 1 + u_S;
  return (factor - 1) * x + Real(times + 1) * eta_S * std::max(Real(1), f);
}

Real Symbols::rho(const Narrowing& to, Real factor, Real low, Real high) const {
  if (to.roundoff == 0) return 0;
  const Real normal = Real(to.underflow) / Real(to.roundoff) * factor;
  const Real eta = flushes && low < normal ? normal : Real(to.underflow) * factor;
  return std::max(Real(to.roundoff) * high, std::min(eta, high));
}

Real Symbols::rho_out(Real x, Real bound) const {
  const Real any = u_out * (std::abs(x) + bound) + eta_out;
  if (a.output_rounding != Rounding::nearest || flush > 0) return any;
  const Real nearest = round_to(p.dtype, static_cast<double>(x));
  return std::min(any, std::abs(nearest - x) + bound);
}

}  // namespace attest::exact_bound
