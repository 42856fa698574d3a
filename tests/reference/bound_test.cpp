// The bounds once more, written down as NUMERICS.md states them: one loop for each sum, nothing
// packed, skipped or shared. The fast ones agree to the last digits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "reference/working.h"

namespace attest {
namespace {

using Real = long double;
using Sum = std::function<Real(Index)>;

constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
const Real kSlack = 1 + std::ldexp(1.0L, -18);
const Real kReference = std::ldexp(1.0L, -53);  // the roundoff of double

Real sum(Index n, const Sum& term) {
  Real total = 0;
  for (Index t = 0; t < n; ++t) total += term(t);
  return total;
}

Real gamma_of(Real k, Real u) { return k * u / (1 - k * u); }
Real growth(Real x) { return x < 0.5L ? x / (1 - x / 2) : std::exp(x); }

Real roundings(const Product& product, Index n, Index span) {
  return Real(n) + (product.truncates ? 2 * Real(std::min(n, span / 4 + 2)) : 0);
}

Real share(const Product& product, Real k, Real u) {
  const Real twice =
      (1 + Real(product.operand_roundoff)) * (1 + Real(product.operand_roundoff)) - 1;
  return (1 + gamma_of(k, u)) * (1 + twice) - 1;
}

Real rounding_error(const Narrowing& to, bool flushes, Real kept, Real low, Real high) {
  if (to.roundoff == 0) return 0;
  const Real normal = Real(to.underflow) / Real(to.roundoff) * kept;
  const Real absolute = flushes && low < normal ? normal : Real(to.underflow) * kept;
  return std::max(Real(to.roundoff) * high, std::min(absolute, high));
}

// R by its definition: from every key on, in both directions, how many later keys can exceed all
// those in between.
Index rescales(const std::vector<Real>& s, const std::vector<Real>& error) {
  Index most = 0;
  const Index n = static_cast<Index>(s.size());
  for (const Index step : {1, -1}) {
    for (Index from = 0; from < n; ++from) {
      Real top = s[std::size_t(from)] - error[std::size_t(from)];
      Index count = 0;
      for (Index t = from + step; t >= 0 && t < n; t += step) {
        const auto j = std::size_t(t);
        count += s[j] + error[j] > top;
        top = std::max(top, s[j] - error[j]);
      }
      most = std::max(most, count);
    }
  }
  return most;
}

// One element of Q, K, V or dO, and whether it may be flushed to 0.
struct Element {
  Real x;
  bool small;
};

class Slow {
 public:
  Slow(const Problem& problem, const Inputs& inputs, const Arithmetic& arithmetic)
      : p(problem), in(inputs), a(arithmetic), tau(std::abs(Real(p.scale))) {
    z = smallest_normal(p.lse_dtype());
    u_s = Real(a.softmax_roundoff) + kReference;
    e_x = Real(a.exp_error) + 4 * kReference;
    lag = (Real(a.max_lag) + (a.integer_max ? 1 : 0)) * std::log(2.0L);
    if (tau > 0 && tau < z) {
      const Real spacing = z * 2 * Real(unit_roundoff(p.lse_dtype()));
      scale_share = a.flushes_inputs || a.flushes_outputs ? 1 : std::min(1.0L, 4 * spacing / tau);
    }
    const Real normal = smallest_normal(p.dtype);
    const Real smaller_tau = std::min(Real(1), tau);
    bool rounds = false;
    for (const Product& each : {a.qk, a.pv, a.dp, a.dv, a.dq, a.dk}) {
      rounds |= each.operand_roundoff > 0;
    }
    tiny = a.flushes_inputs || rounds ? normal : 0;
    const Real cap = std::max(Real(1), Real(p.softcap));
    tiny_score = std::max({tiny, a.flushes_inputs || a.flushes_outputs ? z * cap / smaller_tau : 0,
                           a.qk.operand_roundoff > 0 ? normal * cap / smaller_tau : 0});
    flush = a.flushes_outputs ? Real(smallest_normal(p.dtype)) : 0;
    flushes = a.flushes_inputs || a.flushes_outputs;
    if (p.dropout.mode != Dropout::Mode::none) {
      const Real dropped = p.dropout.probability;
      kept_scale = 1 / (1 - dropped);
      kept_error = gamma_of(3 + dropped / (1 - dropped), u_s);
      slack = kSlack * (1 + 4 * kept_error);
    }
  }

  Real u(const Product& product) const { return Real(product.accumulator_roundoff) + kReference; }
  Real magnitude(const Values& x, Index h, Index s, Index c) const {
    return std::abs(Real(x.at(0, h, s, c)));
  }
  bool small(Real size, Real limit) const { return size < limit; }

  struct Row {
    std::vector<Index> key;
    std::vector<Real> s, s_error, p, o, b_o;
    std::vector<Real> slope, slope_error;  // of the softcap
    std::vector<Real> kept;                // 0 or 1 / (1 - p)
    Real m, l, lse, den, b_lse, R, h;
    Real sink_p = 0;
  };

  Real bias(Index head, Index i, Index j) const {
    const auto pick = [&](std::size_t axis, Index n) { return (*p.bias_shape)[axis] == 1 ? 0 : n; };
    return p.bias_shape ? Real(in.bias.at(0, pick(1, head), pick(2, i), pick(3, j))) : 0;
  }

