// Reads top down: one row, then what rows make of O, LSE and the gradients. First-order propagation
// of each rounding on its own: "noise" is the root of a variance proxy throughout. The symbols and
// formulas are those of NUMERICS.md, section 12.
#include "reference/statistical.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/bound.h"
#include "reference/working.h"

namespace attest {
namespace {

using working::Model;
using Row = std::vector<double>;  // the channels of one position

std::size_t at(Index i) { return static_cast<std::size_t>(i); }
double square(double x) { return x * x; }

const double* channels_of(const Values& values, Place place, Index h) {
  return values.data.data() + dense_index(values.shape, place.batch, h, place.position, 0);
}

Row row_of(const Values& values, Place place, Index h) {
  const double* first = channels_of(values, place, h);
  return {first, first + values.shape[kChannel]};
}

// The element of a tensor that broadcasts along axes of size 1.
std::size_t element_of(const Shape& shape, const Position& p) {
  const auto pick = [](Index size, Index position) { return size == 1 ? 0 : position; };
  return at(dense_index(shape, pick(shape[0], p.batch), pick(shape[1], p.head),
                        pick(shape[2], p.query), pick(shape[3], p.key)));
}

// The variance proxy of a sum of `terms` products with magnitude `size` in all, whose squares add
// up to `squares`. A partial sum is at most `size`; what truncates is drift.
double noise_of_sum(const Product& product, double roundings, double size, double squares) {
  const double operands = product.operand_roundoff * (2 + product.operand_roundoff);
  const double u = product.truncates ? 0 : product.accumulator_roundoff;
  return roundings * square(u * size) + square(operands) * squares;
}

struct Key {
  Index j;
  Place place;
  double s, slope, bend;        // the score; of its softcap, the first and second derivative
  double noise;                 // of the score before its softcap
  double p = 0, z = 1;          // P, and what dropout multiplies it with
  double dp = 0, dp_noise = 0;  // dP, and its noise
};

class Noise {
 public:
  Noise(const Problem& problem, const Inputs& inputs, const Arithmetic& arithmetic)
      : p_(problem), in_(inputs), a_(arithmetic), model_(problem, arithmetic) {}

  // One row of the softmax, and what its output comes to.
  struct Softmax {
    std::vector<Key> keys;
    std::vector<const double*> v;  // of each key, its channels
    working::Row<double> row = {};
    double sink_p = 0;
    double lse_noise = 0;
    double sums = 0;               // h u^2, of the row sum
    Row o, o_noise, sum_variance;  // the last of the sum PV alone
  };

