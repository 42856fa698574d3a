// Kernels on kernel.h alone, in every way that it offers: "glue/sees" asks for each key whether a
// row sees it, under any mask and dropout, padded, packed or in pages; "glue/bhsd" and "glue/bshd"
// have dense copies; "glue/throws" throws, and "glue/throws_a_number" what has no words.
#include <cmath>
#include <limits>
#include <stdexcept>

#include "spec/kernel.h"

namespace {

using std::int64_t;

constexpr float kNothing = -std::numeric_limits<float>::infinity();

// One row, of anything that gives its elements, and takes its results.
template <class Score, class Value, class Result>
float attend(int64_t keys, int64_t channels, Score score, Value value, Result result) {
  std::vector<float> s;
  float top = kNothing, sum = 0;
  for (int64_t j = 0; j < keys; ++j) top = std::max(top, s.emplace_back(score(j)));
  for (float& x : s) sum += x = top > kNothing ? std::exp(x - top) : 0;
  for (int64_t d = 0; d < channels; ++d) {
    float o = 0;
    for (int64_t j = 0; j < keys; ++j) {
      const float weight = s[static_cast<std::size_t>(j)];
      if (weight > 0) o += weight * value(j, d);
    }
    result(d, sum > 0 ? o / sum : 0);
  }
  return sum > 0 ? top + std::log(sum) : kNothing;
}

template <class Visit>
void for_each_row(const attest::Problem& p, Visit visit) {
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.query_heads; ++h)
      for (int64_t i = 0; i < p.rows(b); ++i) visit(b, h, i, p.key_head(h));
}

void sees(const attest::Call& c) {
  attest::with_element_type(c.problem.dtype, [&](auto element) {
    using T = decltype(element);
    const attest::Problem& p = c.problem;
    const auto q = c.q.view<T>(), k = c.k.view<T>(), v = c.v.view<T>(), o = c.o.view<T>();
    const auto lse = c.lse.view<float>();
    for_each_row(p, [&](int64_t b, int64_t h, int64_t i, int64_t g) {
      const attest::Place row = p.query_place(b, i);
      const auto score = [&](int64_t j) {
        if (!p.sees(b, h, i, j)) return kNothing;
        float dot = 0;
        for (int64_t d = 0; d < p.head_dim; ++d) {
          dot += float(q(row, h, d)) * float(k(p.key_place(b, j), g, d));
        }
        return dot * float(p.scale);
      };
      const auto value = [&](int64_t j, int64_t d) {
        const bool kept = p.dropout == ATTEST_DROPOUT_NONE || c.keep.bit(b, h, i, j);
        const auto share = static_cast<float>(1 / (1 - p.dropout_probability));
        return kept ? share * float(v(p.key_place(b, j), g, d)) : 0;
      };
      const auto result = [&](int64_t d, float x) { o(row, h, d) = static_cast<T>(x); };
      lse(row, h, 0) = attend(p.columns(b), p.value_dim, score, value, result);
    });
  });
}

attest::Pass dense(attest::Order order) {
  return [order](const attest::Call& c) {
    const attest::Problem& p = c.problem;
    const auto q = attest::gather<float>(c.q, order), k = attest::gather<float>(c.k, order);
    const auto v = attest::gather<float>(c.v, order);
    auto o = attest::dense<float>(c.o, order), lse = attest::dense<float>(c.lse, order);
    // From the numbers as they lie.
    const auto at = [&](int64_t b, int64_t h, int64_t s, int64_t d, int64_t heads, int64_t rows,
                        int64_t channels) {
      return order == attest::Order::bhsd ? ((b * heads + h) * rows + s) * channels + d
                                          : ((b * rows + s) * heads + h) * channels + d;
    };
    for_each_row(p, [&](int64_t b, int64_t h, int64_t i, int64_t g) {
      const int64_t begin = p.keys(b, i).begin;
      const auto score = [&](int64_t n) {
        float dot = 0;
        for (int64_t d = 0; d < p.head_dim; ++d) {
          dot += q.data()[at(b, h, i, d, p.query_heads, p.query_len, p.head_dim)] *
                 k.data()[at(b, g, begin + n, d, p.key_heads, p.key_len, p.head_dim)];
        }
        return dot * static_cast<float>(p.scale);
      };
      const auto value = [&](int64_t n, int64_t d) {
        return v.data()[at(b, g, begin + n, d, p.key_heads, p.key_len, p.value_dim)];
      };
      lse(b, h, i, 0) = attend(p.keys(b, i).size(), p.value_dim, score, value,
                               [&](int64_t d, float x) { o(b, h, i, d) = x; });
    });
    attest::scatter(o, c.o);
    attest::scatter(lse, c.lse);
  };
}

attest::Declaration of_core() {
  return attest::declare()
      .dtypes({"f32", "f16", "bf16"})
      .arithmetic("exact-f32")
      .features({"causal", "window", "lse", "gqa", "value-dim", "any-scale", "zero-sizes",
                 "strides", "transposed", "expanded", "lengths"});
}

attest::Declaration of_everything() {
  return of_core()
      .profiles({"forward-core", "varlen", "packed", "paged", "masks", "sparse-masks", "dropout"})
      .features({"causal",  "window",     "dense-mask", "prefix",    "segments",  "block-sparse",
                 "dilated", "mask-and",   "mask-or",    "lengths",   "packed",    "paged",
                 "dropout", "lse",        "gqa",        "value-dim", "any-scale", "zero-sizes",
                 "strides", "transposed", "expanded"});
}

}  // namespace

ATTEST_KERNEL("glue/sees", of_everything(), sees)
ATTEST_KERNEL("glue/bhsd", of_core(), dense(attest::Order::bhsd))
ATTEST_KERNEL("glue/bshd", of_core(), dense(attest::Order::bshd))
ATTEST_KERNEL("glue/throws", of_core(),
              [](const attest::Call&) { throw std::runtime_error("no luck today"); })
ATTEST_KERNEL("glue/throws_a_number", of_core(), [](const attest::Call&) { throw 7; })