  // Softcap, bias and ALiBi of the last score of the row.
  void shape(Row& r, Index head, Index i, Index j) const {
    Real& s = r.s.back();
    Real& error = r.s_error.back();
    r.slope.push_back(1);
    r.slope_error.push_back(0);
    if (p.softcap > 0) {
      const Real c = p.softcap, e_t = Real(a.tanh_error) + 4 * kReference, t = std::tanh(s / c);
      const auto slope_at = [&](Real x) { return 1 / (std::cosh(x / c) * std::cosh(x / c)); };
      const Real shift = error + 5 * u_s * std::abs(s);
      const Real moved =
          std::min(shift * slope_at(std::max(Real(0), std::abs(s) - shift)), c * (1 + std::abs(t)));
      r.slope.back() = slope_at(s);
      error = moved * (1 + e_t) + (e_t + 3 * u_s) * c * std::abs(t) + z * (1 + c);
      const Real t_error = error / c + 3 * u_s * std::abs(t);
      r.slope_error.back() = t_error * (2 * std::abs(t) + t_error) + 4 * u_s;
      s = c * t;
    }
    if (!p.bias_shape && !p.slopes_shape) return;
    const Lengths lengths = p.lengths(0);
    const Real slope = p.slopes_shape ? Real(in.slopes.at(0, head, 0, 0)) : 0;
    const Real slant = slope * Real(std::abs(i + lengths.key - lengths.query - j));
    const Real b = bias(head, i, j), added = std::abs(b) + std::abs(slant);
    error += 6 * u_s * (std::abs(s) + added) + 4 * z;
    if (p.softcap == 0) {
      error += gamma_of(roundings(a.qk, p.head_dim + 2, p.head_dim + 2), u(a.qk)) * added;
    }
    if (std::abs(b) < tiny) error += std::abs(b);
    if (a.flushes_inputs && std::abs(slope) < 0x1p-126) error += std::abs(slant);
    s += b - slant;
  }