  Softmax softmax(Index b, Index h, Index i) const {
    Softmax r;
    r.keys = keys(b, h, i);
    r.o = r.o_noise = r.sum_variance = Row(at(p_.value_dim), 0.0);
    const std::size_t n = r.keys.size();
    if (n == 0) {
      if (p_.sink) r.sink_p = 1;
      return r;
    }
    working::Row<double>& row = r.row;
    row.keys = Index(n);
    row.key_len = p_.lengths(b).key;
    row.span = r.keys.back().j - r.keys.front().j + 1;
    row.has_sink = p_.sink;
    row.sink = p_.sink ? in_.sink.data[at(h)] : 0;
    row.m = p_.sink ? row.sink : r.keys[0].s;
    for (const Key& key : r.keys) row.m = std::max(row.m, key.s);
    row.sum = r.sink_p = p_.sink ? std::exp(row.sink - row.m) : 0;
    for (Key& key : r.keys) row.sum += key.p = std::exp(key.s - row.m);
    for (Key& key : r.keys) key.p /= row.sum;
    r.sink_p /= row.sum;
    row.lse = row.m + std::log(row.sum);
    row.rescales = working::most_rescales(model_, row) + (p_.sink ? 1 : 0);
    complete_row(model_, row);

    r.sums = row.roundings * square(std::max(a_.pv.truncates ? 0 : a_.pv.accumulator_roundoff,
                                             a_.softmax_roundoff));
    r.lse_noise = r.sums;
    const bool sums_rounded = a_.sums_rounded_p;
    for (const Key& key : r.keys) {
      r.lse_noise += square(key.p * key.slope * key.noise);
      if (sums_rounded) r.lse_noise += square(row.p.error(key.p, key.p));
    }
    r.lse_noise = std::sqrt(r.lse_noise);

    for (const Key& key : r.keys) {
      r.v.push_back(channels_of(in_.v, key.place, h / p_.group_size()));
    }
    const std::size_t channels = r.o.size();
    Row size(channels, 0.0), squares = size, variance = size;
    for (std::size_t t = 0; t < n; ++t) {
      const double weight = r.keys[t].p * r.keys[t].z;
      for (std::size_t c = 0; c < channels; ++c) {
        const double share = weight * r.v[t][c];
        r.o[c] += share;
        size[c] += std::abs(share);
        squares[c] += square(share);
      }
    }
    for (std::size_t t = 0; t < n; ++t) {
      const Key& key = r.keys[t];
      const double narrowing = row.p.error(key.p, key.p);
      for (std::size_t c = 0; c < channels; ++c) {
        const double v = key.z * r.v[t][c];
        const bool shared = sums_rounded && p_.dropout.mode == Dropout::Mode::none;
        variance[c] += square(key.p * (v - r.o[c]) * key.slope * key.noise) +
                       square(narrowing * (shared ? v - r.o[c] : v)) +
                       (sums_rounded && !shared ? square(narrowing * (v - r.o[c])) : 0);
      }
    }
    for (std::size_t c = 0; c < channels; ++c) {
      r.sum_variance[c] = noise_of_sum(a_.pv, row.roundings, size[c], squares[c]);
      variance[c] += r.sum_variance[c] + r.sums * square(r.o[c]);
      r.o_noise[c] = std::sqrt(variance[c]);
    }
    return r;
  }

  // One row of the backward pass: for each of its keys, what a rounding does to dS g alone, before
  // it is scaled; what those of L and D do to all of them together.
  struct Gradient {
    std::vector<double> ds, ds_g;       // without and with the slope of the softcap
    std::vector<double> own, own_g;     // the noise of each
    std::vector<double> p_noise;        // of P as it multiplies dO
    double lse_noise = 0, d_noise = 0;  // of L; of D
    double sink = 0, sink_noise = 0;    // what the row gives to dSink
  };

  Gradient gradient(Softmax& r, Index b, Index h, Index i) const {
    Gradient g;
    const Place place = p_.query_place(b, i);
    const Row d_o = row_of(in_.d_o, place, h);
    const double d_lse = p_.d_lse ? in_.d_lse.at(place.batch, h, place.position, 0) : 0;
    const Product& dp = a_.dp;
    double d = 0, d_size = 0, by_channel = 0, by_key = 0, by_key_size = 0;
    for (std::size_t c = 0; c < d_o.size() && !r.keys.empty(); ++c) {
      d += d_o[c] * r.o[c];
      d_size += std::abs(d_o[c] * r.o[c]);
    }
    for (std::size_t t = 0; t < r.keys.size(); ++t) {
      Key& key = r.keys[t];
      double size = 0, squares = 0;
      for (std::size_t c = 0; c < d_o.size(); ++c) {
        const double share = d_o[c] * r.v[t][c];
        key.dp += key.z * share;
        size += std::abs(share);
        squares += square(share);
      }
      key.dp_noise = key.z * std::sqrt(noise_of_sum(dp, double(p_.value_dim), size, squares));
    }
    g.lse_noise = r.lse_noise;
    // D as sum dO O: the errors of O's channels come of the same scores and the same P.
    for (std::size_t c = 0; c < d_o.size() && !r.keys.empty(); ++c) {
      const double rounding = model_.output_roundoff * std::abs(r.o[c]) + model_.output_underflow;
      by_channel += square(d_o[c]) * (r.sum_variance[c] + square(rounding));
    }
    const double u = std::max(dp.truncates ? 0 : dp.accumulator_roundoff, a_.softmax_roundoff);
    by_channel += r.sums * square(d) + double(p_.value_dim) * square(u * d_size);
    // And as sum P dP.
    for (const Key& key : r.keys) {
      const double weight = r.row.p.error(key.p, key.p), again = model_.p.error(key.p, key.p);
      by_channel += square(key.p * (key.dp - d) * key.slope * key.noise) + square(weight * key.dp);
      by_key += square(key.dp) * (square(key.p * key.slope * key.noise) + square(again)) +
                square(key.p * key.dp_noise);
      by_key_size += key.p * std::abs(key.dp);
    }
    by_key += double(r.keys.size()) * square(u * by_key_size);
    g.d_noise = std::max(std::sqrt(by_channel), std::sqrt(by_key) + std::abs(d) * g.lse_noise);

    for (const Key& key : r.keys) {
      const double x = key.dp - d + d_lse, again = model_.p.error(key.p, key.p);
      const double rounded_p = a_.ds_from_p == Choice::first ? 0 : again;
      const double ds = key.p * x, size = std::abs(ds);
      g.ds.push_back(ds);
      g.ds_g.push_back(ds * key.slope);
      const double others = square(key.p * key.dp_noise) + square(rounded_p * x);
      g.own.push_back(std::sqrt(square(ds * key.slope * key.noise) + others +
                                square(model_.dbias.error(size, size))));
      g.own_g.push_back(std::sqrt(square(ds * (square(key.slope) + key.bend) * key.noise) +
                                  others * square(key.slope) +
                                  square(model_.ds.error(size * key.slope, size * key.slope))));
      g.p_noise.push_back(
          std::sqrt(square(key.p * (key.slope * key.noise + g.lse_noise)) + square(again)));
    }
    g.sink = r.sink_p * (d_lse - d);
    g.sink_noise = std::abs(g.sink) * g.lse_noise + r.sink_p * g.d_noise;
    return g;
  }

