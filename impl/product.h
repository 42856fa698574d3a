// The matrix products of attention, on tiles: plain loops whose innermost one runs along memory and
// has independent steps, so that compilers vectorise it without reordering a sum.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace attest::impl {

// c[rows, columns] = a b, or a' b: `inner` is the length of the sums.
struct ProductSize {
  std::int64_t rows, columns, inner;
};

template <class R>
void add_scaled_row(R factor, const R* __restrict row, std::int64_t columns, R* __restrict sum) {
  for (std::int64_t c = 0; c < columns; ++c) sum[c] += factor * row[c];
}

// c = a b, for a[rows, inner] and b[inner, columns].
template <class R>
void multiply(const ProductSize& size, const R* a, const R* b, R* c) {
  std::fill_n(c, size.rows * size.columns, R(0));
  for (std::int64_t i = 0; i < size.rows; ++i) {
    for (std::int64_t k = 0; k < size.inner; ++k) {
      add_scaled_row(a[i * size.inner + k], b + k * size.columns, size.columns,
                     c + i * size.columns);
    }
  }
}

// c += w b, for weights w[rows, inner] of keys: P, or its gradient. The weight of a hidden key is
// exactly 0, and such a key takes no part: 0 times a NaN in it would be NaN.
template <class R>
void add_weighted(const ProductSize& size, const R* w, const R* b, R* c) {
  for (std::int64_t i = 0; i < size.rows; ++i) {
    for (std::int64_t k = 0; k < size.inner; ++k) {
      const R weight = w[i * size.inner + k];
      if (weight == 0) continue;
      add_scaled_row(weight, b + k * size.columns, size.columns, c + i * size.columns);
    }
  }
}

// c += w' b, for weights w[inner, rows].
template <class R>
void add_weighted_transposed(const ProductSize& size, const R* w, const R* b, R* c) {
  for (std::int64_t k = 0; k < size.inner; ++k) {
    for (std::int64_t i = 0; i < size.rows; ++i) {
      const R weight = w[k * size.rows + i];
      if (weight == 0) continue;
      add_scaled_row(weight, b + k * size.columns, size.columns, c + i * size.columns);
    }
  }
}

// scores[queries, keys] = scale q k', for k_transposed[channels, keys] (SCORE-1). `size` is
// {queries, keys, channels}.
//
// q.k may leave the range although scale q.k does not; the few such scores are made again in a type
// with a larger range (SOFTMAX-2).
template <class R>
void multiply_scores(const ProductSize& size, double scale, const R* q, const R* k_transposed,
                     R* scores) {
  using Wider = std::conditional_t<std::is_same_v<R, double>, long double, double>;
  multiply(size, q, k_transposed, scores);
  bool all_finite = true;
  for (std::int64_t n = 0; n < size.rows * size.columns; ++n) {
    scores[n] = static_cast<R>(scale * scores[n]);
    all_finite &= std::abs(scores[n]) <= std::numeric_limits<R>::max();
  }
  if (all_finite) return;
  for (std::int64_t n = 0; n < size.rows * size.columns; ++n) {
    if (std::isfinite(scores[n])) continue;
    const R* query = q + n / size.columns * size.inner;
    const R* key = k_transposed + n % size.columns;
    Wider dot = 0;
    for (std::int64_t d = 0; d < size.inner; ++d) {
      dot += static_cast<Wider>(query[d]) * static_cast<Wider>(key[d * size.columns]);
    }
    scores[n] = static_cast<R>(static_cast<Wider>(scale) * dot);
  }
}

}  // namespace attest::impl
