// Reads top down: the keys of a row and their scores, the softmax, O, and back to dS.
#include "reference/statistical/row.h"

#include <algorithm>
#include <cmath>

namespace attest::bound::statistical {

const double* channels_of(const Values& values, Place place, Index h) {
  return values.data.data() + dense_index(values.shape, place.batch, h, place.position, 0);
}

Channels row_of(const Values& values, Place place, Index h) {
  const double* first = channels_of(values, place, h);
  return {first, first + values.shape[kChannel]};
}

double noise_of_sum(const Product& product, double roundings, double size) {
  const double u = product.truncates ? 0 : product.accumulator_roundoff;
  return roundings * square(u * size);
}

// ---- Scores -------------------------------------------------------------------------------------

// The softcap of a score whose products add up to `size` in magnitude.
void Noise::cap(Key& key, double size) const {
  // At most: where the slope vanishes, its own error is all that is left of it.
  double error = model_.score_share * model_.tau * size + model_.score_absolute;
  error += stored_product(model_, key.s, error);
  const auto capped = bound::cap(model_, key.s, error);
  key.s = capped.score;
  key.g = capped.slope + capped.slope_error;
  key.g_prime = 2 * std::abs(key.s) * key.g / square(p_.softcap);
}

// The keys that a row sees, with their scores.
std::vector<Key> Noise::keys(Index b, Index h, Index i) const {
  std::vector<Key> seen;
  const Channels q = row_of(in_.q, p_.query_place(b, i), h);
  const Lengths lengths = p_.lengths(b);
  Position position = {.batch = b, .head = h, .query = i};
  for (Index j = 0; j < lengths.key; ++j) {
    position.key = j;
    if (!visible(p_, position)) continue;
    const double bias =
        p_.bias_shape ? in_.bias.data[broadcast_index(*p_.bias_shape, position)] : 0;
    if (std::isinf(bias)) continue;
    const Place place = p_.key_place(b, j);
    const double* k = channels_of(in_.k, place, h / p_.group_size());
    double dot = 0, size = 0;
    for (std::size_t c = 0; c < q.size(); ++c) {
      const double product = q[c] * k[c];
      dot += product;
      size += std::abs(product);
    }
    const double variance = noise_of_sum(a_.qk, double(p_.head_dim), size);
    Key key = {.j = j,
               .place = place,
               .s = p_.scale * dot,
               .g = 1,
               .g_prime = 0,
               .sigma_s = std::abs(p_.scale) * std::sqrt(variance)};
    if (p_.softcap > 0) cap(key, size);
    key.s += bias;
    if (p_.slopes_shape) {
      key.s -= in_.slopes.data[broadcast_index(*p_.slopes_shape, {.batch = b, .head = h})] *
               double(std::abs(i + lengths.key - lengths.query - j));
    }
    if (p_.dropout.mode != Dropout::Mode::none) {
      key.zeta = in_.keep.at(position) ? 1 / (1 - p_.dropout.probability) : 0;
    }
    seen.push_back(key);
  }
  return seen;
}

// ---- Forward ------------------------------------------------------------------------------------

// P, L, and how sums are rounded.
void Noise::weigh(Forward& of_row, Index b, Index h) const {
  Row<double>& row = of_row.row;
  std::vector<Key>& keys = of_row.keys;
  row.n = Index(keys.size());
  row.key_len = p_.lengths(b).key;
  row.span = keys.back().j - keys.front().j + 1;
  row.has_sink = p_.sink;
  row.s_z = p_.sink ? in_.sink.data[at(h)] : 0;
  row.m = p_.sink ? row.s_z : keys[0].s;
  for (const Key& key : keys) row.m = std::max(row.m, key.s);
  row.l = of_row.p_z = p_.sink ? std::exp(row.s_z - row.m) : 0;
  for (Key& key : keys) row.l += key.p = std::exp(key.s - row.m);
  for (Key& key : keys) key.p /= row.l;
  of_row.p_z /= row.l;
  row.L = row.m + std::log(row.l);
  row.R = most_rescales(model_, row) + (p_.sink ? 1 : 0);
  complete_row(model_, row);
}

void Noise::set_sigma_l(Forward& row) const {
  row.of_row_sum = row.row.h * square(std::max(a_.pv.truncates ? 0 : a_.pv.accumulator_roundoff,
                                               a_.softmax_roundoff));
  double variance = row.of_row_sum;
  for (const Key& key : row.keys) {
    variance += square(key.p * key.g * key.sigma_s);
    if (a_.sums_rounded_p) variance += square(row.row.p.rho(key.p, key.p));
  }
  row.sigma_l = std::sqrt(variance);
}

void Noise::set_o(Forward& row) const {
  const std::size_t channels = row.o.size();
  Channels size(channels, 0.0), variance = size;
  for (std::size_t t = 0; t < row.keys.size(); ++t) {
    const double weight = row.keys[t].p * row.keys[t].zeta;
    for (std::size_t c = 0; c < channels; ++c) {
      const double share = weight * row.v[t][c];
      row.o[c] += share;
      size[c] += std::abs(share);
    }
  }
  // Where the row sum is over the rounded P, dropout may be between the two.
  const bool sums_rounded = a_.sums_rounded_p;
  const bool shared = sums_rounded && p_.dropout.mode == Dropout::Mode::none;
  for (std::size_t t = 0; t < row.keys.size(); ++t) {
    const Key& key = row.keys[t];
    const double pi = row.row.p.rho(key.p, key.p);
    for (std::size_t c = 0; c < channels; ++c) {
      const double v = key.zeta * row.v[t][c];
      variance[c] += square(key.p * (v - row.o[c]) * key.g * key.sigma_s) +
                     square(pi * (shared ? v - row.o[c] : v)) +
                     (sums_rounded && !shared ? square(pi * (v - row.o[c])) : 0);
    }
  }
  for (std::size_t c = 0; c < channels; ++c) {
    row.of_sum[c] = noise_of_sum(a_.pv, row.row.h, size[c]);
    variance[c] += row.of_sum[c] + row.of_row_sum * square(row.o[c]);
    row.sigma_o[c] = std::sqrt(variance[c]);
  }
}

Forward Noise::forward(Index b, Index h, Index i) const {
  Forward row;
  row.keys = keys(b, h, i);
  row.o = row.sigma_o = row.of_sum = Channels(at(p_.value_dim), 0.0);
  if (row.keys.empty()) {
    if (p_.sink) row.p_z = 1;
    return row;
  }
  weigh(row, b, h);
  set_sigma_l(row);
  for (const Key& key : row.keys) {
    row.v.push_back(channels_of(in_.v, key.place, h / p_.group_size()));
  }
  set_o(row);
  return row;
}

// ---- Backward -----------------------------------------------------------------------------------

// dP and sigma_dP of each key.
void Noise::set_dp(Forward& row, const Channels& d_o) const {
  for (std::size_t t = 0; t < row.keys.size(); ++t) {
    Key& key = row.keys[t];
    double size = 0;
    for (std::size_t c = 0; c < d_o.size(); ++c) {
      const double share = d_o[c] * row.v[t][c];
      key.dp += key.zeta * share;
      size += std::abs(share);
    }
    key.sigma_dp = key.zeta * std::sqrt(noise_of_sum(a_.dp, double(p_.value_dim), size));
  }
}

// Of D as sum dO O, where the errors of O's channels come of the same scores and the same P; and as
// sum P dP.
double Noise::sigma_d(const Forward& row, const Channels& d_o, double d) const {
  double by_channel = 0, d_size = 0, by_key = 0, by_key_size = 0;
  for (std::size_t c = 0; c < d_o.size() && !row.keys.empty(); ++c) {
    const double rounding = model_.u_out * std::abs(row.o[c]) + model_.eta_out;
    by_channel += square(d_o[c]) * (row.of_sum[c] + square(rounding));
    d_size += std::abs(d_o[c] * row.o[c]);
  }
  const double u = std::max(a_.dp.truncates ? 0 : a_.dp.accumulator_roundoff, a_.softmax_roundoff);
  by_channel += row.of_row_sum * square(d) + double(p_.value_dim) * square(u * d_size);
  for (const Key& key : row.keys) {
    const double pi = row.row.p.rho(key.p, key.p), psi = model_.p.rho(key.p, key.p);
    by_channel += square(key.p * (key.dp - d) * key.g * key.sigma_s) + square(pi * key.dp);
    by_key += square(key.dp) * (square(key.p * key.g * key.sigma_s) + square(psi)) +
              square(key.p * key.sigma_dp);
    by_key_size += key.p * std::abs(key.dp);
  }
  by_key += double(row.keys.size()) * square(u * by_key_size);
  return std::max(std::sqrt(by_channel), std::sqrt(by_key) + std::abs(d) * row.sigma_l);
}

// dS and sigma_j of a key.
void Noise::add_ds(const Key& key, double d, double lambda, Backward& to) const {
  const double x = key.dp - d + lambda, psi = model_.p.rho(key.p, key.p);
  const double rounded_p = a_.ds_from_p == Choice::first ? 0 : psi;
  const double ds = key.p * x, size = std::abs(ds);
  to.ds.push_back(ds);
  to.ds_g.push_back(ds * key.g);
  const double others = square(key.p * key.sigma_dp) + square(rounded_p * x);
  to.sigma.push_back(
      std::sqrt(square(ds * key.g * key.sigma_s) + others + square(model_.dbias.rho(size, size))));
  to.sigma_g.push_back(std::sqrt(square(ds * (square(key.g) + key.g_prime) * key.sigma_s) +
                                 others * square(key.g) +
                                 square(model_.ds.rho(size * key.g, size * key.g))));
  to.sigma_p.push_back(std::sqrt(square(key.p * (key.g * key.sigma_s + to.sigma_l)) + square(psi)));
}

Backward Noise::backward(Forward& row, Index b, Index h, Index i) const {
  const Place place = p_.query_place(b, i);
  const Channels d_o = row_of(in_.d_o, place, h);
  const double lambda = p_.d_lse ? in_.d_lse.at(place.batch, h, place.position, 0) : 0;
  double d = 0;
  for (std::size_t c = 0; c < d_o.size() && !row.keys.empty(); ++c) d += d_o[c] * row.o[c];
  set_dp(row, d_o);
  Backward out = {.sigma_l = row.sigma_l, .sigma_d = sigma_d(row, d_o, d)};
  for (const Key& key : row.keys) add_ds(key, d, lambda, out);
  out.dsink = row.p_z * (lambda - d);
  out.sigma_dsink = std::abs(out.dsink) * out.sigma_l + row.p_z * out.sigma_d;
  return out;
}

}  // namespace attest::bound::statistical