 private:
  // The keys that a row sees, with their scores.
  std::vector<Key> keys(Index b, Index h, Index i) const {
    std::vector<Key> seen;
    const Row q = row_of(in_.q, p_.query_place(b, i), h);
    const Lengths lengths = p_.lengths(b);
    Position position = {.batch = b, .head = h, .query = i};
    for (Index j = 0; j < lengths.key; ++j) {
      position.key = j;
      if (!visible(p_, position)) continue;
      const double bias = p_.bias_shape ? in_.bias.data[element_of(*p_.bias_shape, position)] : 0;
      if (std::isinf(bias)) continue;
      const Place place = p_.key_place(b, j);
      const double* k = channels_of(in_.k, place, h / p_.group_size());
      double dot = 0, size = 0, squares = 0;
      for (std::size_t c = 0; c < q.size(); ++c) {
        const double product = q[c] * k[c];
        dot += product;
        size += std::abs(product);
        squares += square(product);
      }
      const double variance = noise_of_sum(a_.qk, double(p_.head_dim), size, squares);
      Key key = {.j = j,
                 .place = place,
                 .s = p_.scale * dot,
                 .slope = 1,
                 .bend = 0,
                 .noise = std::abs(p_.scale) * std::sqrt(variance)};
      if (p_.softcap > 0) {
        // At most: where the slope vanishes, its own error is all that is left of it.
        const double error = model_.score_share * model_.tau * size + model_.score_absolute;
        const auto capped = cap(model_, key.s, error);
        key.s = capped.score;
        key.slope = capped.slope + capped.slope_error;
        key.bend = 2 * std::abs(key.s) * key.slope / square(p_.softcap);
      }
      key.s += bias;
      if (p_.slopes_shape) {
        key.s -= in_.slopes.data[element_of(*p_.slopes_shape, {.batch = b, .head = h})] *
                 double(std::abs(i + lengths.key - lengths.query - j));
      }
      if (p_.dropout.mode != Dropout::Mode::none) {
        key.z = in_.keep.at(position) ? 1 / (1 - p_.dropout.probability) : 0;
      }
      seen.push_back(key);
    }
    return seen;
  }

  const Problem& p_;
  const Inputs& in_;
  const Arithmetic& a_;
  Model<double> model_;
};

// What is summed over query rows: the proxy of its terms, and what its own additions work on.
struct Total {
  std::vector<double> variance, size, squares;