  Row row(Index head, Index i) const {
    Row r;
    const Index kh = head / p.group_size();
    for (Index j = 0; j < p.key_len; ++j) {
      const Position position = {.head = head, .query = i, .key = j};
      if (!visible(p, position) || std::isinf(bias(head, i, j))) continue;
      r.key.push_back(j);
      r.kept.push_back(p.dropout.mode == Dropout::Mode::none ? 1
                       : in.keep.at(position)                ? kept_scale
                                                             : 0);
      const Real dot = sum(p.head_dim, [&](Index c) {
        return Real(in.q.at(0, head, i, c)) * Real(in.k.at(0, kh, j, c));
      });
      const Real size = sum(p.head_dim, [&](Index c) {
        return magnitude(in.q, head, i, c) * magnitude(in.k, kh, j, c);
      });
      const Real flushed = sum(p.head_dim, [&](Index c) {
        const Real q = magnitude(in.q, head, i, c), k = magnitude(in.k, kh, j, c);
        return q * k * Real(int(q < tiny_score) + int(k < tiny_score));
      });
      const Real operands = sum(p.head_dim, [&](Index c) {
        return magnitude(in.q, head, i, c) + magnitude(in.k, kh, j, c);
      });
      const Real larger = std::max({Real(1), tau, Real(p.softcap)});
      r.s.push_back(Real(p.scale) * dot);
      r.s_error.push_back(
          (share(a.qk, roundings(a.qk, p.head_dim, p.head_dim), u(a.qk)) + 2 * u_s + scale_share) *
              tau * size +
          tau * flushed + z * larger * Real(p.head_dim) +
          z * 2 * Real(unit_roundoff(p.lse_dtype())) * larger * operands);
      shape(r, head, i, j);
    }
    const Index n = Index(r.key.size());
    const Real sink = p.sink ? Real(in.sink.at(0, head, 0, 0)) : 0;
    if (n == 0) {
      if (!p.sink) return r;
      r.lse = sink;
      r.sink_p = 1;
      const Real blocks = a.exp_zero_inexact && a.key_block > 0
                              ? std::ceil(Real(p.lengths(0).key) / Real(a.key_block))
                              : 0;
      r.b_lse =
          (u_s * (8 * std::abs(sink) + 4) + (2 + blocks) * e_x) * kSlack + z + (flush > 0 ? z : 0);
      return r;
    }
    const Index terms = n + (p.sink ? 1 : 0);
    const Index span = r.key.back() - r.key.front() + 1;
    r.m = *std::max_element(r.s.begin(), r.s.end());
    Real rise = 0;
    if (p.sink) {
      const Real from = a.kv_splits == 1 ? r.m : *std::min_element(r.s.begin(), r.s.end());
      rise = std::max(Real(0), sink - from);
      r.m = std::max(r.m, sink);
    }
    r.l = sum(n, [&](Index t) { return std::exp(r.s[std::size_t(t)] - r.m); });
    if (p.sink) r.l += std::exp(sink - r.m);
    r.lse = r.m + std::log(r.l);
    if (p.sink) r.sink_p = std::exp(sink - r.lse);
    for (const Real s : r.s) r.p.push_back(std::exp(s - r.lse));

    r.R = Real(n - 1);
    if (a.key_block > 0) r.R = std::min(r.R, std::ceil(Real(span) / Real(a.key_block)));
    if (a.key_block > 0 && a.exp_zero_inexact) {
      r.R = std::ceil(Real(p.lengths(0).key) / Real(a.key_block));
    }
    const bool counts = a.kv_splits == 1 && !a.exp_zero_inexact && !a.any_block_order;
    if (counts && r.R > 32) r.R = std::min(r.R, Real(rescales(r.s, r.s_error)));
    if (p.sink) r.R += 1;
    r.h = roundings(a.pv, n, a.any_block_order ? 4 * n : span) + r.R + 8;
    if (p.sink) r.h += 8;
    if (kept_error > 0) r.h += 2;
    if (a.rescales_output) {
      r.h += 4 * Real(std::min(n, span / (a.key_block > 0 ? a.key_block : 16) + 2));
    }
    const Real widest = std::max(u(a.pv), u_s);
    const Real g = share(a.pv, r.h, widest), g_sum = gamma_of(r.h, widest);
    // The largest weight at least.
    Real least = a.integer_max ? 0.5L : 1;
    if (a.exp_zero_inexact) least *= std::exp(-e_x * (1 + r.R));
    const Real kept = a.p_normalised == Choice::last     ? 1 / (r.l * least)
                      : a.p_normalised == Choice::either ? 1 / least
                                                         : 1;
    const Real entropy = std::log(Real(terms + 1)) + lag, U = (r.R + 4) * z / least;

    std::vector<Real> common, e_p;
    Real largest = 0;
    for (std::size_t t = 0; t < r.s.size(); ++t) {
      const Real size = std::max(std::abs(r.s[t]), std::abs(r.m)) + lag;
      const Real distance = r.m - r.s[t] + 2 * lag;
      Real kappa = r.s_error[t] + 2 * u_s * size + 5 * u_s * distance + e_x * (1 + r.R);
      if (a.kv_splits != 1) {
        kappa += g_sum + 6 * u_s * (size + entropy) + 2 * e_x + 4 * u_s;
        if (p.sink) kappa += 3 * u_s * distance;
      }
      largest = std::max(largest, kappa * kSlack);
      common.push_back(growth(kappa * kSlack));
    }
    const auto at = [](Index t) { return std::size_t(t); };
    Real merged = 0;
    if (a.kv_splits != 1 && terms > 1) {
      merged = growth(g_sum + 2 * e_x + u_s * (5 * std::abs(r.lse) + 9 * entropy + 4));
    }
    Real of_sink = 0;
    if (p.sink) {
      const Real size = std::max(std::abs(sink), std::abs(r.m)) + rise + lag;
      const Real kappa = (14 * u_s * size + 8 * u_s * (std::max(r.m - sink, rise) + 2 * lag) +
                          g_sum + 6 * u_s * entropy + 2 * e_x + 4 * u_s + e_x * (1 + r.R) + z) *
                         kSlack;
      largest = std::max(largest, kappa);
      of_sink = r.sink_p * growth(kappa);
    }
    const auto moved = [&] {
      return sum(n, [&](Index t) { return r.p[at(t)] * common[at(t)]; }) + of_sink;
    };
    Real drift = moved();
    const auto den = [&] { return drift + (1 + drift) * g_sum + Real(terms) * U; };
    r.den = den();
    for (std::size_t t = 0; t < r.s.size(); ++t) {
      const Real low =
          a.sums_rounded_p ? 0 : r.p[t] * std::max(Real(0), 1 - common[t]) / (1 + r.den) / kSlack;
      e_p.push_back(rounding_error(a.p, flushes, kept, low, r.p[t] * (1 + common[t])));
      if (is_one(terms) && !a.integer_max) e_p.back() = std::min(e_p.back(), r.p[t] * common[t]);
    }
    if (a.sums_rounded_p) {  // the rounding of P is common to both sums
      for (std::size_t t = 0; t < r.s.size(); ++t) {
        if (r.p[t] > 0) common[t] += e_p[t] / r.p[t];
        e_p[t] *= kept_error > 0 ? 2 : 0;  // dropout is between them
      }
      drift = moved();
      r.den = den();
    }
    const Real lost_of_p =
        flushes && a.p.roundoff > 0 ? a.p.underflow / a.p.roundoff : a.p.underflow;
    const Real narrowed = a.p.roundoff + Real(n) * lost_of_p / least;
    const Real unshared = g_sum + Real(terms) * U * 0x1p60 + (a.sums_rounded_p ? narrowed : 0);
    for (Index c = 0; c < p.value_dim; ++c) {
      const auto v = [&](Index t) { return r.kept[at(t)] * Real(in.v.at(0, kh, r.key[at(t)], c)); };
      const auto is_small = [&](Index t) {
        return std::abs(Real(in.v.at(0, kh, r.key[at(t)], c))) < tiny;
      };
      const Real o = sum(n, [&](Index t) { return r.p[at(t)] * v(t); });
      Real b = sum(n, [&](Index t) {
        const Real e = 1 + common[at(t)];
        const Real flushed = is_small(t) ? r.p[at(t)] * e : 0;
        return r.p[at(t)] * common[at(t)] * std::abs(v(t) - o) +
               (e * r.p[at(t)] * g + e_p[at(t)] * (1 + g) + U + flushed) * std::abs(v(t));
      });
      b += (g * (1 + drift) + of_sink) * std::abs(o) + U * Real(2 * n + 8) * kept_scale;
      b = r.den < 1 ? b / (1 - r.den) : kInfinity;
      if (r.den > 0.25 && (a.kv_splits == 1 || terms == 1) && unshared < 0.5) {
        Real reach = p.sink ? std::abs(o) : 0, widest_v = 0, small = 0;
        for (Index t = 0; t < n; ++t) {
          reach = std::max(reach, std::abs(v(t) - o));
          widest_v = std::max(widest_v, std::abs(v(t)));
          if (is_small(t)) small += r.p[at(t)] * (1 + common[at(t)]) * std::abs(v(t));
        }
        b = std::min(b, reach +
                            widest_v * (g + narrowed * (1 + g) + 2 * unshared) / (1 - unshared) +
                            small + U * Real(2 * n + 8) * kept_scale);
      }
      r.o.push_back(o);
      r.b_o.push_back((b + (3 * u_s + kept_error + merged) * (std::abs(o) + b)) * slack + flush);
    }
    const Real lost = std::min(r.den < 1 ? -std::log1p(-r.den) : kInfinity,
                               unshared < 1 ? largest - std::log1p(-unshared) : kInfinity);
    r.b_lse = (lost + u_s * (8 * (r.lse - r.m + lag) + 13 * rise + 5 * (std::abs(r.m) + lag) +
                             std::abs(r.lse) + 2)) *
                  kSlack +
              (flush > 0 ? z : 0);
    return r;
  }

