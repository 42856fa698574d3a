// @NAME@: attention in plain loops, to be replaced by your own. What it declares, at the end, it
// computes: declare what yours can do, no more (SPEC.md, chapters "Description" and "Limits").
#include <attest/kernel.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace {

using std::int64_t;

constexpr float kNothing = -std::numeric_limits<float>::infinity();

// One row of O and LSE after the other; T is the type of the elements.
template <class T>
void forward_of(const attest::Call& c) {
  const attest::Problem& p = c.problem;
  const auto q = c.q.view<T>(), k = c.k.view<T>(), v = c.v.view<T>(), o = c.o.view<T>();
  const auto lse = c.lse.view<float>();
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.query_heads; ++h) {
      const int64_t g = p.key_head(h);
      for (int64_t i = 0; i < p.rows(b); ++i) {
        const attest::Place row = p.query_place(b, i);
        const auto [begin, end] = p.keys(b, i);
        std::vector<float> s;  // scores, then weights
        float top = kNothing, sum = 0;
        for (int64_t j = begin; j < end; ++j) {
          float dot = 0;
          for (int64_t d = 0; d < p.head_dim; ++d) {
            dot += float(q(row, h, d)) * float(k(p.key_place(b, j), g, d));
          }
          s.push_back(dot * float(p.scale));
          top = std::max(top, s.back());
        }
        for (float& x : s) sum += x = std::exp(x - top);
        lse(row, h, 0) = s.empty() ? kNothing : top + std::log(sum);
        for (int64_t d = 0; d < p.value_dim; ++d) {
          float x = 0;
          for (int64_t j = begin; j < end; ++j) {
            x += s[std::size_t(j - begin)] * float(v(p.key_place(b, j), g, d));
          }
          o(row, h, d) = T(s.empty() ? 0 : x / sum);
        }
      }
    }
  }
}

void forward(const attest::Call& c) {
  attest::with_element_type(c.problem.dtype,
                            [&](auto element) { forward_of<decltype(element)>(c); });
}

// [training]
// On dense copies in float, which are rounded to the format once, at the end.
void backward(const attest::Call& c) {
  const attest::Problem& p = c.problem;
  const auto q = attest::gather<float>(c.q), k = attest::gather<float>(c.k);
  const auto v = attest::gather<float>(c.v), o = attest::gather<float>(c.o);
  const auto d_o = attest::gather<float>(c.d_o), lse = attest::gather<float>(c.lse);
  auto dq = attest::dense<float>(c.dq), dk = attest::dense<float>(c.dk);
  auto dv = attest::dense<float>(c.dv);
  const auto scale = float(p.scale);
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.query_heads; ++h) {
      const int64_t g = p.key_head(h);
      for (int64_t i = 0; i < p.query_len; ++i) {
        float mean = 0;  // of dP, weighted by P: dO . O
        for (int64_t d = 0; d < p.value_dim; ++d) mean += d_o(b, h, i, d) * o(b, h, i, d);
        const auto [begin, end] = p.keys(b, i);
        for (int64_t j = begin; j < end; ++j) {
          float dot = 0, dp = 0;
          for (int64_t d = 0; d < p.head_dim; ++d) dot += q(b, h, i, d) * k(b, g, j, d);
          for (int64_t d = 0; d < p.value_dim; ++d) dp += d_o(b, h, i, d) * v(b, g, j, d);
          const float weight = std::exp(dot * scale - lse(b, h, i, 0));
          const float ds = weight * (dp - mean) * scale;
          for (int64_t d = 0; d < p.value_dim; ++d) dv(b, g, j, d) += weight * d_o(b, h, i, d);
          for (int64_t d = 0; d < p.head_dim; ++d) {
            dq(b, h, i, d) += ds * k(b, g, j, d);
            dk(b, g, j, d) += ds * q(b, h, i, d);
          }
        }
      }
    }
  }
  attest::scatter(dq, c.dq);
  attest::scatter(dk, c.dk);
  attest::scatter(dv, c.dv);
}

// [end]
const attest::Declaration kDeclared =
    attest::declare()
        .version("0.1.0")
        .vendor("@NAME@")
        // [minimal]
        .profiles({"forward-core"})
        .dtypes({"f32"})
        .features({"causal", "lse", "gqa", "value-dim", "any-scale", "zero-sizes", "strides"})
        // [inference]
        .profiles({"forward-core", "varlen"})
        .dtypes({"f32", "f16", "bf16"})
        .features({"causal", "window", "lse", "gqa", "value-dim", "any-scale", "zero-sizes",
                   "strides", "transposed", "expanded", "lengths"})
        // [training]
        .profiles({"forward-core", "training-core"})
        .dtypes({"f32", "f16", "bf16"})
        .features({"causal", "window", "lse", "gqa", "value-dim", "any-scale", "zero-sizes",
                   "strides", "transposed", "expanded", "backward"})
        // [serving]
        .profiles({"forward-core", "varlen", "packed", "paged"})
        .dtypes({"f32", "f16", "bf16"})
        .features({"causal", "window", "lse", "gqa", "value-dim", "any-scale", "zero-sizes",
                   "strides", "transposed", "expanded", "lengths", "packed", "paged"})
        // [end]
        .arithmetic("exact-f32");  // sums in f32, results rounded to the nearest

}  // namespace

// [minimal inference serving]
ATTEST_KERNEL("@NAME@", kDeclared, forward)
// [training]
ATTEST_KERNEL("@NAME@", kDeclared, forward, backward)
// [end]
