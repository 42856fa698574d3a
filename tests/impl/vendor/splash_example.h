// A call of splash attention, and what plain loops in double make of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "impl/vendor/splash/splash_api.h"

namespace attest::vendor::splash {

inline std::vector<float> numbers(std::int64_t size, std::uint32_t seed, float scale = 1) {
  std::vector<float> made;
  for (std::int64_t n = 0; n < size; ++n) {
    seed = seed * 1664525u + 1013904223u;
    made.push_back(scale * (static_cast<float>(seed >> 8) / 8388608.0f - 1));
  }
  return made;
}

// One call, and its numbers.
struct Example {
  std::int64_t q_heads = 2, kv_heads = 1, q_len = 256, kv_len = 256, dim = 128;
  MaskPtr mask = causal_mask({256, 256});
  std::optional<double> soft_cap = {};
  std::optional<SegmentIds> segments = {};
  std::vector<float> q = {}, k = {}, v = {}, d_o = {};

  Example& drawn() {
    q = numbers(q_heads * q_len * dim, 1, 0.3f), k = numbers(kv_heads * kv_len * dim, 2);
    v = numbers(kv_heads * kv_len * dim, 3), d_o = numbers(q_heads * q_len * dim, 4);
    return *this;
  }
  Array<const float> q_array(const std::vector<float>& data) const {
    return {.data = data.data(), .heads = q_heads, .seq = q_len, .dim = dim};
  }
  Array<const float> kv_array(const std::vector<float>& data) const {
    return {.data = data.data(), .heads = kv_heads, .seq = kv_len, .dim = dim};
  }
  MultiHeadMask masks() const {
    return MultiHeadMask(std::vector<MaskPtr>(static_cast<std::size_t>(q_heads), mask));
  }
  const SegmentIds* segment_ids() const { return segments ? &*segments : nullptr; }
};

struct Results {
  std::vector<double> o, lse, dq, dk, dv;
};

// In double: rows that see no key are left at 0.
inline Results plain_loops(const Example& e) {
  HostCount count;
  const BoolArray seen = dense(*e.mask, count);
  const auto at = [&](std::int64_t head, std::int64_t row, std::int64_t rows) {
    return static_cast<std::size_t>((head * rows + row) * e.dim);
  };
  Results r{std::vector<double>(e.q.size()),
            {},
            std::vector<double>(e.q.size()),
            std::vector<double>(e.k.size()),
            std::vector<double>(e.k.size())};
  const auto dot = [&](const std::vector<float>& a, std::size_t x, const std::vector<float>& b,
                       std::size_t y) {
    double sum = 0;
    for (std::size_t d = 0; d < static_cast<std::size_t>(e.dim); ++d)
      sum += double(a[x + d]) * b[y + d];
    return sum;
  };
  for (std::int64_t h = 0; h < e.q_heads; ++h) {
    const std::int64_t g = h / (e.q_heads / e.kv_heads);
    for (std::int64_t i = 0; i < e.q_len; ++i) {
      const std::size_t row = at(h, i, e.q_len);
      std::vector<std::int64_t> keys;
      std::vector<double> p, raw;
      for (std::int64_t j = 0; j < e.kv_len; ++j) {
        if (!seen.data[static_cast<std::size_t>(i * e.kv_len + j)]) continue;
        if (e.segments && e.segments->q[size_t(i)] != e.segments->kv[size_t(j)]) continue;
        raw.push_back(dot(e.q, row, e.k, at(g, j, e.kv_len)));
        const double cap = e.soft_cap.value_or(0);
        p.push_back(std::exp(cap > 0 ? cap * std::tanh(raw.back() / cap) : raw.back()));
        keys.push_back(j);
      }
      const double sum = std::accumulate(p.begin(), p.end(), 0.0);
      r.lse.push_back(std::log(sum));
      double di = 0;
      std::vector<double> dp;
      for (std::size_t n = 0; n < keys.size(); ++n) {
        p[n] /= sum;
        const std::size_t key = at(g, keys[n], e.kv_len);
        dp.push_back(dot(e.d_o, row, e.v, key));
        di += p[n] * dp[n];
        for (std::size_t d = 0; d < static_cast<std::size_t>(e.dim); ++d) {
          r.o[row + d] += p[n] * e.v[key + d];
          r.dv[key + d] += p[n] * e.d_o[row + d];
        }
      }
      for (std::size_t n = 0; n < keys.size(); ++n) {
        const std::size_t key = at(g, keys[n], e.kv_len);
        double ds = p[n] * (dp[n] - di);
        if (e.soft_cap) ds *= 1 - std::pow(std::tanh(raw[n] / *e.soft_cap), 2);
        for (std::size_t d = 0; d < static_cast<std::size_t>(e.dim); ++d) {
          r.dq[row + d] += ds * e.k[key + d];
          r.dk[key + d] += ds * e.q[row + d];
        }
      }
    }
  }
  return r;
}

template <class T>
double furthest(const std::vector<T>& found, const std::vector<double>& exact) {
  double most = found.size() == exact.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t n = 0; n < exact.size() && n < found.size(); ++n) {
    const double off = std::abs(double(found[n]) - exact[n]);
    most = off <= most ? most : off;  // NaN is furthest
  }
  return most;
}

}  // namespace attest::vendor::splash
