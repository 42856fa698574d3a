// Attention in f32, full or causal, whose diagonal lies `off` keys too far.
#pragma once

#include <attest/kernel.h>

#include <cmath>

inline void attend(const attest::Call& c, std::int64_t off) {
  const attest::Problem& p = c.problem;
  const auto q = c.q.view<float>(), k = c.k.view<float>(), v = c.v.view<float>();
  const auto o = c.o.view<float>(), lse = c.lse.view<float>();
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t h = 0; h < p.query_heads; ++h) {
      const std::int64_t g = p.key_head(h);
      for (std::int64_t i = 0; i < p.query_len; ++i) {
        const std::int64_t end = std::min(p.keys(b, i).end + off, p.key_len);
        std::vector<float> s;
        float top = -INFINITY, sum = 0;
        for (std::int64_t j = 0; j < end; ++j) {
          float dot = 0;
          for (std::int64_t d = 0; d < p.head_dim; ++d) dot += q(b, h, i, d) * k(b, g, j, d);
          top = std::max(top, s.emplace_back(dot * static_cast<float>(p.scale)));
        }
        for (float& x : s) sum += x = std::exp(x - top);
        lse(b, h, i, 0) = end > 0 ? top + std::log(sum) : -INFINITY;
        for (std::int64_t d = 0; d < p.value_dim; ++d) {
          float x = 0;
          for (std::int64_t j = 0; j < end; ++j)
            x += s[static_cast<std::size_t>(j)] * v(b, g, j, d);
          o(b, h, i, d) = end > 0 ? x / sum : 0;
        }
      }
    }
  }
}

inline attest::Declaration declared() {
  return attest::declare()
      .profiles({"forward-core"})
      .dtypes({"f32"})
      .features({"causal", "lse", "gqa", "value-dim", "any-scale", "zero-sizes", "strides"})
      .arithmetic("exact-f32");
}
