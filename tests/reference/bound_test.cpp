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
    const Real flushed_input = a.flushes_inputs ? Real(smallest_normal(p.dtype)) : 0;
    const Real flushed_result = a.flushes_outputs ? z / std::min(Real(1), tau) : 0;
    tiny = flushed_input;
    tiny_score = std::max(flushed_input, flushed_result);
    flush = a.flushes_outputs ? Real(smallest_normal(p.dtype)) : 0;
    flushes = a.flushes_inputs || a.flushes_outputs;
  }

  Real u(const Product& product) const { return Real(product.accumulator_roundoff) + kReference; }
  Real magnitude(const Values& x, Index h, Index s, Index c) const {
    return std::abs(Real(x.at(0, h, s, c)));
  }
  bool small(Real size, Real limit) const { return size < limit; }

  struct Row {
    std::vector<Index> key;
    std::vector<Real> s, s_error, p, o, b_o;
    Real m, l, lse, den, b_lse, R, h;
  };

  Row row(Index head, Index i) const {
    Row r;
    const Index kh = head / p.group_size();
    for (Index j = 0; j < p.key_len; ++j) {
      if (!visible(p, {.head = head, .query = i, .key = j})) continue;
      r.key.push_back(j);
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
      const Real larger = std::max(Real(1), tau);
      r.s.push_back(Real(p.scale) * dot);
      r.s_error.push_back(
          (share(a.qk, roundings(a.qk, p.head_dim, p.head_dim), u(a.qk)) + 2 * u_s) * tau * size +
          tau * flushed + z * larger * Real(p.head_dim) +
          z * 2 * Real(unit_roundoff(p.lse_dtype())) * larger * operands);
    }
    const Index n = Index(r.key.size());
    if (n == 0) return r;
    const Index span = r.key.back() - r.key.front() + 1;
    r.m = *std::max_element(r.s.begin(), r.s.end());
    r.l = sum(n, [&](Index t) { return std::exp(r.s[std::size_t(t)] - r.m); });
    r.lse = r.m + std::log(r.l);
    for (const Real s : r.s) r.p.push_back(std::exp(s - r.lse));

    r.R = Real(n - 1);
    if (a.key_block > 0) r.R = std::min(r.R, std::ceil(Real(span) / Real(a.key_block)));
    if (a.kv_splits == 1 && r.R > 32) r.R = std::min(r.R, Real(rescales(r.s, r.s_error)));
    r.h = roundings(a.pv, n, span) + r.R + 8;
    if (a.rescales_output) {
      r.h += 4 * Real(std::min(n, span / (a.key_block > 0 ? a.key_block : 16) + 2));
    }
    const Real widest = std::max(u(a.pv), u_s);
    const Real g = share(a.pv, r.h, widest), g_sum = gamma_of(r.h, widest);
    const Real kept = a.p_normalised == Choice::last ? 1 / r.l : 1;

    std::vector<Real> common, e_p;
    Real largest = 0;
    for (std::size_t t = 0; t < r.s.size(); ++t) {
      const Real size = std::max(std::abs(r.s[t]), std::abs(r.m));
      Real kappa = r.s_error[t] + 2 * u_s * size + 5 * u_s * (r.m - r.s[t]) + e_x * (1 + r.R);
      if (a.kv_splits != 1) {
        kappa += g_sum + 6 * u_s * (size + std::log(Real(n + 1))) + 2 * e_x + 4 * u_s;
      }
      largest = std::max(largest, kappa * kSlack);
      common.push_back(growth(kappa * kSlack));
    }
    const auto at = [](Index t) { return std::size_t(t); };
    const Real drift = sum(n, [&](Index t) { return r.p[at(t)] * common[at(t)]; });
    r.den = drift + (1 + drift) * g_sum + Real(n) * (r.R + 4) * z;
    for (std::size_t t = 0; t < r.s.size(); ++t) {
      const Real low = r.p[t] * std::max(Real(0), 1 - common[t]) / (1 + r.den) / kSlack;
      e_p.push_back(rounding_error(a.p, flushes, kept, low, r.p[t]));
    }
    for (Index c = 0; c < p.value_dim; ++c) {
      const auto v = [&](Index t) { return Real(in.v.at(0, kh, r.key[at(t)], c)); };
      const Real o = sum(n, [&](Index t) { return r.p[at(t)] * v(t); });
      Real b = sum(n, [&](Index t) {
        const Real e = 1 + common[at(t)];
        const Real flushed = std::abs(v(t)) < tiny ? r.p[at(t)] * e : 0;
        return r.p[at(t)] * common[at(t)] * std::abs(v(t) - o) +
               (e * (r.p[at(t)] * g + e_p[at(t)] * (1 + g)) + (r.R + 4) * z + flushed) *
                   std::abs(v(t));
      });
      b += g * std::abs(o) * (1 + drift) + (r.R + 4) * z * Real(2 * n + 8);
      b = r.den < 1 ? b / (1 - r.den) : kInfinity;
      const Real unshared = g_sum + Real(n) * (r.R + 4) * z * 0x1p60;
      if (r.den > 0.25 && (a.kv_splits == 1 || n == 1) && unshared < 0.5) {
        Real reach = 0, widest_v = 0, small = 0;
        for (Index t = 0; t < n; ++t) {
          reach = std::max(reach, std::abs(v(t) - o));
          widest_v = std::max(widest_v, std::abs(v(t)));
          if (std::abs(v(t)) < tiny) small += r.p[at(t)] * (1 + common[at(t)]) * std::abs(v(t));
        }
        const Real lost_of_p = flushes && a.p.roundoff > 0 ? a.p.underflow / a.p.roundoff : a.p.underflow;
        const Real narrowed = a.p.roundoff + Real(n) * lost_of_p;
        b = std::min(b, reach + widest_v * (g + narrowed * (1 + g) + 2 * unshared) / (1 - unshared) +
                            small + (r.R + 4) * z * Real(2 * n + 8));
      }
      r.o.push_back(o);
      r.b_o.push_back((b + 3 * u_s * (std::abs(o) + b)) * kSlack + flush);
    }
    const Real unshared = g_sum + Real(n) * (r.R + 4) * z * 0x1p60;
    const Real lost = std::min(r.den < 1 ? -std::log1p(-r.den) : kInfinity,
                               unshared < 1 ? largest - std::log1p(-unshared) : kInfinity);
    r.b_lse = (lost +
               u_s * (8 * (r.lse - r.m) + 5 * std::abs(r.m) + std::abs(r.lse) + 2)) *
                  kSlack +
              (flush > 0 ? z : 0);
    return r;
  }

  struct Gradients {
    std::vector<Real> dq, dk, dv;
  };

  Gradients gradients() const {
    const auto zeros_of = [](const Shape& shape) {
      return std::vector<Real>(static_cast<std::size_t>(element_count(shape)), 0);
    };
    Gradients b = {zeros_of(p.q_shape()), zeros_of(p.k_shape()), zeros_of(p.v_shape())};
    std::vector<Real> dk_value = b.dk, dv_value = b.dv;
    std::vector<bool> seen(b.dk.size() + b.dv.size() + 1, false);
    const Index group = p.group_size(), rows = group * p.query_len;
    const Real dk_share =
        share(a.dk, roundings(a.dk, rows, rows + 4 * group) + 8, u(a.dk)) + 3 * u_s;
    const Real dv_share = share(a.dv, roundings(a.dv, rows, rows + 4 * group) + 8, u(a.dv));
    for (Index head = 0; head < p.query_heads; ++head) {
      for (Index i = 0; i < p.query_len; ++i) {
        const Row r = row(head, i);
        const Index n = Index(r.key.size()), kh = head / group;
        if (n == 0) continue;
        const Index span = r.key.back() - r.key.front() + 1;
        const auto d_o = [&](Index c) { return Real(in.d_o.at(0, head, i, c)); };
        const Real lse_error =
            r.b_lse + Real(unit_roundoff(p.lse_dtype())) * ulps() * (std::abs(r.lse) + r.b_lse);
        const Real d = sum(p.value_dim, [&](Index c) { return d_o(c) * r.o[std::size_t(c)]; });
        std::vector<Real> dp, dp_error, rho, e_p;
        for (std::size_t t = 0; t < r.key.size(); ++t) {
          const auto v = [&](Index c) { return Real(in.v.at(0, kh, r.key[t], c)); };
          dp.push_back(sum(p.value_dim, [&](Index c) { return d_o(c) * v(c); }));
          dp_error.push_back(
              sum(p.value_dim,
                  [&](Index c) {
                    const Real x = std::abs(d_o(c)), y = std::abs(v(c));
                    return x * y *
                           (share(a.dp, roundings(a.dp, p.value_dim, p.value_dim), u(a.dp)) +
                            Real(int(x < tiny) + int(y < tiny)));
                  }) +
              z * Real(p.value_dim));
          const Real size = std::max(std::abs(r.s[t]), std::abs(r.lse));
          const Real kappa = r.s_error[t] + 6 * u_s * size + 5 * u_s * (r.lse - r.s[t]) + 2 * e_x;
          rho.push_back(growth(kappa * kSlack + lse_error));
          e_p.push_back(
              rounding_error(a.p, flushes, 1, r.p[t] * std::max(Real(0), 1 - rho[t]), r.p[t]) *
              (1 + rho[t]));
        }
        const auto at = [](Index t) { return std::size_t(t); };
        const Real widest = std::max(u(a.dp), u_s);
        const Real g_c = gamma_of(Real(p.value_dim + 2), widest);
        const Real by_channel =
            sum(p.value_dim,
                [&](Index c) {
                  const Real o = std::abs(r.o[at(c)]), x = std::abs(d_o(c));
                  const Real error = r.b_o[at(c)] +
                                     ulps() * Real(unit_roundoff(p.dtype)) * (o + r.b_o[at(c)]) +
                                     ulps() * Real(half_smallest_subnormal(p.dtype)) + flush;
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
        const Real e_d = std::max(by_channel, by_key);

        const Real dq_share = share(a.dq, roundings(a.dq, n, span) + 8, u(a.dq)) + 3 * u_s;
        const Real kept = a.ds_scaled == Choice::last    ? 1
                          : a.ds_scaled == Choice::first ? 1 / tau
                                                         : 1 / std::min(Real(1), tau);
        std::vector<Real> ds, stray, total, p_error;
        for (std::size_t t = 0; t < r.key.size(); ++t) {
          const Real x = dp[t] - d;
          const Real x_error = dp_error[t] + 3 * u_s * (std::abs(dp[t]) + std::abs(d));
          const Real e = r.p[t] * ((1 + rho[t]) * x_error + rho[t] * std::abs(x)) +
                         (z + (from_p ? 0 : e_p[t])) * (std::abs(x) + x_error + e_d) + 2 * z;
          const Real ds_error = e + r.p[t] * (1 + rho[t]) * e_d;
          const Real size = r.p[t] * std::abs(x);
          const Real rounding = rounding_error(a.ds, flushes, kept,
                                               std::max(Real(0), size - ds_error), size + ds_error);
          ds.push_back(r.p[t] * x);
          stray.push_back(e + rounding + r.p[t] * rho[t] * e_d);
          total.push_back(ds_error + rounding);
          p_error.push_back(r.p[t] * rho[t] + e_p[t] + z);
        }
        for (Index c = 0; c < p.head_dim; ++c) {
          const auto k = [&](Index t) { return Real(in.k.at(0, kh, r.key[at(t)], c)); };
          const Real value = tau * std::abs(sum(n, [&](Index t) { return ds[at(t)] * k(t); }));
          const Real mean = std::abs(sum(n, [&](Index t) { return r.p[at(t)] * k(t); }));
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
              tau * e_d * (1 + dq_share) * mean + z * (1 + tau) * Real(2 * n + 8);
          b.dq[at(dense_index(p.q_shape(), 0, head, i, c))] =
              (bound + 3 * u_s * (value + bound)) * kSlack + flush;
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
            dv_value[e] += r.p[t] * d_o(c);
            b.dv[e] += x * (p_error[t] * (1 + dv_share) + r.p[t] * dv_share +
                            (x < tiny ? r.p[t] + p_error[t] : 0));
            seen[b.dk.size() + e] = true;
          }
        }
      }
    }
    const auto finish = [&](std::vector<Real>& bound, const std::vector<Real>& value,
                            std::size_t offset, Real underflow) {
      for (std::size_t e = 0; e < bound.size(); ++e) {
        if (!seen[offset + e]) continue;
        bound[e] += underflow * Real(rows + 8);
        bound[e] = (bound[e] + 3 * u_s * (std::abs(value[e]) + bound[e])) * kSlack + flush;
      }
    };
    finish(b.dk, dk_value, 0, 2 * z * (1 + tau));
    finish(b.dv, dv_value, b.dk.size(), 2 * z);
    return b;
  }

 private:
  Real ulps() const { return a.output_rounding == Rounding::nearest ? 1 : 2; }

  const Problem& p;
  const Inputs& in;
  const Arithmetic& a;
  Real tau, z, u_s, e_x, tiny, tiny_score, flush;
  bool flushes;
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
  return a;
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
  for (int repeat = 0; repeat < 300 && !HasFailure(); ++repeat) {
    const auto size = [&](Index most) {
      return static_cast<Index>(random() % std::uint64_t(most)) + 1;
    };
    const DType dtype = std::array{DType::f32, DType::f16, DType::bf16}[random() % 3];
    const Index group = size(2);
    const Problem problem = {
        .dtype = dtype,
        .query_heads = 2 * group,
        .key_heads = 2,
        .query_len = size(11),
        .key_len = size(90),
        .head_dim = size(9),
        .value_dim = size(9),
        .scale = std::array{0.125, -0.5, 2.0}[random() % 3],
        .mask = repeat % 2 ? Mask::full() : Mask::window(60, 3, Anchor::bottom_right),
        .backward = true};
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
    const Inputs inputs = {.q = values(problem.q_shape(), spread),
                           .k = values(problem.k_shape(), 1),
                           .v = values(problem.v_shape(), 1),
                           .d_o = values(problem.o_shape(), 1)};
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
        lse.push_back(empty ? 0 : row.b_lse);
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
  }
}