  struct Gradients {
    std::vector<Real> dq, dk, dv, dbias, dsink;
  };

  Gradients gradients() const {
    const auto zeros_of = [](const Shape& shape) {
      return std::vector<Real>(static_cast<std::size_t>(element_count(shape)), 0);
    };
    Gradients b = {zeros_of(p.q_shape()), zeros_of(p.k_shape()), zeros_of(p.v_shape()),
                   zeros_of(p.bias_shape.value_or(Shape{})),
                   zeros_of(p.sink ? p.sink_shape() : Shape{})};
    std::vector<Real> dk_value = b.dk, dv_value = b.dv, dbias_value = b.dbias,
                      dsink_value = b.dsink, dsink_size = b.dsink;
    std::vector<bool> bias_read(b.dbias.size(), false);
    std::vector<bool> seen(b.dk.size() + b.dv.size() + 1, false);
    const Index group = p.group_size(), rows = group * p.query_len;
    // Stored in memory, in their format, after each block of query rows of each head.
    const Index blocks = a.gradient_block > 0 ? p.query_len / a.gradient_block +
                                                    (p.query_len % a.gradient_block > 0) + 1
                                              : 0;
    const Real stored = Real(group * blocks);
    const Real format = ulps() * Real(unit_roundoff(p.dtype));
    const Real format_underflow = ulps() * Real(half_smallest_subnormal(p.dtype)) + flush;
    const auto over_rows = [&](const Product& product) {
      const Real sum = share(product, roundings(product, rows, rows + 4 * group) + 8, u(product));
      return (1 + sum) * (1 + gamma_of(stored, format)) - 1;
    };
    const Real dk_share = over_rows(a.dk) + 3 * u_s + kept_error + scale_share;
    const Real dv_share = over_rows(a.dv);
    const bool by_head = a.rounds_head_gradients && group > 1;
    Index readers = 1;
    for (std::size_t axis = 0; p.bias_shape && axis < 4; ++axis) {
      if ((*p.bias_shape)[axis] == 1) readers *= p.keep_shape()[axis];
    }
    const Real dbias_share =
        gamma_of(roundings(a.dk, readers, 4 * readers) + 8, std::max(u(a.dk), u_s));
    for (Index head = 0; head < p.query_heads; ++head) {
      const std::vector<Real> dk_before = b.dk, dv_before = b.dv, dk_value_before = dk_value,
                              dv_value_before = dv_value;
      // Once all rows of a head are added, if its part is rounded by itself.
      const auto round_head = [&](std::vector<Real>& bound, const std::vector<Real>& before,
                                  const std::vector<Real>& value,
                                  const std::vector<Real>& value_before, Real underflow) {
        const Index row_size = Index(bound.size()) / p.key_heads, kh = head / group;
        for (Index each = kh * row_size; each < (kh + 1) * row_size; ++each) {
          const auto e = static_cast<std::size_t>(each);
          const Real part = value[e] - value_before[e], size = std::abs(part);
          const Real so_far = bound[e] - before[e] + underflow * Real(p.query_len + 8) * kept_scale;
          const Real error = so_far + (3 * u_s + kept_error) * (size + so_far);
          Real rounding = format * (size + error) + format_underflow;
          if (ulps() == 1 && flush == 0) {
            const Real nearest = round_to(p.dtype, static_cast<double>(part));
            rounding = std::min(rounding, std::abs(nearest - part) + error);
          }
          bound[e] += rounding;
        }
      };
      for (Index i = 0; i < p.query_len; ++i) {
        const Row r = row(head, i);
        const Index n = Index(r.key.size()), kh = head / group;
        const Real lambda = p.d_lse ? Real(in.d_lse.at(0, head, i, 0)) : 0;
        const auto d_o = [&](Index c) { return Real(in.d_o.at(0, head, i, c)); };
        const Real lse_error =
            r.b_lse + Real(unit_roundoff(p.lse_dtype())) * ulps() * (std::abs(r.lse) + r.b_lse);
        const auto add_to_sink = [&](Real d, Real e_d) {
          if (!p.sink) return;
          const Real s = in.sink.at(0, head, 0, 0);
          const Real size = std::max(std::abs(s), std::abs(r.lse)) + lag;
          const Real rho_z =
              growth((z + 6 * u_s * size + 5 * u_s * (r.lse - s + 2 * lag) + 2 * e_x) * kSlack +
                     lse_error);
          const Real x = lambda - d;
          const Real x_error = (4 * u_s + kept_error) * (std::abs(lambda) + std::abs(d)) + e_d;
          dsink_value[std::size_t(head)] += r.sink_p * x;
          dsink_size[std::size_t(head)] += r.sink_p * std::abs(x);
          b.dsink[std::size_t(head)] += r.sink_p * ((1 + rho_z) * x_error + rho_z * std::abs(x)) +
                                        z * (std::abs(x) + x_error + 2);
        };
        if (n == 0) {
          add_to_sink(0, z);
          continue;
        }
        const Index span = r.key.back() - r.key.front() + 1;
        const Real d = sum(p.value_dim, [&](Index c) { return d_o(c) * r.o[std::size_t(c)]; });
        std::vector<Real> dp, dp_error, rho, e_p;
        for (std::size_t t = 0; t < r.key.size(); ++t) {
          const auto v = [&](Index c) { return Real(in.v.at(0, kh, r.key[t], c)); };
          dp.push_back(r.kept[t] * sum(p.value_dim, [&](Index c) { return d_o(c) * v(c); }));
          const Real product_error =
              sum(p.value_dim,
                  [&](Index c) {
                    const Real x = std::abs(d_o(c)), y = std::abs(v(c));
                    return x * y *
                           (share(a.dp, roundings(a.dp, p.value_dim, p.value_dim), u(a.dp)) +
                            Real(int(x < tiny) + int(y < tiny)));
                  }) +
              z * Real(p.value_dim);
          dp_error.push_back(r.kept[t] * product_error + kept_error * std::abs(dp.back()));
          const Real size = std::max(std::abs(r.s[t]), std::abs(r.lse)) + lag;
          const Real kappa =
              r.s_error[t] + 6 * u_s * size + 5 * u_s * (r.lse - r.s[t] + 2 * lag) + 2 * e_x;
          rho.push_back(growth(kappa * kSlack + lse_error));
          e_p.push_back(rounding_error(a.p, flushes, 1, r.p[t] * std::max(Real(0), 1 - rho[t]),
                                       r.p[t] * (1 + rho[t])));
          if (is_one(n + (p.sink ? 1 : 0))) e_p[t] = std::min(e_p[t], r.p[t] * rho[t]);
        }
        const auto at = [](Index t) { return std::size_t(t); };
        const Real widest = std::max(u(a.dp), u_s);
        const Real g_c = gamma_of(Real(p.value_dim + 2), widest);
        const Real by_channel =
            sum(p.value_dim,
                [&](Index c) {
                  const Real o = std::abs(r.o[at(c)]), x = std::abs(d_o(c));
                  Real rounding = ulps() * Real(unit_roundoff(p.dtype)) * (o + r.b_o[at(c)]) +
                                  ulps() * Real(half_smallest_subnormal(p.dtype)) + flush;
                  if (ulps() == 1 && flush == 0) {
                    const Real nearest = round_to(p.dtype, static_cast<double>(o));
                    rounding = std::min(rounding, std::abs(nearest - o) + r.b_o[at(c)]);
                  }
                  const Real error = r.b_o[at(c)] + rounding;
                  return x * ((1 + g_c) * error + g_c * o) +
                         (o - error < tiny ? x * std::min(o + error, tiny) : 0) +
                         (x < tiny ? x * (o + error) : 0);
                }) +
            z * Real(p.value_dim);
        const Real g_j = gamma_of(roundings(a.dp, n, span) + 8, widest);
        const bool from_p = a.ds_from_p == Choice::first;
        const Real by_key = sum(n, [&](Index t) {
          const Real size = std::abs(dp[at(t)]), most = size + dp_error[at(t)];
          const Real shift = r.p[at(t)] * rho[at(t)] + (from_p ? 0 : e_p[at(t)]) + z;
          return (shift * most + r.p[at(t)] * dp_error[at(t)] + z) * (1 + g_j) +
                 g_j * r.p[at(t)] * size;
        });
        Real e_d = std::max(by_channel, by_key) + (p.d_lse ? z : 0);
        const Real largest = Real(largest_finite(p.dtype)) *
                             (ulps() == 1 ? 1 + Real(unit_roundoff(p.dtype)) / 2 : 1);
        for (Index c = 0; c < p.value_dim; ++c) {
          if (!(std::abs(r.o[at(c)]) + r.b_o[at(c)] < largest)) e_d = kInfinity;
        }
        add_to_sink(d, e_d);

        const Real dq_share =
            share(a.dq, roundings(a.dq, n, span) + 8, u(a.dq)) + 3 * u_s + kept_error + scale_share;
        const Real kept =
            kept_scale * (a.ds_scaled == Choice::last    ? 1
                          : a.ds_scaled == Choice::first ? 1 / tau
                                                         : 1 / std::min(Real(1), tau));
        const Real kept_for_bias =
            kept_scale * (a.ds_scaled == Choice::last ? 1 : 1 / std::min(Real(1), tau));
        std::vector<Real> ds, stray, total, p_error;
        for (std::size_t t = 0; t < r.key.size(); ++t) {
          const Real x = dp[t] - d + lambda;
          const Real x_error = dp_error[t] + ((p.d_lse ? 4 : 3) * u_s + kept_error) *
                                                 (std::abs(dp[t]) + std::abs(d) + std::abs(lambda));
          const Real e = r.p[t] * ((1 + rho[t]) * x_error + rho[t] * std::abs(x)) +
                         (z + (from_p ? 0 : e_p[t])) * (std::abs(x) + x_error + e_d) + 2 * z;
          const Real f = e + r.p[t] * (1 + rho[t]) * e_d;
          const Real g = r.slope[t], g_error = r.slope_error[t];
          const auto rounded = [&](Real size, Real error, Real in_unit) {
            return rounding_error(a.ds, flushes, in_unit, std::max(Real(0), size - error),
                                  size + error);
          };
          const Real whole = r.p[t] * std::abs(x), size = whole * g;
          if (p.bias_shape) {
            const auto pick = [&](std::size_t axis, Index index) {
              return (*p.bias_shape)[axis] == 1 ? 0 : index;
            };
            const auto element =
                at(dense_index(*p.bias_shape, 0, pick(1, head), pick(2, i), pick(3, r.key[t])));
            dbias_value[element] += r.p[t] * x;
            Real once = rounded(whole, f, kept_for_bias);
            if (a.rounds_dbias_terms) {  // and once more, in the bias's format
              const Real most = whole + f, u_ds = a.ds.roundoff;
              const Real least_ds = std::max(Real(0), whole - f);
              const Real normal =
                  a.ds.roundoff > 0 && flushes ? a.ds.underflow / a.ds.roundoff * kept_for_bias : 0;
              const Real once_underflow =
                  a.ds.roundoff > 0 ? Real(a.ds.underflow) * kept_for_bias : 0;
              const Real absolute =
                  least_ds < normal + flush ? normal + flush : once_underflow + format_underflow;
              once = std::max((u_ds + format * (1 + u_ds)) * most, std::min(absolute, most));
            }
            b.dbias[element] += (f + once) * (1 + dbias_share) + whole * dbias_share + 2 * z;
            bias_read[element] = true;
          }
          const Real shift = r.p[t] * (rho[t] * g + (1 + rho[t]) * g_error);
          const Real capped_e = e * (g + g_error) + whole * g_error;
          const Real capped_f = capped_e + (r.p[t] * g + shift) * e_d;
          const Real rounding = rounded(size, capped_f, kept);
          ds.push_back(r.p[t] * x * g);
          stray.push_back(capped_e + rounding + shift * e_d);
          total.push_back(capped_f + rounding);
          p_error.push_back(r.p[t] * rho[t] + e_p[t] + z);
        }
        for (Index c = 0; c < p.head_dim; ++c) {
          const auto k = [&](Index t) { return Real(in.k.at(0, kh, r.key[at(t)], c)); };
          const Real value = tau * std::abs(sum(n, [&](Index t) { return ds[at(t)] * k(t); }));
          const Real mean =
              std::abs(sum(n, [&](Index t) { return r.p[at(t)] * r.slope[at(t)] * k(t); }));
          const Real bound =
              sum(n,
                  [&](Index t) {
                    const Real size = std::abs(ds[at(t)]);
                    const Real flushed = std::abs(k(t)) < tiny_score ? size + total[at(t)] : 0;
                    return std::abs(k(t)) *
                           (tau * (stray[at(t)] * (1 + dq_share) + size * dq_share + flushed) +
                            z * (1 + tau) +
                            gamma_of(Real(n + 8), kReference) * e_d * tau * r.p[at(t)]);
                  }) +
              tau * e_d * (1 + dq_share) * mean + z * (1 + tau) * Real(2 * n + 8) * kept_scale;
          b.dq[at(dense_index(p.q_shape(), 0, head, i, c))] =
              (bound + (3 * u_s + kept_error) * (value + bound)) * slack + flush;
        }
        for (std::size_t t = 0; t < r.key.size(); ++t) {
          const Real size = std::abs(ds[t]);
          for (Index c = 0; c < p.head_dim; ++c) {
            const auto e = at(dense_index(p.k_shape(), 0, kh, r.key[t], c));
            const Real q = std::abs(Real(in.q.at(0, head, i, c)));
            dk_value[e] += Real(p.scale) * ds[t] * Real(in.q.at(0, head, i, c));
            b.dk[e] += q * (tau * (total[t] * (1 + dk_share) + size * dk_share +
                                   (q < tiny_score ? size + total[t] : 0)) +
                            z * (1 + tau));
            seen[e] = true;
          }
          for (Index c = 0; c < p.value_dim; ++c) {
            const auto e = at(dense_index(p.v_shape(), 0, kh, r.key[t], c));
            const Real x = std::abs(d_o(c));
            dv_value[e] += r.kept[t] * r.p[t] * d_o(c);
            b.dv[e] += r.kept[t] * x *
                       (p_error[t] * (1 + dv_share) + r.p[t] * dv_share +
                        (x < tiny ? r.p[t] + p_error[t] : 0));
            seen[b.dk.size() + e] = true;
          }
        }
      }
      if (by_head) {
        round_head(b.dk, dk_before, dk_value, dk_value_before, 2 * z * (1 + tau));
        round_head(b.dv, dv_before, dv_value, dv_value_before, 2 * z);
      }
    }
    const auto finish = [&](std::vector<Real>& bound, const std::vector<Real>& value,
                            std::size_t offset, Real underflow, Real stored_underflow) {
      for (std::size_t e = 0; e < bound.size(); ++e) {
        if (!seen[offset + e]) {
          bound[e] = 0;
          continue;
        }
        bound[e] += (underflow * Real(rows + 8) + stored * stored_underflow) * kept_scale;
        bound[e] =
            (bound[e] + (3 * u_s + kept_error) * (std::abs(value[e]) + bound[e])) * slack + flush;
      }
    };
    finish(b.dk, dk_value, 0, 2 * z * (1 + tau), format_underflow * std::max(Real(1), tau));
    finish(b.dv, dv_value, b.dk.size(), 2 * z, format_underflow);
    const auto complete = [&](Real bound, Real value, Real flushed) {
      const Real whole = bound + 16 * z;
      return (whole + 3 * u_s * (std::abs(value) + whole)) * slack + flushed;
    };
    for (std::size_t e = 0; e < b.dbias.size(); ++e) {
      if (bias_read[e]) b.dbias[e] = complete(b.dbias[e], dbias_value[e], flush);
    }
    const Real sink_share = gamma_of(Real(p.query_len + 8), u_s);
    for (std::size_t h = 0; h < b.dsink.size(); ++h) {
      const Real bound = b.dsink[h] * (1 + sink_share) + sink_share * dsink_size[h];
      b.dsink[h] = complete(bound, dsink_value[h], flush > 0 ? Real(0x1p-126) : 0);
    }
    return b;
  }