  explicit Total(const Shape& shape)
      : variance(at(element_count(shape))), size(variance), squares(variance) {}
  void add(std::size_t element, double noise, double term) {
    variance[element] += noise * noise;
    size[element] += std::abs(term);
    squares[element] += term * term;
  }
  // Besides, the sum is rounded to `stored` so many times.
  std::vector<double> deviation(const Product& product, double roundings,
                                const working::Narrow<double>& stored = {},
                                double times = 0) const {
    std::vector<double> result;
    for (std::size_t e = 0; e < variance.size(); ++e) {
      const double in_memory = times * square(stored.roundoff * size[e] + stored.underflow);
      result.push_back(std::sqrt(
          variance[e] + noise_of_sum(product, roundings, size[e], squares[e]) + in_memory));
    }
    return result;
  }
};

}  // namespace

ForwardSpread spread_forward(const Problem& problem, const Inputs& inputs,
                             const Arithmetic& arithmetic, int threads) {
  ForwardExpected drift =
      expect_forward(problem, inputs, arithmetic, threads, nullptr, Roundings::systematic);
  ForwardSpread result = {.o = {std::move(drift.o.bound), {}},
                          .lse = {std::move(drift.lse.bound), {}}};
  result.o.deviation.assign(result.o.drift.size(), 0);
  result.lse.deviation.assign(result.lse.drift.size(), 0);
  const Noise noise(problem, inputs, arithmetic);
  for (Index b = 0; b < problem.batch; ++b) {
    for (Index h = 0; h < problem.query_heads; ++h) {
      for (Index i = 0; i < problem.lengths(b).query; ++i) {
        const auto row = noise.softmax(b, h, i);
        const Place place = problem.query_place(b, i);
        result.lse
            .deviation[at(dense_index(problem.lse_shape(), place.batch, h, place.position, 0))] =
            row.lse_noise;
        const Index first = dense_index(problem.o_shape(), place.batch, h, place.position, 0);
        std::copy(row.o_noise.begin(), row.o_noise.end(), result.o.deviation.begin() + first);
      }
    }
  }
  return result;
}

BackwardSpread spread_backward(const Problem& problem, const Inputs& inputs,
                               const Arithmetic& arithmetic, int threads) {
  BackwardExpected drift =
      expect_backward(problem, inputs, arithmetic, threads, nullptr, Roundings::systematic);
  const Noise noise(problem, inputs, arithmetic);
  std::vector<double> dq(drift.dq.bound.size());
  const Shape bias_shape = problem.bias_shape.value_or(Shape{});
  Total dk(problem.k_shape()), dv(problem.v_shape()), dbias(bias_shape),
      dsink(problem.sink ? problem.sink_shape() : Shape{});
  const double tau = std::abs(problem.scale);
  const Index group = problem.key_heads > 0 ? problem.group_size() : 1;
  Index rows = 0, longest = 0;
  for (Index b = 0; b < problem.batch; ++b) {
    for (Index h = 0; h < problem.query_heads; ++h) {
      for (Index i = 0; i < problem.lengths(b).query; ++i) {
        auto softmax = noise.softmax(b, h, i);
        const auto g = noise.gradient(softmax, b, h, i);
        const Place place = problem.query_place(b, i);
        const Row q = row_of(inputs.q, place, h), d_o = row_of(inputs.d_o, place, h);
        Row own(at(problem.head_dim), 0.0), of_lse = own, of_d = own, size = own, squares = own;
        // Keys that share an element of the bias share the errors of L and D too.
        std::vector<std::pair<std::size_t, double>> of_bias;
        for (std::size_t t = 0; t < softmax.keys.size(); ++t) {
          const Key& key = softmax.keys[t];
          const Row k = row_of(inputs.k, key.place, h / group);
          const double p_g = key.p * key.slope;
          const double whole =
              tau * (g.own_g[t] + std::abs(g.ds_g[t]) * g.lse_noise + p_g * g.d_noise);
          const auto first_k =
              at(dense_index(problem.k_shape(), key.place.batch, h / group, key.place.position, 0));
          for (std::size_t c = 0; c < k.size(); ++c) {
            own[c] += square(g.own_g[t] * k[c]);
            of_lse[c] += g.ds_g[t] * k[c];
            of_d[c] += p_g * k[c];
            size[c] += std::abs(g.ds_g[t] * k[c]);
            squares[c] += square(g.ds_g[t] * k[c]);
            dk.add(first_k + c, whole * q[c], tau * g.ds_g[t] * q[c]);
          }
          const auto first_v =
              at(dense_index(problem.v_shape(), key.place.batch, h / group, key.place.position, 0));
          for (std::size_t c = 0; c < d_o.size(); ++c) {
            dv.add(first_v + c, key.z * g.p_noise[t] * d_o[c], key.z * key.p * d_o[c]);
          }
          if (problem.bias_shape) {
            const std::size_t e =
                element_of(bias_shape, {.batch = b, .head = h, .query = i, .key = key.j});
            const double error = g.own[t] + std::abs(g.ds[t]) * g.lse_noise + key.p * g.d_noise;
            if (bias_shape[3] == 1 && !of_bias.empty()) {
              of_bias[0].second += error;
            } else {
              of_bias.emplace_back(e, error);
            }
            dbias.add(e, 0, g.ds[t]);
          }
        }
        for (const auto& [e, error] : of_bias) dbias.add(e, error, 0);
        if (problem.sink) dsink.add(at(h), g.sink_noise, g.sink);
        const Index n = Index(softmax.keys.size());
        const Index first = dense_index(problem.q_shape(), place.batch, h, place.position, 0);
        for (std::size_t c = 0; c < own.size(); ++c) {
          const double together =
              std::sqrt(own[c]) + g.lse_noise * std::abs(of_lse[c]) + g.d_noise * std::abs(of_d[c]);
          dq[at(first) + c] =
              tau * std::sqrt(square(together) +
                              noise_of_sum(arithmetic.dq, double(n + 8), size[c], squares[c]));
        }
      }
    }
    rows += problem.lengths(b).query;
    longest = std::max(longest, problem.lengths(b).query);
  }
  double readers = 1;
  for (std::size_t axis = 0; problem.bias_shape && axis < 4; ++axis) {
    if (bias_shape[axis] == 1) readers *= double(problem.keep_shape()[axis]);
  }
  const double group_rows = double(group * longest + 8);
  Product of_sums = arithmetic.dk;  // of dBias and dSink, in its accumulator or the softmax's
  of_sums.operand_roundoff = 0;
  of_sums.accumulator_roundoff =
      std::max(of_sums.truncates ? 0 : of_sums.accumulator_roundoff, arithmetic.softmax_roundoff);
  of_sums.truncates = false;
  const Model<double> model(problem, arithmetic);
  double times = arithmetic.rounds_head_gradients && group > 1 ? double(group) : 0;
  for (Index b = 0; b < problem.batch; ++b) {
    times = std::max(times, working::times_stored(problem, model, b));
  }
  return {.dq = {std::move(drift.dq.bound), std::move(dq)},
          .dk = {std::move(drift.dk.bound),
                 dk.deviation(arithmetic.dk, group_rows, model.stored, times)},
          .dv = {std::move(drift.dv.bound),
                 dv.deviation(arithmetic.dv, group_rows, model.stored, times)},
          .dbias = {std::move(drift.dbias.bound), dbias.deviation(of_sums, readers + 8)},
          .dsink = {std::move(drift.dsink.bound), dsink.deviation(of_sums, double(rows + 8))}};
}

double lambda_of(double elements, double chance) {
  return std::sqrt(2 * std::log(2 * std::max(elements, 1.0) / chance));
}

double mean_square_limit(double groups, double chance) {
  // P(mean > x) <= exp(-groups (x - 1 - log x) / 2); bisected, as the left side rises.
  const double wanted = 2 * std::log(1 / chance) / std::max(groups, 1.0);
  double low = 1, high = 2 * wanted + 10;
  while (high - low > 1e-12 * high) {
    const double x = (low + high) / 2;
    (x - 1 - std::log(x) < wanted ? low : high) = x;
  }
  return high;
}

}  // namespace attest