// Declaring less leaves room for less.
TEST(BoundTest, TheLoosestDeclarationBoundsEveryOther) {
  std::mt19937_64 random(2);
  const Problem problem = {.dtype = DType::f16,
                           .query_len = 9,
                           .key_len = 20,
                           .head_dim = 5,
                           .value_dim = 6,
                           .scale = 0.5,
                           .backward = true};
  std::normal_distribution<double> normal;
  const auto values = [&](const Shape& shape) {
    Values result = zeros(shape);
    for (double& value : result.data) value = round_to(DType::f16, normal(random));
    return result;
  };
  const Inputs inputs = {.q = values(problem.q_shape()),
                         .k = values(problem.k_shape()),
                         .v = values(problem.v_shape()),
                         .d_o = values(problem.o_shape())};
  const auto widest = expect_backward(problem, inputs, loosest(DType::f16));
  const auto widest_forward = expect_forward(problem, inputs, loosest(DType::f16));
  for (int repeat = 0; repeat < 200; ++repeat) {
    Arithmetic arithmetic = any_arithmetic(DType::f16, random);
    for (Product* product : {&arithmetic.qk, &arithmetic.pv, &arithmetic.dp, &arithmetic.dv,
                             &arithmetic.dq, &arithmetic.dk}) {
      product->operand_roundoff = 0;
    }
    if (arithmetic.rescales_output) arithmetic.key_block = 0;  // smaller blocks divide more often
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
  }
}

}  // namespace
}  // namespace attest
