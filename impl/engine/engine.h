// The tile engine: the steps of attention on tiles, vectorised for each instruction set.
//
// Kernels are ordinary code that calls these steps; only what runs inside a step knows about vector
// registers. Between the steps, tiles are plain row-major matrices that a kernel may change as it
// likes: mask, cap, bias, dropout. Two kinds of matrices take part:
//
//   Tile       row-major, its rows `stride` elements apart. Steps work on whole panels of columns:
//              they may read and overwrite the columns up to the next multiple of `panel`, whose
//              values mean nothing. So `stride` must be at least padded(columns).
//   Panels     the right-hand side of a product, its columns cut into strips of `panel`, one strip
//              after the other, each row by row; the last one is filled up with zeros:
//
//                columns  0 .. W-1   W .. 2W-1        in memory: row 0 of A, row 1 of A, ...,
//                rows   [     A    ][    B    ]                  row 0 of B, row 1 of B, ...
//
// Everything is computed in R (f32, or f64 for f64), each sum in one chain of fused multiply-adds
// (of multiplications and additions where the processor has none) in the order of its terms. So
// bits depend on the target and on where a kernel cuts blocks, and on nothing else (DET-1, DET-3).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "spec/attest_plugin.h"

namespace attest::impl {

// A matrix as a tensor stores it; strides count elements.
struct Stored {
  const void* data;
  attest_dtype dtype;
  std::int64_t rows, columns;
  std::int64_t row_stride, column_stride;
};
struct StoredResult {
  void* data;
  attest_dtype dtype;
  std::int64_t rows, columns;
  std::int64_t row_stride, column_stride;
};

template <class R>
struct Tile {
  R* data;
  std::int64_t rows, columns;
  std::int64_t stride;

  R* row(std::int64_t i) const { return data + i * stride; }
};

template <class R>
struct Panels {
  const R* data;
  std::int64_t rows;  // those in memory; a product takes as many as its sums are long

  Panels from_row(std::int64_t row, std::int64_t panel) const { return {data + row * panel, rows}; }
};

// What remains of the rows of a query block between its key blocks. After any number of keys, over
// those seen so far: max is the largest score of a row, sum the sum of exp(score - max), and o the
// sum of exp(score - max) v. Before the first visible key they are -inf, 0 and 0.
template <class R>
struct RowState {
  R* max;
  R* sum;
  Tile<R> o;
};

// All steps for one instruction set. A product's `inner` is the length of its sums.
template <class R>
struct Engine {
  std::string_view target;  // "avx3", "avx2", "sse4", "neon", "scalar", "baseline"
  std::int64_t panel;       // W: columns of a panel
  std::int64_t strip;       // rows that are computed at a time: blocks do best with a multiple

  // ---- Between tensors and tiles: conversions are exact, and correctly rounded when storing.

  // Panels of the matrix, padded(columns) * rows elements, or of factor times its transpose,
  // padded(rows) * columns elements. Answers whether all elements are finite.
  bool (*pack)(const Stored& from, R* panels);
  bool (*pack_transposed)(const Stored& from, R factor, R* panels);
  // The matrix as a tile.
  void (*load)(const Stored& from, const Tile<R>& to);
  // The matrix = factor * tile / divisor of the row; without divisors, factor * tile.
  void (*store)(const Tile<R>& from, R factor, const R* row_divisors, const StoredResult& to);

  // ---- Products.

  // c = factor a b for a[rows, inner] and panels b[inner, columns]. Scores that leave the range
  // although factor a b does not are made again in a wider type (SOFTMAX-2). A factor of 1 is a
  // little faster: a scale that is a power of two, and so exact anywhere, is better packed.
  void (*multiply)(const Tile<R>& a, const Panels<R>& b, R factor, const Tile<R>& c);
  // c += w b for w[rows, inner], and c += w' b for w[inner, rows]. Where w is 0, b takes no part if
  // `skip_zeros`: else 0 times a NaN would be NaN. Otherwise that changes no bit but the sign of a
  // zero, and takes longer.
  void (*add_product)(const Tile<R>& w, const Panels<R>& b, bool skip_zeros, const Tile<R>& c);
  void (*add_transposed_product)(const Tile<R>& w, const Panels<R>& b, bool skip_zeros,
                                 const Tile<R>& c);

  // ---- Softmax.

  // Takes one more block of scores into the softmax of its rows, and turns them into weights
  // exp(score - max) of the block's values. Does not add them to o, but scales o to the new max.
  void (*absorb)(const Tile<R>& scores, const RowState<R>& state);
  // The weights of the backward pass, for scores s and products dp = dO V':
  // p = exp(s - lse), ds = p (dp - delta), both 0 where s is -inf. In place: s becomes p, dp ds.
  void (*differentiate)(const Tile<R>& s, const Tile<R>& dp, const R* lse, const R* delta);

  // s = limit tanh(s / limit), and slopes = 1 - tanh(s / limit)^2 unless its data is null.
  void (*cap)(const Tile<R>& s, R limit, const Tile<R>& slopes);
  // x[0, n) = exp(x), in place. Errors of the functions are stated in functions.inl.
  void (*exp)(R* x, std::int64_t n);

  std::int64_t padded(std::int64_t columns) const { return (columns + panel - 1) / panel * panel; }
};

// The engines that this processor can run, the fastest first.
template <class R>
std::span<const Engine<R>> engines();
template <>
std::span<const Engine<float>> engines<float>();
template <>
std::span<const Engine<double>> engines<double>();

}  // namespace attest::impl
