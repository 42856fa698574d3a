// Reads bottom up: coarse_forward and coarse_backward, then what rows bring to dQ and to keys. One
// row is bounded in coarse/row.h. The symbols are those of NUMERICS.md.
#include "reference/coarse.h"

#include <algorithm>
#include <cmath>

#include "reference/bound.h"
#include "reference/coarse/row.h"
#include "reference/reach.h"

namespace attest {
namespace bound::coarse {
namespace {

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

// A sum over `elements` elements, whose values add up to at most `size` and errors to `bound`, once
// it is rounded. Infinite where it may overflow, before it is multiplied by `scale` or after.
double finished(const Model<double>& model, double size, double bound, double elements,
                double overflow, double scale = 1) {
  if ((size + bound) / std::min(1.0, scale) >= overflow) return kInfinity;
  return (bound + 3 * model.u_s * (size + bound)) * model.slack * kUp + elements * model.flushed;
}

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

// ---- dQ -----------------------------------------------------------------------------------------

// B_dQ of a channel.
double bound_of_dq(const Model<double>& model, const RowGradients& of_row, const Extent& k,
                   Index c) {
  const RowBounds& row = of_row.row;
  const double n = static_cast<double>(row.n), tau = model.tau;
  const double underflow = model.z * (1 + tau);
  const Product& product = model.declared.dq;
  const double G_dQ = model.G(product, steps<double>(product, row.n, row.span) + 8) +
                      3 * model.u_s + model.scale_share;
  const double common = gamma(n + 8, model.u_ref) * of_row.E_D * tau;
  const double by_d = of_row.E_D * tau * (1 + G_dQ) + common;
  const RowGradients::Weights all = of_row.of(1, n);
  const auto [size, sizes] = weigh(row, k, c);
  double bound = all.t < kInfinity ? underflow * (2 * n + 8) : kInfinity;
  if (sizes > 0) {
    const RowGradients::Weights w = of_row.of(size, sizes);
    bound += tau * ((w.e + w.t + of_row.r * of_row.E_D * size) * (1 + G_dQ) + w.ds * G_dQ) +
             by_d * size + underflow * sizes;
  }
  const double small = k.small[at(c)];
  if (small > 0) bound += small * tau * (all.ds + all.f + all.t);
  return finished(model, tau * of_row.X * size, bound, 1, model.sum_overflow, tau);
}

// ---- dK and dV ----------------------------------------------------------------------------------

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

void add_weighed(const Channels& x, double tiny, const Weight& single, const Weight& all, Index row,
                 KeyGradients& to) {
  for (Index c = 0; c < x.count; ++c) {
    to.bound.add(row, c, single.term(x[c], tiny));
    to.size.add(row, c, single.of_value * std::abs(x[c]));
    to.bound_of_sum[at(c)] += all.term(x[c], tiny);
    to.size_of_sum[at(c)] += all.of_value * std::abs(x[c]);
  }
}

// What a row gives to the keys of its head: through |q| to dK, through |dO| to dV; to a single one,
// and to all that it sees.
void add_row(const Problem& p, const Model<double>& model, const RowGradients& of_row, Index b,
             Index i, const Channels& q, const Channels& d_o, KeyGradients& dk, KeyGradients& dv) {
  const RowBounds& row = of_row.row;
  const double n = static_cast<double>(row.n), tau = model.tau;
  const double underflow = model.z * (1 + tau);
  const double G_dK =
      group_share(p, model, model.declared.dk, b) + 3 * model.u_s + model.scale_share;
  const double G_dV = group_share(p, model, model.declared.dv, b);
  const auto of_keys = [&](const RowGradients::Weights& w, double keys) {
    const double total = w.f + w.t;
    return Weight{.of_x = tau * (total * (1 + G_dK) + w.ds * G_dK) + keys * underflow,
                  .of_small = tau * (w.ds + total),
                  .of_value = tau * w.ds};
  };
  const auto of_values = [&](const RowGradients::Weights& w) {
    return Weight{
        .of_x = w.p_error * (1 + G_dV) + w.p * G_dV, .of_small = w.p + w.p_error, .of_value = w.p};
  };
  const RowGradients::Weights all = of_row.of(1, n), single = of_row.of(row.p_hat, 1);
  add_weighed(q, model.tiny_score, of_keys(single, 1), of_keys(all, n), i, dk);
  add_weighed(d_o, model.tiny, of_values(single), of_values(all), i, dv);
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

// ---- All rows -----------------------------------------------------------------------------------

CoarseBackward everywhere(const Problem& p, double bound) {
  CoarseBackward result;
  result.each.dq.bound = filled(p.q_shape(), bound);
  result.each.dk.bound = filled(p.k_shape(), bound);
  result.each.dv.bound = filled(p.v_shape(), bound);
  if (p.bias_shape) result.each.dbias.bound = filled(*p.bias_shape, kInfinity);
  if (p.sink) result.each.dsink.bound = filled(p.sink_shape(), kInfinity);
  result.sums.dk = filled({p.batch, p.key_heads, 1, p.head_dim}, bound);
  result.sums.dv = filled({p.batch, p.key_heads, 1, p.value_dim}, bound);
  return result;
}

}  // namespace
}  // namespace bound::coarse

using namespace bound;
using namespace bound::coarse;

ForwardExpected coarse_forward(const Problem& p, const Inputs& in, const Arithmetic& arithmetic) {
  const bool covered = is_covered(p, in);
  const double unless_put = covered ? 0 : kInfinity;
  ForwardExpected result = {.o = {.value = {}, .bound = filled(p.o_shape(), unless_put)},
                            .lse = {.value = {}, .bound = filled(p.lse_shape(), unless_put)}};
  if (!covered || p.key_heads == 0) return result;
  const Model<double> model(p, with_stored(arithmetic, p, in));
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
  CoarseBackward result = everywhere(p, covered ? 0 : kInfinity);
  if (!covered || p.key_heads == 0) return result;

  const Model<double> model(p, with_stored(arithmetic, p, in));
  const std::vector<KeyHead> heads = key_heads(p, in, model);
  std::vector<KeyGradients> dk, dv;
  for (std::size_t n = 0; n < heads.size(); ++n) {
    dk.emplace_back(p.query_len, p.head_dim);
    dv.emplace_back(p.query_len, p.value_dim);
  }
  for_each_row(p, [&](Index b, Index h, Index i, Place place, const Sight& sight) {
    if (sight.keys.size() == 0) return;
    const std::size_t head = at(b * p.key_heads + h / p.group_size());
    const Channels q(in.q, place, h), d_o(in.d_o, place, h);
    const double d_lse = p.d_lse ? in.d_lse.at(place.batch, h, place.position, 0) : 0;
    const RowBounds row = bound_row(model, q, heads[head], sight);
    const RowGradients of_row = bound_gradients(p, model, row, heads[head], d_o, d_lse);
    const Index first = dense_index(p.q_shape(), place.batch, h, place.position, 0);
    for (Index c = 0; c < p.head_dim; ++c) {
      result.each.dq.bound[at(first + c)] = put(bound_of_dq(model, of_row, heads[head].k, c));
    }
    add_row(p, model, of_row, b, i, q, d_o, dk[head], dv[head]);
  });
  for (Index b = 0; b < p.batch; ++b) {
    for (Index h = 0; h < p.key_heads; ++h) {
      const std::size_t head = at(b * p.key_heads + h);
      put_keys(p, model, b, h, p.k_shape(), 2 * (model.z * (1 + model.tau)), model.tau, dk[head],
               result.each.dk, result.sums.dk);
      put_keys(p, model, b, h, p.v_shape(), 2 * model.z, 1, dv[head], result.each.dv,
               result.sums.dv);
    }
  }
  return result;
}

}  // namespace attest
