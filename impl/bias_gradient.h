// dBias: the sum of dS over all that read an element of the bias (GRAD-4).
//
// The work is cut along dBias itself: a part of it belongs to one worker, who visits all that read
// it (the batch elements, heads, queries or keys over which the bias broadcasts) in order. So a sum
// has one order, whatever the threads, at the price of forming dS once more.
#pragma once

#include <algorithm>
#include <cstdint>

#include "impl/call.h"
#include "impl/elements.h"
#include "impl/tile.h"

namespace attest::impl {

// A rectangle of one plane of dBias, and what reads it.
struct BiasPart {
  std::int64_t batch, head, row_begin, row_end, column_begin, column_end;
  std::int64_t batch_end, head_end;  // readers: batch ... batch_end, head ... head_end,
  Block scores;                      // and this part of their score matrices

  std::int64_t rows() const { return row_end - row_begin; }
  std::int64_t columns() const { return column_end - column_begin; }
};

// All parts of dBias, of at most `most_rows` by `most_columns`.
class BiasParts {
 public:
  BiasParts(const Call& call, std::int64_t most_rows, std::int64_t most_columns)
      : problem_(call.problem),
        shape_(call.outputs.dbias.shape),
        rows_(std::max<std::int64_t>(most_rows, 1)),
        columns_(std::max<std::int64_t>(most_columns, 1)) {}

  std::int64_t count() const { return shape_[0] * shape_[1] * row_parts() * column_parts(); }

  BiasPart operator[](std::int64_t n) const {
    BiasPart part;
    part.column_begin = n % column_parts() * columns_;
    part.column_end = std::min(part.column_begin + columns_, shape_[3]);
    n /= column_parts();
    part.row_begin = n % row_parts() * rows_;
    part.row_end = std::min(part.row_begin + rows_, shape_[2]);
    n /= row_parts();
    part.head = n % shape_[1];
    part.batch = n / shape_[1];
    part.batch_end = shape_[0] == 1 ? problem_.batch : part.batch + 1;
    part.head_end = shape_[1] == 1 ? problem_.query_heads : part.head + 1;
    part.scores = {part.row_begin, shape_[2] == 1 ? problem_.query_len : part.row_end,
                   part.column_begin, shape_[3] == 1 ? problem_.key_len : part.column_end};
    return part;
  }

 private:
  std::int64_t row_parts() const { return (shape_[2] + rows_ - 1) / rows_; }
  std::int64_t column_parts() const { return (shape_[3] + columns_ - 1) / columns_; }

  const attest_problem& problem_;
  const std::int64_t* shape_;
  std::int64_t rows_, columns_;
};

// sum[rows, columns] of a part += dS of a block that lies in the part's scores; rows of ds lie
// `stride` apart. The sums are made in double, for they may have very many terms.
template <class R>
void add_to_bias(const BiasPart& part, const Block& block, std::int64_t stride, const R* ds,
                 double* sum) {
  const auto place = [](std::int64_t size, std::int64_t begin, std::int64_t position) {
    return size == 1 ? 0 : position - begin;
  };
  for (std::int64_t i = 0; i < block.queries(); ++i) {
    double* row = sum + place(part.rows(), part.row_begin, block.query_begin + i) * part.columns();
    for (std::int64_t j = 0; j < block.keys(); ++j) {
      row[place(part.columns(), part.column_begin, block.key_begin + j)] += ds[i * stride + j];
    }
  }
}

template <class T>
void store_bias(const BiasPart& part, const double* sum, const attest_tensor& dbias) {
  const Plane<T> plane(dbias, part.batch, part.head);
  for (std::int64_t row = part.row_begin; row < part.row_end; ++row) {
    for (std::int64_t column = part.column_begin; column < part.column_end; ++column) {
      plane.at(row, column) = narrow<T>(static_cast<Real<T>>(*sum++));
    }
  }
}

}  // namespace attest::impl
