#include "reference/bound.h"

#include <array>

#include "reference/roundoff.h"

namespace attest::bound {
namespace {

template <class Real>
Narrow<Real> narrow(const Narrowing& to, bool flushes) {
  if (to.roundoff == 0) return {};
  // Half the smallest subnormal over the roundoff is the smallest normal number of the format.
  return {Real(to.roundoff), Real(to.underflow),
          flushes ? Real(to.underflow / to.roundoff) : Real(0)};
}

// What is left of a declaration once all that rounds to the nearest is taken for exact, but for
// operands: an element of Q that is rounded errs alike for all keys.
Arithmetic systematic_part(Arithmetic a) {
  for (Product* each : {&a.qk, &a.pv, &a.dp, &a.dv, &a.dq, &a.dk}) {
    if (!each->truncates) each->accumulator_roundoff = 0;
  }
  // What may be flushed always goes the same way, as does what is cut off.
  if (!a.flushes_inputs && !a.flushes_outputs) {
    if (!a.truncates_p) a.p = {};
    a.ds = {};
    a.rounds_dbias_terms = false;
  }
  return a;
}

bool rounds_operands(const Arithmetic& a) {
  const std::array products = {a.qk, a.pv, a.dp, a.dv, a.dq, a.dk};
  return std::any_of(products.begin(), products.end(),
                     [](const Product& each) { return each.operand_roundoff > 0; });
}

}  // namespace

template <class Real>
Model<Real>::Model(const Problem& problem, const Arithmetic& arithmetic, Roundings roundings)
    : declared(roundings == Roundings::all ? arithmetic : systematic_part(arithmetic)),
      u_ref(kRoundoff<Real>),
      u_s(Real(arithmetic.softmax_roundoff) + u_ref),
      e_x(Real(arithmetic.exp_error) + 4 * u_ref),
      z(smallest_normal(problem.lse_dtype())),
      tau(std::abs(Real(problem.scale))),
      random_sums(roundings == Roundings::systematic &&
                  arithmetic.softmax_roundoff <= unit_roundoff(problem.lse_dtype())) {
  const Real log_2 = std::log(Real(2));
  m_lambda = (Real(arithmetic.max_lag) + (arithmetic.integer_max ? 1 : 0)) * log_2;
  w_m = arithmetic.integer_max ? Real(0.5) : Real(1);
  // Two thirds: constants of base 2 may be in the terms.
  sum_overflow = Real(largest_finite(problem.lse_dtype())) / Real(1.5);
  softcap = Real(problem.softcap);
  e_t = Real(declared.tanh_error) + 4 * u_ref;
  set_scores(problem);
  set_narrowing(problem);
  set_flushing(problem, rounds_operands(declared));
  set_outputs(problem, roundings);
  if (problem.dropout.mode != Dropout::Mode::none) set_dropout(problem);
  set_gradients();
}

// What the error of a score is made of, and that of dP.
template <class Real>
void Model<Real>::set_scores(const Problem& problem) {
  scale_share = 0;
  // Of what is stored, scales may be multiplied with it first.
  const int with_scales = problem.stored.q.has_value() + problem.stored.k.has_value();
  const Real least_tau = tau * std::pow(Real(kLeastScale), Real(with_scales));
  if (tau > 0 && least_tau < z) {
    const Real spacing = z * Real(2 * unit_roundoff(problem.lse_dtype()));
    const bool flushes_scale = declared.flushes_inputs || declared.flushes_outputs;
    scale_share = flushes_scale ? Real(1) : std::min(Real(1), 4 * spacing / least_tau);
  }
  // Two more roundings: q, or q and k, may be scaled before the product; and two for each scale of
  // what is stored.
  score_share = G(declared.qk, steps<Real>(declared.qk, problem.head_dim, problem.head_dim)) +
                2 * Real(1 + with_scales) * u_s + scale_share;
  dp_share = G(declared.dp, steps<Real>(declared.dp, problem.value_dim, problem.value_dim));
  // A score is kept over the scale, or over the softcap, on its way, and over those of what is
  // stored.
  const Real score_size =
      std::max(std::max(Real(1), tau), softcap) * std::pow(Real(kMostScale), Real(with_scales));
  stores_values = problem.stored.v.has_value();
  score_absolute = z * score_size * Real(problem.head_dim);
  score_operand = z * score_size * Real(2 * unit_roundoff(problem.lse_dtype()));
  score_overflow = Real(largest_finite(problem.lse_dtype())) / 2;
  // Without a softcap, what is added may be among the terms of q.k.
  addend_share = problem.softcap > 0
                     ? Real(0)
                     : gamma(steps<Real>(declared.qk, problem.head_dim + 2, problem.head_dim + 2),
                             u(declared.qk));
}

// How P and dS are rounded.
template <class Real>
void Model<Real>::set_narrowing(const Problem& problem) {
  const bool flushes = declared.flushes_inputs || declared.flushes_outputs;
  scores = narrow<Real>(declared.scores, flushes);
  if (scores.roundoff > 0) {
    score_overflow = std::min(score_overflow, Real(largest_finite(problem.dtype)) / 2);
    stores_scores_in_less_range =
        format_of(problem.dtype).max_exponent < format_of(problem.lse_dtype()).max_exponent;
  }
  p = narrow<Real>(declared.p, flushes);
  ds = narrow<Real>(declared.ds, flushes);
  // Rounding to a format of a narrower range, as f16, overflows where that in which dS was computed
  // does not. P never exceeds 1.
  const Format narrow_format = format_of(problem.dtype),
               wide_format = format_of(problem.lse_dtype());
  const Real narrow_overflow = Real(rounding_cell(problem.dtype, kInfinity).low);
  if (ds.roundoff > 0 && narrow_format.max_exponent < wide_format.max_exponent)
    ds.overflow = narrow_overflow;
  // What is kept `scale` times as large when it is rounded loses 1 / scale times as much.
  if (declared.ds_scaled == Choice::first) {
    ds = ds.times(1 / tau);
  } else if (declared.ds_scaled == Choice::either) {
    ds = ds.times(1 / std::min(Real(1), tau));
    if (std::isfinite(ds.overflow)) ds.overflow = narrow_overflow / std::max(Real(1), tau);
  }
}

// What of the inputs may count as 0, and what of the outputs.
template <class Real>
void Model<Real>::set_flushing(const Problem& problem, bool rounds_operands) {
  // Operands that are rounded further lose a share of themselves, but all of what is subnormal.
  const Real normal = Real(smallest_normal(problem.dtype));
  tiny = declared.flushes_inputs || rounds_operands ? normal : Real(0);
  tiny_score = tiny;
  // Scaled, it may become subnormal: flushed as a result, or as an operand of the product.
  // scale / softcap may be one factor.
  const Real cap_size = std::max(Real(1), softcap), smaller_tau = std::min(Real(1), tau);
  if (declared.flushes_inputs || declared.flushes_outputs)
    tiny_score = std::max(tiny_score, z * cap_size / smaller_tau);
  if (declared.qk.operand_roundoff > 0) {
    tiny_score = std::max(tiny_score, normal * cap_size / smaller_tau);
  }
  tiny_f32 = declared.flushes_inputs ? Real(smallest_normal(DType::f32)) : Real(0);
  flushed = declared.flushes_outputs ? Real(smallest_normal(problem.dtype)) : Real(0);
  flushed_lse = declared.flushes_outputs ? z : Real(0);
}

// How O, the gradients and LSE are rounded.
template <class Real>
void Model<Real>::set_outputs(const Problem& problem, Roundings roundings) {
  const Real ulps = declared.output_rounding == Rounding::nearest ? 1 : 2;  // in half units
  u_out = ulps * Real(unit_roundoff(problem.dtype));
  eta_out = ulps * Real(half_smallest_subnormal(problem.dtype)) + flushed;
  output_nearest = ulps == 1 && flushed == 0;
  output_overflow = Real(largest_finite(problem.dtype));
  if (ulps == 1) output_overflow *= 1 + u_out / 2;
  u_l = ulps * Real(unit_roundoff(problem.lse_dtype()));
  if (roundings == Roundings::systematic && ulps == 1) {
    u_out = 0;
    eta_out = flushed;
  }
}

template <class Real>
void Model<Real>::set_dropout(const Problem& problem) {
  const Real dropped = Real(problem.dropout.probability), kept = 1 - dropped;
  keep_scale = 1 / kept;
  u_zeta = gamma(3 + dropped / kept, u_s);
  slack *= 1 + 4 * u_zeta;
  // dS may be rounded before it is multiplied by 1 / (1 - theta), as may be what it is made of.
  const Real overflow = ds.overflow;
  ds = ds.times(keep_scale);
  ds.overflow = overflow;
}

// How dS is rounded where it is summed to dBias, and dK and dV where they are stored in parts.
template <class Real>
void Model<Real>::set_gradients() {
  dbias = ds;
  if (declared.ds_scaled == Choice::first) {
    dbias = ds.times(std::max(Real(1), tau));
    dbias.overflow = std::min(ds.overflow, ds.overflow * tau);
  }
  const Narrow<Real> format = {u_out, eta_out};
  if (declared.rounds_dbias_terms) {  // a second time, where dS is rounded already
    dbias.roundoff += format.roundoff * (1 + dbias.roundoff);
    dbias.underflow += format.underflow;
    dbias.flushed_below += flushed;
    dbias.overflow = std::min(dbias.overflow, output_overflow);
  }
  if (declared.gradient_block > 0 || declared.rounds_head_gradients) {
    stored = format;
    stored.overflow = output_overflow;
  }
}

template <class Real>
Capped<Real> cap(const Model<Real>& model, Real x, Real x_error) {
  const Real c = model.softcap, u_s = model.u_s;
  const auto slope_at = [c](Real y) {  // 1 - tanh^2(y / c), without cancellation
    const Real decay = std::exp(-2 * std::abs(y) / c);
    return 4 * decay / ((1 + decay) * (1 + decay));
  };
  const Real t = std::tanh(x / c), size = std::abs(t);
  const Real shift =
      x_error + 5 * u_s * std::abs(x) + model.stored_scores(1, std::abs(x) + x_error, c);
  const Real steepest = slope_at(std::max(Real(0), std::abs(x) - shift));
  const Real moved = std::min(shift * steepest, c * (1 + size));
  Real error = moved * (1 + model.e_t) + (model.e_t + 3 * u_s) * c * size + model.z * (1 + c);
  error += model.stored_scores(2, c * size + error, c);
  const Real t_error = error / c + 3 * u_s * size;
  return {c * t, error, slope_at(x), t_error * (2 * size + t_error) + 4 * u_s};
}

template <class Real>
Index count_rescales(const std::vector<Real>& score, const std::vector<Real>& error) {
  const std::size_t n = score.size();
  // Of the keys so far, those that no later one is as high as, by their lows, which fall: their
  // places from 1 on. What is no number stops any search.
  struct Barrier {
    Real low;
    std::size_t place;
  };
  // Kept, because this is done for each row; what they hold of the row before is never read.
  thread_local std::vector<Barrier> barriers;
  // Of the count, from one key where a run begins to the next.
  thread_local std::vector<Index> change;
  barriers.resize(std::max(barriers.size(), n + 1));
  barriers[0] = {std::numeric_limits<Real>::quiet_NaN(), 0};
  Index most = 0;
  for (const bool upwards : {true, false}) {
    change.assign(n + 1, 0);
    std::size_t top = 0;
    for (std::size_t t = 0; t < n; ++t) {
      const std::size_t j = upwards ? t : n - 1 - t;
      const Real floor = score[j] - error[j], ceiling = score[j] + error[j];
      while (barriers[top].low <= floor) --top;
      std::size_t barrier = top;
      while (barriers[barrier].low < ceiling) --barrier;
      // The key may raise the maximum of every run that begins after the last low it cannot exceed.
      ++change[barriers[barrier].place];
      --change[t];
      barriers[++top] = {floor, t + 1};
    }
    Index count = 0;
    for (const Index step : change) most = std::max(most, count += step);
  }
  return most;
}

template <class Real>
void complete_row(const Model<Real>& model, Row<Real>& row) {
  const Arithmetic& declared = model.declared;
  // Steps of a matrix unit lie side by side, unless blocks come in any order.
  const Index span = declared.any_block_order ? 4 * row.n : row.span;
  Real roundings = steps<Real>(declared.pv, row.n, span) + Real(row.R + 8);
  if (row.has_sink) roundings += 8;         // a term and a block more
  if (model.stores_values) roundings += 2;  // a scale, before P or after the sums
  if (model.u_zeta > 0) roundings += 2;     // the product with what is kept, of P or of V
  if (declared.rescales_output) {
    const Index block = declared.key_block > 0 ? declared.key_block : 16;
    roundings += Real(4 * std::min(row.n, row.span / block + 2));
  }
  row.h = roundings;
  const Real u = model.u_at_least_s(declared.pv);
  row.G = Model<Real>::G(declared.pv, roundings, u);
  row.G_sum = gamma(roundings, u);
  if (row.exact) {  // but for the reference's own, and for merging parts that are
    row.G = row.G_sum = gamma(Real(row.n + 8), model.u_ref);
    if (declared.kv_splits > 1) {
      row.G = row.G_sum += gamma(Real(std::min(declared.kv_splits, row.n) + 12), u);
    }
  }
  if (row.overflows || std::abs(row.m) >= model.score_overflow) {  // it admits anything
    row.G = row.G_sum = std::numeric_limits<Real>::infinity();
  }
  const Real terms = Real(row.terms());
  const Real entropy = std::log(terms + 1) + model.m_lambda;
  row.split = row.G_sum + model.u_s * (6 * entropy + 4) + 2 * model.e_x;
  row.W = 0;
  if (declared.kv_splits != 1 && terms > 1) {
    row.W = E(row.G_sum + 2 * model.e_x + model.u_s * (5 * std::abs(row.L) + 9 * entropy + 4));
  }
  // The largest weight is e^0, or what else exp(0) and the running maximum make of it.
  row.w_m = model.w_m;
  if (declared.exp_zero_inexact) row.w_m *= std::exp(-model.e_x * Real(1 + row.R));
  row.p = model.p;
  if (declared.p_normalised == Choice::last) {
    row.p = model.p.times(1 / (row.l * row.w_m));
  } else if (declared.p_normalised == Choice::either && row.w_m < 1) {
    row.p = model.p.times(1 / row.w_m);
  }
  if (row.exact) row.p = {};
}

#define ATTEST_BOUND_FOR(Real)                                                                   \
  template struct Model<Real>;                                                                   \
  template Capped<Real> cap(const Model<Real>& model, Real x, Real x_error);                     \
  template Index count_rescales(const std::vector<Real>& score, const std::vector<Real>& error); \
  template void complete_row(const Model<Real>& model, Row<Real>& row);
ATTEST_BOUND_FOR(double)
ATTEST_BOUND_FOR(long double)
#undef ATTEST_BOUND_FOR

}  // namespace attest::bound
