#include "reference/bound.h"

namespace attest::working {
namespace {

template <class Real>
Narrow<Real> narrow(const Narrowing& to, bool flushes) {
  if (to.roundoff == 0) return {};
  // Half the smallest subnormal over the roundoff is the smallest normal number of the format.
  return {Real(to.roundoff), Real(to.underflow),
          flushes ? Real(to.underflow / to.roundoff) : Real(0)};
}

}  // namespace

template <class Real>
Model<Real>::Model(const Problem& problem, const Arithmetic& arithmetic)
    : declared(arithmetic),
      u_ref(std::numeric_limits<Real>::epsilon() / 2),
      u_s(Real(arithmetic.softmax_roundoff) + u_ref),
      e_x(Real(arithmetic.exp_error) + 4 * u_ref),
      z(smallest_normal(problem.lse_dtype())),
      tau(std::abs(Real(problem.scale))) {
  const Real larger_tau = std::max(Real(1), tau), smaller_tau = std::min(Real(1), tau);
  // Two more roundings: q, or q and k, may be scaled before the product.
  score_share =
      share(declared.qk, sum_roundings<Real>(declared.qk, problem.head_dim, problem.head_dim)) +
      2 * u_s;
  dp_share =
      share(declared.dp, sum_roundings<Real>(declared.dp, problem.value_dim, problem.value_dim));
  score_absolute = z * larger_tau * Real(problem.head_dim);
  score_operand = z * larger_tau * Real(2 * unit_roundoff(problem.lse_dtype()));

  const bool flushes = declared.flushes_inputs || declared.flushes_outputs;
  p = narrow<Real>(declared.p, flushes);
  ds = narrow<Real>(declared.ds, flushes);
  // Rounding to f16 overflows where f32, in which dS was computed, does not. P never exceeds 1.
  const Real f16_overflow = 0x1.ffep15;
  if (ds.roundoff > 0 && problem.dtype == DType::f16) ds.overflow = f16_overflow;
  // What is kept `scale` times as large when it is rounded loses 1 / scale times as much.
  if (declared.ds_scaled == Choice::first) {
    ds = ds.times(1 / tau);
  } else if (declared.ds_scaled == Choice::either) {
    ds = ds.times(1 / smaller_tau);
    if (std::isfinite(ds.overflow)) ds.overflow = f16_overflow / larger_tau;
  }

  tiny = declared.flushes_inputs ? Real(smallest_normal(problem.dtype)) : Real(0);
  tiny_score = declared.flushes_outputs ? std::max(tiny, z / smaller_tau) : tiny;
  flushed = declared.flushes_outputs ? Real(smallest_normal(problem.dtype)) : Real(0);
  flushed_lse = declared.flushes_outputs ? z : Real(0);

  const Real ulps = declared.output_rounding == Rounding::nearest ? 1 : 2;  // in half units
  output_roundoff = ulps * Real(unit_roundoff(problem.dtype));
  output_underflow = ulps * Real(half_smallest_subnormal(problem.dtype)) + flushed;
  lse_roundoff = ulps * Real(unit_roundoff(problem.lse_dtype()));
}

template <class Real>
Index count_rescales(const std::vector<Real>& score, const std::vector<Real>& error) {
  const auto n = score.size();
  // The lows that no later low reaches, falling, and the positions that follow them. How many of a
  // few exceed a number is faster counted than searched: searching mispredicts branches.
  std::vector<Real> low(n);
  std::vector<std::size_t> next(n);
  const auto count_of = [&low](std::size_t size, const auto& exceeds) {
    if (size > 24) {
      const auto end = low.begin() + static_cast<std::ptrdiff_t>(size);
      return static_cast<std::size_t>(std::partition_point(low.begin(), end, exceeds) -
                                      low.begin());
    }
    std::size_t count = 0;
    for (std::size_t e = 0; e < size; ++e) count += exceeds(low[e]);
    return count;
  };
  std::vector<Index> change(n);  // of the count, from one key where a run begins to the next
  Index most = 0;
  for (const bool upwards : {true, false}) {
    std::size_t size = 0;
    std::fill(change.begin(), change.end(), 0);
    for (std::size_t t = 0; t < n; ++t) {
      const std::size_t j = upwards ? t : n - 1 - t;
      const Real floor = score[j] - error[j], ceiling = score[j] + error[j];
      // The key may raise the maximum of every run that begins after the last low it cannot exceed.
      const std::size_t barriers = count_of(size, [=](Real each) { return each >= ceiling; });
      ++change[barriers == 0 ? 0 : next[barriers - 1]];
      --change[t];
      size = count_of(size, [=](Real each) { return each > floor; });
      low[size] = floor;
      next[size++] = t + 1;
    }
    Index count = 0;
    for (const Index step : change) most = std::max(most, count += step);
  }
  return most;
}

template <class Real>
void complete_row(const Model<Real>& model, Row<Real>& row) {
  const Arithmetic& declared = model.declared;
  Real roundings = sum_roundings<Real>(declared.pv, row.keys, row.span) + Real(row.rescales + 8);
  if (declared.rescales_output) {
    const Index block = declared.key_block > 0 ? declared.key_block : 16;
    roundings += Real(4 * std::min(row.keys, row.span / block + 2));
  }
  const Real u = std::max(model.u(declared.pv), model.u_s);
  row.g = Model<Real>::share(declared.pv, roundings, u);
  row.g_sum = gamma(roundings, u);
  row.split = row.g_sum + model.u_s * (6 * std::log(Real(row.keys + 1)) + 4) + 2 * model.e_x;
  row.p = declared.p_normalised == Choice::last ? model.p.times(1 / row.sum) : model.p;
}

#define ATTEST_BOUND_FOR(Real)                                                                   \
  template struct Model<Real>;                                                                   \
  template Index count_rescales(const std::vector<Real>& score, const std::vector<Real>& error); \
  template void complete_row(const Model<Real>& model, Row<Real>& row);
ATTEST_BOUND_FOR(double)
ATTEST_BOUND_FOR(long double)
#undef ATTEST_BOUND_FOR

}  // namespace attest::working
