// What warps hold of a tile in their registers: floats, and the products of two such. Rows lie
// `stride` apart; columns beyond the last are zeros up to the stride, so that products may run
// over.
#pragma once

#include <cstdint>
#include <vector>

namespace attest::vendor::nvidia_grid {

class Fragment {
 public:
  Fragment() = default;
  Fragment(std::int64_t rows, std::int64_t columns)
      : rows_(rows),
        columns_(columns),
        stride_((columns + 7) / 8 * 8),
        values_(static_cast<std::size_t>(rows * stride_)) {}

  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  std::int64_t stride() const { return stride_; }
  float* row(std::int64_t r) { return values_.data() + r * stride_; }
  const float* row(std::int64_t r) const { return values_.data() + r * stride_; }

  void clear() { values_.assign(values_.size(), 0.0f); }
  Fragment transposed() const;

 private:
  std::int64_t rows_ = 0, columns_ = 0, stride_ = 0;
  std::vector<float> values_;
};

// A factor as a product walks through it: its element (m, k), of rows or, transposed, of columns.
struct Factor {
  const float* data;
  std::int64_t of_m, of_k;  // strides

  static Factor rows(const Fragment& of) { return {of.row(0), of.stride(), 1}; }
  static Factor columns(const Fragment& of) { return {of.row(0), 1, of.stride()}; }
};

// sum(m, n) += a(m, k) b(k, n), k from begin to before end; in fp32, one product after the other.
void multiply(Fragment& sum, const Factor& a, const Fragment& b, std::int64_t k_begin,
              std::int64_t k_end);

}  // namespace attest::vendor::nvidia_grid
