#include "reference/coarse/row.h"

#include <algorithm>
#include <cmath>

namespace attest::bound::coarse {

// ---- All keys of a head -------------------------------------------------------------------------

namespace {

template <class PlaceOf>
Extent extent_of(const Values& values, Index h, Index count, const PlaceOf& place, double tiny) {
  const Index channels = values.shape[kChannel];
  Extent extent = {.size = std::vector<double>(at(channels)),
                   .small = std::vector<double>(at(channels)),
                   .spread = std::vector<double>(at(channels)),
                   .sizes = SumsAbove(count, channels)};
  std::vector<double> low(at(channels), kInfinity), high(at(channels), -kInfinity);
  for (Index j = 0; j < count; ++j) {
    const Channels row(values, place(j), h);
    double square = 0, sum = 0;
    for (Index c = 0; c < channels; ++c) {
      const double x = row[c], size = std::abs(x), flushed = small_part(x, tiny);
      square += x * x;
      sum += size;
      extent.sizes.add(j, c, size);
      extent.size[at(c)] = std::max(extent.size[at(c)], size);
      extent.small[at(c)] = std::max(extent.small[at(c)], flushed);
      low[at(c)] = std::min(low[at(c)], x);
      high[at(c)] = std::max(high[at(c)], x);
    }
    // Squares of small numbers may vanish, and those of large ones overflow.
    const double norm = square > 0x1p-900 ? std::sqrt(square) : sum;
    extent.norm = std::max(extent.norm, norm);
    extent.sum = std::max(extent.sum, sum);
  }
  extent.sizes.run();
  for (Index c = 0; count > 0 && c < channels; ++c) extent.spread[at(c)] = high[at(c)] - low[at(c)];
  return extent;
}

// At least |sum_c x_c y_jc|, and the sum of the magnitudes, for all rows j of y.
double largest_product(const Channels& x, const Extent& y) {
  double by_channel = 0, square = 0, sum = 0;
  for (Index c = 0; c < x.count; ++c) {
    by_channel += std::abs(x[c]) * y.size[at(c)];
    square += x[c] * x[c];
    sum += std::abs(x[c]);
  }
  const double norm = square > 0x1p-900 ? std::sqrt(square) : sum;
  return std::min(by_channel, norm * y.norm) * kUp;
}

}  // namespace

KeyHead key_head(const Problem& p, const Inputs& in, const Model<double>& model, Index b, Index h) {
  const Index keys = p.lengths(b).key;
  const auto place = [&](Index j) { return p.key_place(b, j); };
  KeyHead head = {.keys = keys,
                  .k = extent_of(in.k, h, keys, place, model.tiny_score),
                  .v = extent_of(in.v, h, keys, place, model.tiny)};
  std::vector<double> sum(at(p.value_dim));
  for (Index j = 0; j < keys && head.small_integers; ++j) {
    const Channels row(in.v, place(j), h);
    for (Index c = 0; c < p.value_dim; ++c) {
      const double size = std::abs(row[c]);
      sum[at(c)] += size;
      head.small_integers &= size == std::floor(size) && sum[at(c)] < 0x1p24;
    }
  }
  return head;
}

// ---- One row ------------------------------------------------------------------------------------

namespace {

// rho at most, of shares that add up to `p` over `keys` keys.
double narrowed(const Narrow<double>& to, double p, double keys) {
  const double each = std::max(to.underflow, to.flushed_below);
  return to.roundoff * p + std::min(keys * each, p);
}

}  // namespace

Weighed weigh(const RowBounds& row, const Extent& x, Index c) {
  const double most = x.size[at(c)], any = static_cast<double>(row.n) * most;
  const double all = row.sight.known ? std::min(any, x.sizes.over(row.sight.keys, c)) : any;
  return {std::min(most, row.p_hat * all), all};
}

RowBounds bound_row(const Model<double>& model, const Channels& q, const KeyHead& head,
                    const Sight& sight) {
  RowBounds row;
  row.sight = sight;
  row.n = row.span = sight.keys.size();
  row.key_len = head.keys;
  const double products = largest_product(q, head.k) * kUp;
  row.size = model.tau * products * kUp;
  double q_sum = 0, q_small = 0, q_most = 0;
  for (Index c = 0; c < q.count; ++c) {
    q_sum += std::abs(q[c]);
    q_small += small_part(q[c], model.tiny_score) * head.k.size[at(c)];
    q_most += std::abs(q[c]) * head.k.small[at(c)];
  }
  row.overflows = may_overflow(model, products) ||
                  model.tau * std::max(q_sum, head.k.sum) >= model.score_overflow;
  row.eps = model.score_share * row.size + model.score_absolute +
            model.score_operand * (q_sum + head.k.sum) + model.tau * (q_small + q_most);
  row.eps += stored_product(model, row.size, row.eps);
  row.m = row.size;
  const double most_keys = static_cast<double>(row.n);
  const double least_sum = std::max(1.0, (sight.known ? most_keys : 1) * std::exp(-2 * row.size));
  row.l = least_sum / kUp;
  row.L = row.size + std::log(most_keys) * kUp;
  row.p_hat = std::min(1.0, kUp / least_sum);
  row.R = most_rescales(model, row);
  row.exact = row.size == 0 && model.adds_exactly() && head.small_integers;
  complete_row(model, row);
  // The score that is farthest below the maximum.
  const double largest =
      row.exact ? exact_kappa(model, row) : kappa(model, row, -row.size, row.eps);
  row.U = U_of(model, row);
  row.Y = E(largest);
  // What P loses where it is rounded, of all keys, may be part of the row sum as well.
  if (model.declared.sums_rounded_p) row.Y += narrowed(row.p, 1 + row.Y, most_keys);
  row.den = row.Y + row.G_sum * (1 + row.Y) + row.U * most_keys;
  const Large<double> large = large_errors(model, row);
  const double moved = error_of_log_l(row, large, largest);
  if (model.declared.kv_splits == 1 && large.G < 0.5 &&
      row.size <= softmax_2_limit<double>(model.declared.dtype)) {
    row.hull_share = beyond_hull(row, large);
  }
  row.lse_bound = (moved + model.u_s * (8 * (std::log(most_keys) + model.m_lambda) +
                                        5 * (row.size + model.m_lambda) + std::abs(row.L) + 2)) *
                      kSlack * kUp +
                  model.flushed_lse;
  const ErrorsOfLse<double> errors = stored_lse<double>(model, row, row.lse_bound, largest);
  const double up = model.declared.lse == LseForm{} ? 1 : kUp;
  row.lse_bound = errors.judged * up;
  row.lse_error = errors.read * up;
  return row;
}

double bound_of_o(const Model<double>& model, const RowBounds& row, const Extent& v, Index c) {
  const double n = static_cast<double>(row.n);
  const auto [size, all] = weigh(row, v, c);  // |O| is at most its size, too
  const double flushed_v = v.small[at(c)] * (1 + row.Y);
  const double rest = row.U * (2 * n + 8);
  // sum p |v - O| is at most half of the range of v.
  const auto by_share = [&, size = size, all = all](double common, double den) {
    const double unshared = 2 * (1 + common) * size * row.G +
                            narrowed(row.p, (1 + common) * size, all) * (1 + row.G) + all * row.U;
    return (common * v.spread[at(c)] / 2 + unshared + flushed_v + rest) / (1 - den);
  };
  double bound = row.den < 1 ? by_share(row.Y, row.den) : kInfinity;
  if (all * std::exp(model.m_lambda) >= model.sum_overflow) return kInfinity;
  if (row.den > 0.25) {
    // B takes the hull where its own den exceeds 1/4, and the sum of shares where it does not.
    const double hull = v.spread[at(c)] + row.hull_share * v.size[at(c)] + flushed_v + rest;
    bound = std::min(bound, std::max(hull, by_share(std::min(row.Y, 0.25), 0.25)));
  }
  return (bound + (3 * model.u_s + row.W) * (size + bound)) * model.slack * kUp + model.flushed;
}

// ---- Backward -----------------------------------------------------------------------------------

RowGradients::Weights RowGradients::of(double p, double keys) const {
  const double most = p * (1 + r), narrow = narrowed(model.p, most, keys);
  const bool rounded_p = model.declared.ds_from_p != Choice::first;
  Weights w = {};
  w.p = p;
  w.p_error = p * r + narrow + keys * model.z;
  w.ds = p * X;
  w.e = most * x + p * r * X + (keys * model.z + (rounded_p ? narrow : 0)) * (X + x + E_D) +
        2 * keys * model.z;
  w.f = w.e + most * E_D;
  w.t = overflows ? kInfinity : narrowed(model.ds, w.ds + w.f, keys);
  return w;
}

RowGradients bound_gradients(const Problem& p, const Model<double>& model, const RowBounds& row,
                             const KeyHead& head, const Channels& d_o, double d_lse) {
  const Arithmetic& declared = model.declared;
  const double n = static_cast<double>(row.n);
  RowGradients out = {.model = model, .row = row};
  // B_L and the rounding of L; the exponent s - L is farthest from 0 for the least score.
  out.r = E(kappa_prime(model, row.L, -row.size, row.eps) + row.lse_error) * kUp;

  // |dP_j| at most, and the sum of p_j |dP_j|, which |D| does not exceed either.
  const double dp = largest_product(d_o, head.v);
  double mean_dp = 0, ranges = 0, flushed = 0, by_channel = 0;
  const double u = model.u_at_least_s(declared.dp);
  const double g = gamma(static_cast<double>(d_o.count + 2), u);
  for (Index c = 0; c < d_o.count; ++c) {
    const double weight = std::abs(d_o[c]), small = small_part(d_o[c], model.tiny);
    const double size = weigh(row, head.v, c).by_share, bound = bound_of_o(model, row, head.v, c);
    mean_dp += weight * size;
    ranges += weight * head.v.spread[at(c)];
    flushed += weight * head.v.small[at(c)] + small * head.v.size[at(c)];
    const double error = bound + model.u_out * (size + bound) + model.eta_out;
    if (!(size + bound < model.output_overflow)) by_channel = kInfinity;
    by_channel += weight * ((1 + g) * error + g * size) + model.z;
    if (model.tiny > 0) by_channel += weight * std::min(size + error, model.tiny);
    by_channel += small * (size + error);
  }
  mean_dp = std::min(dp, mean_dp * kUp);
  out.xi = model.dp_share * dp + model.z * static_cast<double>(d_o.count) + flushed;
  out.X = std::min(dp + mean_dp, ranges * kUp) + std::abs(d_lse);

  const double most = 1 + out.r;
  const bool rounded_p = declared.ds_from_p != Choice::first;
  const double g_keys = gamma(steps<double>(declared.dp, row.n, row.span) + 8, u);
  const double size = mean_dp + out.xi, sizes = n * (dp + out.xi);
  const double p_errors =
      out.r * size + model.z * sizes + (rounded_p ? narrowed(model.p, most * size, sizes) : 0);
  const double by_key = (p_errors + out.xi + n * model.z) * (1 + g_keys) + mean_dp * g_keys;
  out.E_D = std::max(by_channel, by_key) + (p.d_lse ? model.z : 0);
  const double x_roundoff = model.u_s * (p.d_lse ? 4 : 3);
  out.x = out.xi + x_roundoff * (dp + mean_dp + std::abs(d_lse));
  const RowGradients::Weights one = out.of(row.p_hat, 1);
  const double larger_tau = std::max(1.0, model.tau);
  out.overflows = !(one.ds + one.f < model.ds.overflow) ||
                  !(std::max(dp, larger_tau * out.X) < model.sum_overflow) ||
                  !(by_channel < model.sum_overflow);
  return out;
}

}  // namespace attest::bound::coarse
