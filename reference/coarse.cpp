// Reads top down: what is known of all keys of a head, then of one row forward, then backward, then
// the loops. The symbols are those of NUMERICS.md; each sum over keys there is replaced by what it
// comes to at most if the shares p of its keys add up to a given number.
#include "reference/coarse.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/bound.h"
#include "reference/reach.h"

namespace attest {
namespace working {
namespace {

// More than the sums of magnitudes here may be rounded down.
constexpr double kUp = 1 + 0x1p-20;

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

bool is_covered(const Problem& p, const Inputs& in) {
  if (p.softcap != 0 || p.bias_shape || p.slopes_shape || p.sink) return false;
  if (p.dropout.mode != Dropout::Mode::none) return false;
  for (const Values* values : {&in.q, &in.k, &in.v, &in.d_o, &in.d_lse}) {
    if (!std::all_of(values->data.begin(), values->data.end(),
                     [](double x) { return std::isfinite(x); })) {
      return false;
    }
  }
  return true;
}

// The channels of a row.
struct Channels {
  const double* data;
  Index count;

  Channels(const Values& values, Place place, Index h)
      : data(values.data.data() + dense_index(values.shape, place.batch, h, place.position, 0)),
        count(values.shape[kChannel]) {}
  double operator[](Index c) const { return data[c]; }
};

double small_part(double x, double tiny) { return std::abs(x) < tiny ? std::abs(x) : 0; }

// Sums of each channel over neighbouring rows or keys: at least.
class SumsAbove {
 public:
  SumsAbove(Index rows, Index channels) : rows_(rows), sums_(rows, channels) {}

  void add(Index row, Index c, double term) { sums_.add(row, c, term); }
  void run() { sums_.run(); }
  double over(const Reach& rows, Index c) const {
    if (rows.size() == 0) return 0;
    const double whole = sums_.before(rows.end, c);
    if (!(whole < kInfinity)) return kInfinity;
    // Both were rounded once for each row.
    return whole - sums_.before(rows.begin, c) + 0x1p-51 * static_cast<double>(rows_) * whole;
  }