 private:
  // Whether a weight is 1, but for its errors, in whatever way it is computed.
  bool is_one(Index terms) const { return terms == 1 && kept_error == 0 && !a.truncates_p; }
  Real ulps() const { return a.output_rounding == Rounding::nearest ? 1 : 2; }

  const Problem& p;
  const Inputs& in;
  const Arithmetic& a;
  Real tau, z, u_s, e_x, lag, scale_share = 0, tiny, tiny_score, flush;
  bool flushes;
  Real kept_scale = 1, kept_error = 0, slack = kSlack;  // of dropout
};

// Everything that may be declared, drawn at random.
Arithmetic any_arithmetic(DType dtype, std::mt19937_64& random) {
  const auto flip = [&] { return random() % 2 == 0; };
  const auto choice = [&] { return static_cast<Choice>(random() % 3); };
  Arithmetic a = loosest(dtype);
  for (Product* product : {&a.qk, &a.pv, &a.dp, &a.dv, &a.dq, &a.dk}) {
    product->truncates = flip();
    product->accumulator_roundoff = product->truncates ? 0x1p-23 : 0x1p-24;
    product->operand_roundoff = random() % 4 == 0 ? 0x1p-11 : 0;
  }
  a.softmax_roundoff = flip() ? 0x1p-23 : 0x1p-24;
  a.tanh_error = flip() ? 0x1p-11 : 0x1p-22;
  if (flip()) a.p = {};
  if (flip()) a.ds = {};
  a.p_normalised = choice();
  a.ds_scaled = choice();
  a.ds_from_p = choice();
  a.kv_splits = static_cast<Index>(random() % 3);
  a.key_block = static_cast<Index>(random() % 4);
  a.rescales_output = flip();
  a.flushes_inputs = flip();
  a.flushes_outputs = flip();
  a.output_rounding = flip() ? Rounding::nearest : Rounding::faithful;
  // What is never taken for granted.
  const auto seldom = [&] { return random() % 5 == 0; };
  a.exp_zero_inexact = a.key_block > 0 && seldom();
  if (seldom()) a.exp_error = 1024 * 0x1p-23;
  a.sums_rounded_p = a.p.roundoff > 0 && a.p_normalised == Choice::last && seldom();
  if (a.p.roundoff > 0 && seldom()) {
    a.truncates_p = true;
    a.p = {2 * a.p.roundoff, 2 * a.p.underflow};
  }
  if (seldom()) a.max_lag = 8;
  a.integer_max = seldom();
  a.any_block_order = a.key_block > 0 && seldom();
  if (seldom()) a.gradient_block = 3;
  a.rounds_head_gradients = seldom();
  a.rounds_dbias_terms = seldom();
  return a;
}

// The same without what goes beyond the default column.
Arithmetic within_default(Arithmetic a) {
  if (a.truncates_p) a.p = {a.p.roundoff / 2, a.p.underflow / 2};
  a.exp_error = std::min(a.exp_error, loosest(a.dtype).exp_error);
  a.exp_zero_inexact = a.sums_rounded_p = a.truncates_p = a.integer_max = a.any_block_order = false;
  a.rounds_head_gradients = a.rounds_dbias_terms = false;
  a.max_lag = 0;
  a.gradient_block = 0;
  return a;
}

// Any of them, or none.
void add_features(Problem& problem, std::mt19937_64& random) {
  const auto maybe = [&] { return random() % 3 == 0; };
  const auto one_or = [&](Index whole) { return random() % 2 == 0 ? 1 : whole; };
  if (maybe()) return;
  if (maybe()) problem.softcap = random() % 2 == 0 ? 0.7 : 30;
  if (maybe()) {
    problem.bias_shape =
        Shape{1, one_or(problem.query_heads), one_or(problem.query_len), one_or(problem.key_len)};
  }
  if (maybe()) problem.slopes_shape = Shape{1, problem.query_heads, 1, 1};
  problem.sink = maybe();
  problem.d_lse = maybe();
  if (maybe()) problem.dropout = {.mode = Dropout::Mode::given, .probability = 0.25};
}

void expect_agree(const char* name, const std::vector<double>& fast,
                  const std::vector<Real>& slow) {
  ASSERT_EQ(fast.size(), slow.size());
  for (std::size_t e = 0; e < fast.size(); ++e) {
    const auto expected = static_cast<double>(slow[e]);
    if (!(expected < std::numeric_limits<double>::infinity())) {
      EXPECT_EQ(fast[e], std::numeric_limits<double>::infinity()) << name << e;
    } else {
      EXPECT_NEAR(fast[e], expected, 1e-10 * expected) << name << e;
    }
  }
}

TEST(BoundTest, FastAndSlowFormsAgreeWhateverIsDeclared) {
  std::mt19937_64 random(1);
  for (int repeat = 0; repeat < 500 && !HasFailure(); ++repeat) {
    const auto size = [&](Index most) {
      return static_cast<Index>(random() % std::uint64_t(most)) + 1;
    };
    const DType dtype = std::array{DType::f32, DType::f16, DType::bf16}[random() % 3];
    const Index group = size(2);
    Problem problem = {
        .dtype = dtype,
        .query_heads = 2 * group,
        .key_heads = 2,
        .query_len = size(11),
        .key_len = size(90),
        .head_dim = size(9),
        .value_dim = size(9),
        .scale = std::array{0.125, -0.5, 2.0, 0x1p-133}[random() % 4],
        .mask = repeat % 2 ? Mask::full() : Mask::window(60, 3, Anchor::bottom_right),
        .backward = true};
    add_features(problem, random);
    const double spread = std::array{0.3, 1.0, 10.0}[random() % 3];
    std::normal_distribution<double> normal;
    const auto values = [&](const Shape& shape, double scale) {
      Values result = zeros(shape);
      for (double& value : result.data) {
        const std::uint64_t kind = random() % 16;
        value = round_to(dtype, kind == 0   ? 0
                                : kind == 1 ? normal(random) * smallest_normal(dtype)
                                            : normal(random) * scale);
      }
      return result;
    };
    Inputs inputs = {.q = values(problem.q_shape(), spread),
                     .k = values(problem.k_shape(), 1),
                     .v = values(problem.v_shape(), 1),
                     .d_o = values(problem.o_shape(), 1)};
    if (problem.bias_shape) {
      inputs.bias = values(*problem.bias_shape, spread);
      for (double& value : inputs.bias.data) {
        if (random() % 16 == 0) value = -std::numeric_limits<double>::infinity();
      }
    }
    if (problem.slopes_shape) inputs.slopes = values(*problem.slopes_shape, 0.3);
    if (problem.sink) inputs.sink = values(problem.sink_shape(), spread);
    if (problem.d_lse) inputs.d_lse = values(problem.lse_shape(), 1);
    if (problem.dropout.mode != Dropout::Mode::none) {
      inputs.keep = {problem.keep_shape(), {}};
      for (Index e = 0; e < element_count(problem.keep_shape()); ++e) {
        inputs.keep.kept.push_back(random() % 4 != 0);
      }
    }
    const Arithmetic arithmetic = any_arithmetic(dtype, random);
    SCOPED_TRACE(to_string(problem) + " repeat " + std::to_string(repeat));
    const Slow slow(problem, inputs, arithmetic);
    std::vector<Real> o, lse;
    for (Index h = 0; h < problem.query_heads; ++h) {
      for (Index i = 0; i < problem.query_len; ++i) {
        const Slow::Row row = slow.row(h, i);
        const bool empty = row.key.empty();
        for (Index c = 0; c < problem.value_dim; ++c) {
          o.push_back(empty ? 0 : row.b_o[static_cast<std::size_t>(c)]);
        }
        lse.push_back(empty && !problem.sink ? 0 : row.b_lse);
      }
    }
    const ForwardExpected forward = expect_forward(problem, inputs, arithmetic);
    expect_agree("o", forward.o.bound, o);
    expect_agree("lse", forward.lse.bound, lse);
    const BackwardExpected backward = expect_backward(problem, inputs, arithmetic);
    const Slow::Gradients gradients = slow.gradients();
    expect_agree("dq", backward.dq.bound, gradients.dq);
    expect_agree("dk", backward.dk.bound, gradients.dk);
    expect_agree("dv", backward.dv.bound, gradients.dv);
    expect_agree("dbias", backward.dbias.bound, gradients.dbias);
    expect_agree("dsink", backward.dsink.bound, gradients.dsink);
  }
}

// Declaring less leaves room for less.
TEST(BoundTest, TheLoosestDeclarationBoundsEveryOther) {
  std::mt19937_64 random(2);
  Problem problem = {.dtype = DType::f16,
                     .query_len = 9,
                     .key_len = 20,
                     .head_dim = 5,
                     .value_dim = 6,
                     .scale = 0.5,
                     .softcap = 2,
                     .bias_shape = Shape{1, 1, 1, 20},
                     .slopes_shape = Shape{1, 1, 1, 1},
                     .sink = true,
                     .dropout = {.mode = Dropout::Mode::given, .probability = 0.25},
                     .backward = true,
                     .d_lse = true};
  std::normal_distribution<double> normal;
  const auto values = [&](const Shape& shape) {
    Values result = zeros(shape);
    for (double& value : result.data) value = round_to(DType::f16, normal(random));
    return result;
  };
  Inputs inputs = {.q = values(problem.q_shape()),
                   .k = values(problem.k_shape()),
                   .v = values(problem.v_shape()),
                   .bias = values(*problem.bias_shape),
                   .slopes = values(*problem.slopes_shape),
                   .sink = values(problem.sink_shape()),
                   .d_o = values(problem.o_shape()),
                   .d_lse = values(problem.lse_shape())};
  inputs.keep = {problem.keep_shape(), {}};
  for (Index e = 0; e < element_count(problem.keep_shape()); ++e) {
    inputs.keep.kept.push_back(random() % 4 != 0);
  }
  const auto widest = expect_backward(problem, inputs, loosest(DType::f16));
  const auto widest_forward = expect_forward(problem, inputs, loosest(DType::f16));
  for (int repeat = 0; repeat < 200; ++repeat) {
    Arithmetic arithmetic = any_arithmetic(DType::f16, random);
    for (Product* product : {&arithmetic.qk, &arithmetic.pv, &arithmetic.dp, &arithmetic.dv,
                             &arithmetic.dq, &arithmetic.dk}) {
      product->operand_roundoff = 0;
    }
    if (arithmetic.rescales_output) arithmetic.key_block = 0;  // smaller blocks divide more often
    arithmetic = within_default(arithmetic);
    const auto forward = expect_forward(problem, inputs, arithmetic);
    const auto backward = expect_backward(problem, inputs, arithmetic);
    const auto within = [](const Expected& small, const Expected& large) {
      for (std::size_t e = 0; e < small.bound.size(); ++e) {
        if (!(small.bound[e] <= large.bound[e])) return false;
      }
      return true;
    };
    EXPECT_TRUE(within(forward.o, widest_forward.o)) << repeat;
    EXPECT_TRUE(within(forward.lse, widest_forward.lse)) << repeat;
    EXPECT_TRUE(within(backward.dq, widest.dq)) << repeat;
    EXPECT_TRUE(within(backward.dk, widest.dk)) << repeat;
    EXPECT_TRUE(within(backward.dv, widest.dv)) << repeat;
    EXPECT_TRUE(within(backward.dbias, widest.dbias)) << repeat;
    EXPECT_TRUE(within(backward.dsink, widest.dsink)) << repeat;
  }
}

}  // namespace
}  // namespace attest
