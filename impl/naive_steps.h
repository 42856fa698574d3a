// Who computes the steps of naive.cpp: loops that anyone would write, or the tile engine.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "impl/engine/engine.h"
#include "impl/product.h"
#include "impl/tile.h"

namespace attest::impl {

// The right-hand side of a product, in the form that the steps want.
template <class R>
struct Right {
  R* data;
  std::int64_t rows;
  bool finite;
};

// Loops that anyone would write.
template <class R>
class TextbookSteps {
 public:
  // How far apart the rows of a result are, and how many columns a right-hand side takes.
  std::int64_t stride(std::int64_t columns) const { return columns; }
  std::int64_t width(std::int64_t columns) const { return columns; }

  Right<R> pack(const Tile<R>& matrix, R*) const { return {matrix.data, matrix.rows, false}; }

  Right<R> pack_transposed(const Tile<R>& matrix, R* memory) const {
    for (std::int64_t c = 0; c < matrix.columns; ++c) {
      for (std::int64_t i = 0; i < matrix.rows; ++i) {
        memory[c * matrix.rows + i] = matrix.row(i)[c];
      }
    }
    return {memory, matrix.columns, false};
  }

  // s = scale q k', for k and what pack_transposed() made of it.
  void multiply_scores(double scale, const Tile<R>& q, const Tile<R>&, const Right<R>& k_transposed,
                       const Tile<R>& s) const {
    impl::multiply_scores({s.rows, s.columns, q.columns}, scale, q.data, k_transposed.data, s.data);
  }
  // c = a b.
  void multiply(const Tile<R>& a, const Right<R>& b, const Tile<R>& c) const {
    impl::multiply({c.rows, c.columns, a.columns}, a.data, b.data, c.data);
  }
  // c += w b and c += w' b; where w is 0, b takes no part unless it is finite.
  void add_product(const Tile<R>& w, const Right<R>& b, const Tile<R>& c) const {
    add_weighted({c.rows, c.columns, w.columns}, w.data, b.data, c.data);
  }
  void add_transposed_product(const Tile<R>& w, const Right<R>& b, const Tile<R>& c) const {
    add_weighted_transposed({c.rows, c.columns, w.rows}, w.data, b.data, c.data);
  }

  // Turns scores into exp(score - max) of their row, where the sink takes part in max and sum.
  void exponentiate(const Tile<R>& s, R sink, R* max, R* sum) const {
    for (std::int64_t i = 0; i < s.rows; ++i) {
      R* row = s.row(i);
      max[i] = sink;
      for (std::int64_t j = 0; j < s.columns; ++j) max[i] = std::max(max[i], row[j]);
      // Without this, a row of hidden keys would ask for (-inf) - (-inf).
      const R base = max[i] == -std::numeric_limits<R>::infinity() ? R(0) : max[i];
      sum[i] = std::exp(sink - base);
      for (std::int64_t j = 0; j < s.columns; ++j) {
        row[j] = std::exp(row[j] - base);
        sum[i] += row[j];
      }
    }
  }
};

// The engine's, block by block: what a step reads stays in the caches while it is used. Blocks
// change the order in which sums are visited, but not the order within a sum.
template <class R>
class EngineSteps {
 public:
  // An odd number of panels, lest all rows share a few lines of the cache.
  std::int64_t stride(std::int64_t columns) const {
    return (engine_.padded(columns) / engine_.panel | 1) * engine_.panel;
  }
  std::int64_t width(std::int64_t columns) const { return engine_.padded(columns); }

  Right<R> pack(const Tile<R>& matrix, R* memory) const {
    return {memory, matrix.rows, engine_.pack(stored(matrix), memory)};
  }
  Right<R> pack_transposed(const Tile<R>& matrix, R* memory) const {
    return {memory, matrix.columns, engine_.pack_transposed(stored(matrix), R(1), memory)};
  }

  void multiply_scores(double scale, const Tile<R>& q, const Tile<R>& k,
                       const Right<R>& k_transposed, const Tile<R>& s) const {
    const R factor = static_cast<R>(scale);
    if (scale == 0 || std::isnormal(factor)) {
      multiply_by(factor, q, k_transposed, s);
    } else {
      multiply_wider(scale, q, k, s);
    }
  }
  void multiply(const Tile<R>& a, const Right<R>& b, const Tile<R>& c) const {
    multiply_by(R(1), a, b, c);
  }
  void add_product(const Tile<R>& w, const Right<R>& b, const Tile<R>& c) const {
    for_each_block(c.rows, kRows, [&](std::int64_t row, std::int64_t rows) {
      for_each_block(w.columns, kColumns, [&](std::int64_t inner, std::int64_t count) {
        engine_.add_product({w.row(row) + inner, rows, count, w.stride},
                            panels(b).from_row(inner, engine_.panel), !b.finite,
                            {c.row(row), rows, c.columns, c.stride});
      });
    });
  }
  void add_transposed_product(const Tile<R>& w, const Right<R>& b, const Tile<R>& c) const {
    for_each_block(w.rows, kRows, [&](std::int64_t inner, std::int64_t count) {
      for_each_block(c.rows, kColumns, [&](std::int64_t row, std::int64_t rows) {
        engine_.add_transposed_product({w.row(inner) + row, count, rows, w.stride},
                                       panels(b).from_row(inner, engine_.panel), !b.finite,
                                       {c.row(row), rows, c.columns, c.stride});
      });
    });
  }

  void exponentiate(const Tile<R>& s, R sink, R* max, R* sum) const {
    // Each row has seen its sink already.
    std::fill_n(max, s.rows, sink);
    std::fill_n(sum, s.rows, sink == -std::numeric_limits<R>::infinity() ? R(0) : R(1));
    engine_.absorb(s, {max, sum, {nullptr, s.rows, 0, 0}});
  }

 private:
  static constexpr std::int64_t kRows = 96, kColumns = 240;  // multiples of a strip

  static Stored stored(const Tile<R>& tile) {
    constexpr attest_dtype kDType = std::is_same_v<R, double> ? ATTEST_F64 : ATTEST_F32;
    return {tile.data, kDType, tile.rows, tile.columns, tile.stride, 1};
  }
  static Panels<R> panels(const Right<R>& b) { return {b.data, b.rows}; }

  template <class Work>
  static void for_each_block(std::int64_t size, std::int64_t block, const Work& work) {
    for (std::int64_t begin = 0; begin < size; begin += block) {
      work(begin, std::min(block, size - begin));
    }
  }

  void multiply_by(R factor, const Tile<R>& a, const Right<R>& b, const Tile<R>& c) const {
    for_each_block(c.rows, kRows, [&](std::int64_t row, std::int64_t rows) {
      engine_.multiply({a.row(row), rows, a.columns, a.stride}, panels(b), factor,
                       {c.row(row), rows, c.columns, c.stride});
    });
  }

  // For a scale that R does not hold as it holds others.
  static void multiply_wider(double scale, const Tile<R>& q, const Tile<R>& k, const Tile<R>& s) {
    for (std::int64_t i = 0; i < s.rows; ++i) {
      for (std::int64_t j = 0; j < s.columns; ++j) {
        long double dot = 0;
        for (std::int64_t c = 0; c < q.columns; ++c) {
          dot += static_cast<long double>(q.row(i)[c]) * static_cast<long double>(k.row(j)[c]);
        }
        s.row(i)[j] = static_cast<R>(scale * dot);
      }
    }
  }

  const Engine<R>& engine_ = engines<R>().front();
};

}  // namespace attest::impl