 private:
  Index rows_;
  RunningSums<double> sums_;
};

// ---- All keys of a head -------------------------------------------------------------------------

// The largest of each channel, and of each row as a whole.
struct Extent {
  std::vector<double> size, small;  // of |x|, and of those that may be flushed
  std::vector<double> spread;       // the largest x less the smallest
  double norm = 0, sum = 0;
  SumsAbove sizes;  // of |x|, over keys
};

struct KeyHead {
  Index keys;
  Extent k, v;
  bool small_integers = true;  // as in working/pack.h
};

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

// ---- One row ------------------------------------------------------------------------------------

// Which keys a row sees; unless that is known, any number of those of the reach.
struct Sight {
  Reach keys;
  bool known = false;
};

struct RowBounds : Row<double> {
  Sight sight;
  double size = 0;         // of scores: |s_j|, a_j and |m| are at most this
  double score_error = 0;  // epsilon_j
  double largest_p = 1;    // of a single key
  double common = 0;       // sum p_j expm1(kappa_j)
  double reach = kInfinity;
  double underflow = 0;
  double lse_bound = 0;
};

// Of one channel of all keys that a row sees: the sums of p |x| and of |x|.
struct Weighed {
  double by_share, all;
};
Weighed weigh(const RowBounds& row, const Extent& x, Index c) {
  const double most = x.size[at(c)], any = static_cast<double>(row.keys) * most;
  const double all = row.sight.known ? std::min(any, x.sizes.over(row.sight.keys, c)) : any;
  return {std::min(most, row.largest_p * all), all};
}

// rho at most, of shares that add up to `p` over `keys` keys.
double narrowed(const Narrow<double>& to, double p, double keys) {
  const double each = std::max(to.underflow, to.flushed_below);
  return to.roundoff * p + std::min(keys * each, p);
}

RowBounds bound_row(const Model<double>& model, const Channels& q, const KeyHead& head,
                    const Sight& sight) {
  RowBounds row;
  row.sight = sight;
  row.keys = row.span = sight.keys.size();
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
  row.score_error = model.score_share * row.size + model.score_absolute +
                    model.score_operand * (q_sum + head.k.sum) + model.tau * (q_small + q_most);
  row.m = row.size;
  const double most_keys = static_cast<double>(row.keys);
  const double least_sum = std::max(1.0, (sight.known ? most_keys : 1) * std::exp(-2 * row.size));
  row.sum = least_sum / kUp;
  row.lse = row.size + std::log(most_keys) * kUp;
  row.largest_p = std::min(1.0, kUp / least_sum);
  row.rescales = most_rescales(model, row);
  row.exact = row.size == 0 && model.adds_exactly() && head.small_integers;
  complete_row(model, row);
  // The score that is farthest below the maximum.
  const double largest =
      row.exact ? exact_kappa(model, row) : kappa(model, row, -row.size, row.score_error);
  row.underflow = underflow_of(model, row);
  row.common = expm1_above(largest);
  const double rounded = model.p.roundoff + most_keys *
                                                std::max(model.p.underflow, model.p.flushed_below) /
                                                row.least_weight;
  const bool sums_rounded = model.declared.sums_rounded_p;
  // What P loses where it is rounded, of all keys, is then part of the row sum as well.
  if (sums_rounded) row.common += narrowed(row.p, 1 + row.common, most_keys);
  row.den = row.common + row.gamma_h * (1 + row.common) + row.underflow * most_keys;
  const double unshared =
      row.gamma_h + row.underflow * most_keys * 0x1p60 + (sums_rounded ? rounded : 0);
  const double lost = std::min(row.den < 1 ? -std::log1p(-row.den) : kInfinity,
                               unshared < 1 ? largest - std::log1p(-unshared) : kInfinity);
  if (model.declared.kv_splits == 1 && unshared < 0.5 &&
      row.size <= softmax_2_limit<double>(model.declared.dtype)) {
    row.reach = (row.g_pv + rounded * (1 + row.g_pv) + 2 * unshared) / (1 - unshared);
  }
  row.lse_bound = (lost + model.u_s * (8 * (std::log(most_keys) + model.lag) +
                                       5 * (row.size + model.lag) + std::abs(row.lse) + 2)) *
                      kSlack * kUp +
                  model.flushed_lse;
  return row;
}

// B_O of a channel.
double bound_of_o(const Model<double>& model, const RowBounds& row, const Extent& v, Index c) {
  const double n = static_cast<double>(row.keys);
  const auto [size, all] = weigh(row, v, c);  // |O| is at most its size, too
  const double flushed_v = v.small[at(c)] * (1 + row.common);
  const double rest = row.underflow * (2 * n + 8);
  // sum p |v - O| is at most half of the range of v.
  const auto by_share = [&, size = size, all = all](double common, double den) {
    const double far = 2 * (1 + common) * size * row.g_pv +
                       narrowed(row.p, (1 + common) * size, all) * (1 + row.g_pv) +
                       all * row.underflow;
    return (common * v.spread[at(c)] / 2 + far + flushed_v + rest) / (1 - den);
  };
  double bound = row.den < 1 ? by_share(row.common, row.den) : kInfinity;
  if (all * std::exp(model.lag) >= model.sum_overflow) return kInfinity;
  if (row.den > 0.25) {
    // B takes the hull where its own den exceeds 1/4, and the sum of shares where it does not.
    const double hull = v.spread[at(c)] + row.reach * v.size[at(c)] + flushed_v + rest;
    bound = std::min(bound, std::max(hull, by_share(std::min(row.common, 0.25), 0.25)));
  }
  return (bound + (3 * model.u_s + row.merged) * (size + bound)) * model.slack * kUp +
         model.flushed;
}

// ---- Backward -----------------------------------------------------------------------------------

// The row's part in the bounds of gradients.
struct RowGradients {
  const Model<double>& model;
  const RowBounds& row;
  double growth = 0;    // r
  double dp_error = 0;  // xi
  double x = 0;         // |X_ij| at most
  double x_error = 0;
  double d_error = 0;      // E_D
  bool overflows = false;  // dS, as it is rounded

