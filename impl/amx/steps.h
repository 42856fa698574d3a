// The steps of attention on matrix tiles: products of bf16 matrices, and the work on rows of scores
// that goes on beside them.
//
// Kernels are ordinary code that calls these steps through a table; only what runs inside a step
// knows about tiles. There are two makers of the table, from one and the same code (steps.inl): the
// instructions of Intel's AMX (intrinsics.cpp), and their emulation in the tests, which computes
// the same bits of a product on any processor.
//
// All matrices that take part in products have multiples of kEdge rows and columns, filled up with
// zeros where a sum runs over what is filled up.
#pragma once

#include <cstdint>

namespace attest::impl::amx {

using Bits = std::uint16_t;  // of a bf16

constexpr std::int64_t kEdge = 32;   // two tiles: products are computed in squares of 2 by 2
constexpr std::int64_t kPanel = 16;  // columns of a tile of f32

// At least one square, lest there be empty matrices.
[[gnu::always_inline]] constexpr std::int64_t padded(std::int64_t n) {
  return n <= 0 ? kEdge : (n + kEdge - 1) / kEdge * kEdge;
}

// The left-hand side of a product, row by row.
struct Left {
  const Bits* data;
  std::int64_t stride;
};

// The right-hand side. Its columns are cut into panels of 16, one after the other; in a panel, two
// rows at a time are interleaved, for the instruction adds up pairs of products:
//
//   row 0   a b c ...
//   row 1   A B C ...        in memory:  a A b B c C ...  (row 0 and 1, 16 columns)
//   row 2   d e f ...                    d D e E f F ...  (row 2 and 3)
//   row 3   D E F ...
struct Right {
  const Bits* data;
  std::int64_t rows;  // of the matrix in memory; a product takes as many as its sums are long

  [[gnu::always_inline]] static constexpr std::int64_t index(std::int64_t rows, std::int64_t row,
                                                             std::int64_t column) {
    return column / kPanel * kPanel * rows + row / 2 * 2 * kPanel + column % kPanel * 2 + row % 2;
  }
  // The same from a row on, and from a column on; both are multiples of kEdge.
  [[gnu::always_inline]] Right from(std::int64_t row, std::int64_t column) const {
    return {data + index(rows, row, column), rows};
  }
};

// c = a b, or c += a b. `inner` is the length of its sums.
struct Product {
  Left a;
  Right b;
  float* c;
  std::int64_t c_stride;
  std::int64_t rows, columns, inner;  // multiples of kEdge
  bool adds;
};

// What is to be computed while a step is busy with rows.
struct Beside {
  const Product* products;
  int count;
};

// A product whose results are scores, of which `rows` by `columns` are real.
struct Scores {
  Product product;
  std::int64_t rows, columns;
};

// One more block of scores for the softmax of its rows. After any number of keys, over those seen
// so far: max is the largest score of a row, sum the sum of exp(score - max), and o the sum of
// exp(score - max) v, once the product of the block's weights has been added. Before the first
// visible key they are -inf, 0 and 0.
struct SoftmaxUnit {
  Scores scores;  // become the weights exp(score - max)
  float factor;   // of the scores; 0: they have been scaled
  float *max, *sum;
  float* o;  // is scaled to the new max
  std::int64_t o_stride, o_columns;
  Bits* p;  // the weights as a left-hand side; null: they are not narrowed
  std::int64_t p_stride;
};

// The weights of the backward pass as sides of products, rounded to bf16.
struct NarrowGradient {
  Bits* ds_rows;  // a left-hand side
  std::int64_t ds_stride;
  Bits *p, *ds;            // right-hand sides
  std::int64_t pair_rows;  // in memory
};

// p = exp(s - lse), ds = p (dp - delta), both 0 where s is -inf. In place: s becomes p, dp ds.
struct GradientUnit {
  Scores s, dp;
  float factor;  // of s; 0: it has been scaled, and dp been looked through
  const float *lse, *delta;
  NarrowGradient narrow;
  bool narrows;
};

struct Steps {
  // Each thread that calls a step is between these two.
  void (*enter)();
  void (*leave)();

  void (*multiply)(const Beside& products);
  // Scores that leave the range although factor a b does not are made again in a wider type
  // (SOFTMAX-2), here and wherever a unit has a factor.
  void (*scale)(const Scores& scores, float factor);
  void (*absorb)(const SoftmaxUnit& unit, const Beside& beside);
  void (*differentiate)(const GradientUnit& unit, const Beside& beside);
  // What absorb and differentiate do on request.
  void (*narrow)(const SoftmaxUnit& unit);
  void (*narrow_gradient)(const GradientUnit& unit);
};

}  // namespace attest::impl::amx