  // Of `keys` keys whose shares add up to `p`: the sums over them of |dS|, of the errors of P and
  // of dS, and of what rounds dS. All are linear or concave, so that keys and shares may themselves
  // be weighed by |k|.
  struct Weights {
    double p, p_error, ds, ds_error, rounding, stray;
  };
  Weights of(double p, double keys) const {
    const double most = p * (1 + growth), narrow = narrowed(model.p, most, keys);
    const bool rounded_p = model.declared.ds_from_p != Choice::first;
    Weights w = {};
    w.p = p;
    w.p_error = p * growth + narrow + keys * model.z;
    w.ds = p * x;
    w.stray = most * x_error + p * growth * x +
              (keys * model.z + (rounded_p ? narrow : 0)) * (x + x_error + d_error) +
              2 * keys * model.z;
    w.ds_error = w.stray + most * d_error;
    w.rounding = overflows ? kInfinity : narrowed(model.ds, w.ds + w.ds_error, keys);
    return w;
  }
};

RowGradients bound_gradients(const Problem& p, const Model<double>& model, const RowBounds& row,
                             const KeyHead& head, const Channels& d_o, double d_lse) {
  const Arithmetic& declared = model.declared;
  const double n = static_cast<double>(row.keys);
  RowGradients out = {.model = model, .row = row};
  // B_L and the rounding of L; the exponent s - L is farthest from 0 for the least score.
  const double lse_error = row.lse_bound + model.lse_roundoff * (row.lse + row.lse_bound);
  out.growth =
      expm1_above(kappa_backward(model, row.lse, -row.size, row.score_error) + lse_error) * kUp;

  // |dP_j| at most, and the sum of p_j |dP_j|, which |D| does not exceed either.
  const double dp = largest_product(d_o, head.v);
  double mean_dp = 0, apart = 0, flushed = 0, by_channel = 0;
  const double u = model.u_at_least_s(declared.dp);
  const double g = gamma(static_cast<double>(d_o.count + 2), u);
  for (Index c = 0; c < d_o.count; ++c) {
    const double weight = std::abs(d_o[c]), small = small_part(d_o[c], model.tiny);
    const double size = weigh(row, head.v, c).by_share, bound = bound_of_o(model, row, head.v, c);
    mean_dp += weight * size;
    apart += weight * head.v.spread[at(c)];
    flushed += weight * head.v.small[at(c)] + small * head.v.size[at(c)];
    const double error = bound + model.output_roundoff * (size + bound) + model.output_underflow;
    if (!(size + bound < model.output_overflow)) by_channel = kInfinity;
    by_channel += weight * ((1 + g) * error + g * size) + model.z;
    if (model.tiny > 0) by_channel += weight * std::min(size + error, model.tiny);
    by_channel += small * (size + error);
  }
  mean_dp = std::min(dp, mean_dp * kUp);
  out.dp_error = model.dp_share * dp + model.z * static_cast<double>(d_o.count) + flushed;
  out.x = std::min(dp + mean_dp, apart * kUp) + std::abs(d_lse);

  const double most = 1 + out.growth;
  const bool rounded_p = declared.ds_from_p != Choice::first;
  const double g_keys = gamma(sum_roundings<double>(declared.dp, row.keys, row.span) + 8, u);
  const double size = mean_dp + out.dp_error, sizes = n * (dp + out.dp_error);
  const double p_errors =
      out.growth * size + model.z * sizes + (rounded_p ? narrowed(model.p, most * size, sizes) : 0);
  const double by_key = (p_errors + out.dp_error + n * model.z) * (1 + g_keys) + mean_dp * g_keys;
  out.d_error = std::max(by_channel, by_key) + (p.d_lse ? model.z : 0);
  const double x_roundoff = model.u_s * (p.d_lse ? 4 : 3);
  out.x_error = out.dp_error + x_roundoff * (dp + mean_dp + std::abs(d_lse));
  const RowGradients::Weights one = out.of(row.largest_p, 1);
  const double larger_tau = std::max(1.0, model.tau);
  out.overflows = !(one.ds + one.ds_error < model.ds.overflow) ||
                  !(std::max(dp, larger_tau * out.x) < model.sum_overflow) ||
                  !(by_channel < model.sum_overflow);
  return out;
}

// A sum over `elements` elements, whose values add up to at most `size` and errors to `bound`, once
// it is rounded. Infinite where it may overflow, before it is multiplied by `scale` or after.
double finished(const Model<double>& model, double size, double bound, double elements,
                double overflow, double scale = 1) {
  if ((size + bound) / std::min(1.0, scale) >= overflow) return kInfinity;
  return (bound + 3 * model.u_s * (size + bound)) * model.slack * kUp + elements * model.flushed;
}

// ---- All rows -----------------------------------------------------------------------------------

// visit(b, h, i, place, sight) for each query within its length.
template <class Visit>
void for_each_row(const Problem& p, const Visit& visit) {
  const bool known = has_reaches(p);
  for (Index b = 0; b < p.batch; ++b) {
    const Lengths lengths = p.lengths(b);
    for (Index i = 0; i < lengths.query; ++i) {
      const Sight sight = {.keys = known ? keys_seen(p, b, i) : Reach{0, lengths.key},
                           .known = known};
      const Place place = p.query_place(b, i);
      for (Index h = 0; h < p.query_heads; ++h) visit(b, h, i, place, sight);
    }
  }
}

std::vector<KeyHead> key_heads(const Problem& p, const Inputs& in, const Model<double>& model) {
  std::vector<KeyHead> heads;
  for (Index b = 0; b < p.batch; ++b) {
    for (Index h = 0; h < p.key_heads; ++h) heads.push_back(key_head(p, in, model, b, h));
  }
  return heads;
}

std::vector<double> filled(const Shape& shape, double bound) {
  return std::vector<double>(at(element_count(shape)), bound);
}

// What is no number comes of infinity times 0, and admits anything too.
double put(double bound) { return bound < kInfinity ? bound : kInfinity; }

// What the rows of one key head bring to each of its keys, and to all of them together.
struct KeyGradients {
  SumsAbove bound, size;
  std::vector<double> bound_of_sum, size_of_sum;

  KeyGradients(Index rows, Index channels)
      : bound(rows, channels),
        size(rows, channels),
        bound_of_sum(at(channels)),
        size_of_sum(at(channels)) {}
};

// Of one row for one channel of |q| or |dO|: what the weights are of x, and of it as far as it may
// be flushed.
struct Weight {
  double of_x, of_small, of_value;

  double term(double x, double tiny) const {
    if (!(of_x < kInfinity)) return kInfinity;  // 0 times what may have overflowed is no number
    const double small = small_part(x, tiny);
    return of_x * std::abs(x) + (small == 0 ? 0 : of_small * small);
  }
};

void add_row(const Channels& x, double tiny, const Weight& single, const Weight& all, Index row,
             KeyGradients& to) {
  for (Index c = 0; c < x.count; ++c) {
    to.bound.add(row, c, single.term(x[c], tiny));
    to.size.add(row, c, single.of_value * std::abs(x[c]));
    to.bound_of_sum[at(c)] += all.term(x[c], tiny);
    to.size_of_sum[at(c)] += all.of_value * std::abs(x[c]);
  }
}

// The bounds of dK, dV of all keys of a head, once all its rows are added.
void put_keys(const Problem& p, const Model<double>& model, Index b, Index h, const Shape& shape,
              double underflow, double scale, KeyGradients& from, Expected& each,
              std::vector<double>& sums) {
  const Lengths lengths = p.lengths(b);
  const Index channels = shape[kChannel];
  const auto group = static_cast<double>(p.group_size());
  underflow *= static_cast<double>(p.group_size() * lengths.query + 8);
  underflow += times_stored(p, model, b) * model.stored.underflow * std::max(1.0, scale);
  const double overflow = std::min(model.sum_overflow, model.stored.overflow);
  // Where each head's part is rounded, once more.
  const bool by_head = model.declared.rounds_head_gradients && p.group_size() > 1;
  const auto of_heads = [&](double size, double bound, double elements) {
    if (!by_head) return bound;
    return bound + model.stored.roundoff * (1 + 8 * model.u_s) * (size + bound) +
           group * elements * model.stored.underflow;
  };
  from.bound.run();
  from.size.run();
  const bool known = has_reaches(p);
  for (Index j = 0; j < lengths.key; ++j) {
    const Reach rows = known ? queries_that_see(p, b, j) : Reach{0, lengths.query};
    if (rows.size() == 0) continue;
    const Place place = p.key_place(b, j);
    const Index first = dense_index(shape, place.batch, h, place.position, 0);
    for (Index c = 0; c < channels; ++c) {
      const double size = from.size.over(rows, c);
      const double bound = of_heads(size, from.bound.over(rows, c) + underflow, 1);
      each.bound[at(first + c)] = put(finished(model, size, bound, 1, overflow, scale));
    }
  }
  const auto keys = static_cast<double>(lengths.key);
  for (Index c = 0; c < channels; ++c) {
    const double size = from.size_of_sum[at(c)];
    const double bound = of_heads(size, from.bound_of_sum[at(c)] + keys * underflow, keys);
    sums[at((b * p.key_heads + h) * channels + c)] =
        put(finished(model, size, bound, keys, overflow, scale));
  }
}

}  // namespace
}  // namespace working

using namespace working;

ForwardExpected coarse_forward(const Problem& p, const Inputs& in, const Arithmetic& arithmetic) {
  const bool covered = is_covered(p, in);
  const double unless_put = covered ? 0 : kInfinity;
  ForwardExpected result = {.o = {.value = {}, .bound = filled(p.o_shape(), unless_put)},
                            .lse = {.value = {}, .bound = filled(p.lse_shape(), unless_put)}};
  if (!covered || p.key_heads == 0) return result;
  const Model<double> model(p, arithmetic);
  const std::vector<KeyHead> heads = key_heads(p, in, model);
  for_each_row(p, [&](Index b, Index h, Index, Place place, const Sight& sight) {
    if (sight.keys.size() == 0) return;
    const KeyHead& head = heads[at(b * p.key_heads + h / p.group_size())];
    const RowBounds row = bound_row(model, Channels(in.q, place, h), head, sight);
    const Index first = dense_index(p.o_shape(), place.batch, h, place.position, 0);
    for (Index c = 0; c < p.value_dim; ++c) {
      result.o.bound[at(first + c)] = put(bound_of_o(model, row, head.v, c));
    }
    result.lse.bound[at(dense_index(p.lse_shape(), place.batch, h, place.position, 0))] =
        put(row.lse_bound);
  });
  return result;
}

CoarseBackward coarse_backward(const Problem& p, const Inputs& in, const Arithmetic& arithmetic) {
  const bool covered = is_covered(p, in);
  const double unless_put = covered ? 0 : kInfinity;
  CoarseBackward result;
  result.each.dq.bound = filled(p.q_shape(), unless_put);
  result.each.dk.bound = filled(p.k_shape(), unless_put);
  result.each.dv.bound = filled(p.v_shape(), unless_put);
  if (p.bias_shape) result.each.dbias.bound = filled(*p.bias_shape, kInfinity);
  if (p.sink) result.each.dsink.bound = filled(p.sink_shape(), kInfinity);
  result.sums.dk = filled({p.batch, p.key_heads, 1, p.head_dim}, unless_put);
  result.sums.dv = filled({p.batch, p.key_heads, 1, p.value_dim}, unless_put);
  if (!covered || p.key_heads == 0) return result;

  const Model<double> model(p, arithmetic);
  const Arithmetic& declared = model.declared;
  const double tau = model.tau, underflow = model.z * (1 + tau);
  const std::vector<KeyHead> heads = key_heads(p, in, model);
  std::vector<KeyGradients> dk, dv;
  for (std::size_t n = 0; n < heads.size(); ++n) {
    dk.emplace_back(p.query_len, p.head_dim);
    dv.emplace_back(p.query_len, p.value_dim);
  }
  for_each_row(p, [&](Index b, Index h, Index i, Place place, const Sight& sight) {
    if (sight.keys.size() == 0) return;
    const Index key_head = b * p.key_heads + h / p.group_size();
    const KeyHead& head = heads[at(key_head)];
    const Channels q(in.q, place, h), d_o(in.d_o, place, h);
    const double d_lse = p.d_lse ? in.d_lse.at(place.batch, h, place.position, 0) : 0;
    const RowBounds row = bound_row(model, q, head, sight);
    const RowGradients of_row = bound_gradients(p, model, row, head, d_o, d_lse);
    const double n = static_cast<double>(row.keys);
    const RowGradients::Weights all = of_row.of(1, n), single = of_row.of(row.largest_p, 1);

    const double dq_share =
        model.share(declared.dq, sum_roundings<double>(declared.dq, row.keys, row.span) + 8) +
        3 * model.u_s + model.scale_share;
    const double common = gamma(n + 8, model.u_ref) * of_row.d_error * tau;
    const double by_d = of_row.d_error * tau * (1 + dq_share) + common;
    const Index first = dense_index(p.q_shape(), place.batch, h, place.position, 0);
    for (Index c = 0; c < p.head_dim; ++c) {
      const auto [size, sizes] = weigh(row, head.k, c);
      double bound = all.rounding < kInfinity ? underflow * (2 * n + 8) : kInfinity;
      if (sizes > 0) {
        const RowGradients::Weights w = of_row.of(size, sizes);
        bound +=
            tau * ((w.stray + w.rounding + of_row.growth * of_row.d_error * size) * (1 + dq_share) +
                   w.ds * dq_share) +
            by_d * size + underflow * sizes;
      }
      const double small = head.k.small[at(c)];
      if (small > 0) bound += small * tau * (all.ds + all.ds_error + all.rounding);
      result.each.dq.bound[at(first + c)] =
          put(finished(model, tau * of_row.x * size, bound, 1, model.sum_overflow, tau));
    }

    const double dk_share =
        group_share(p, model, declared.dk, b) + 3 * model.u_s + model.scale_share;
    const double dv_share = group_share(p, model, declared.dv, b);
    const auto of_keys = [&](const RowGradients::Weights& w, double keys) {
      const double total = w.ds_error + w.rounding;
      return Weight{.of_x = tau * (total * (1 + dk_share) + w.ds * dk_share) + keys * underflow,
                    .of_small = tau * (w.ds + total),
                    .of_value = tau * w.ds};
    };
    const auto of_values = [&](const RowGradients::Weights& w) {
      return Weight{.of_x = w.p_error * (1 + dv_share) + w.p * dv_share,
                    .of_small = w.p + w.p_error,
                    .of_value = w.p};
    };
    add_row(q, model.tiny_score, of_keys(single, 1), of_keys(all, n), i, dk[at(key_head)]);
    add_row(d_o, model.tiny, of_values(single), of_values(all), i, dv[at(key_head)]);
  });
  for (Index b = 0; b < p.batch; ++b) {
    for (Index h = 0; h < p.key_heads; ++h) {
      const std::size_t head = at(b * p.key_heads + h);
      put_keys(p, model, b, h, p.k_shape(), 2 * underflow, tau, dk[head], result.each.dk,
               result.sums.dk);
      put_keys(p, model, b, h, p.v_shape(), 2 * model.z, 1, dv[head], result.each.dv,
               result.sums.dv);
    }
  }
  return result;
}

}  // namespace attest
