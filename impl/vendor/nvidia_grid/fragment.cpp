#include "impl/vendor/nvidia_grid/fragment.h"

#include <cstring>

namespace attest::vendor::nvidia_grid {
namespace {

// Eight floats side by side, in whatever registers there are.
using Eight = float __attribute__((vector_size(32)));

// Of `kRows` rows, the columns from n to n + 7.
template <int kRows>
void multiply_columns(Fragment& sum, const Factor& a, const Fragment& b, std::int64_t m,
                      std::int64_t n, std::int64_t k_begin, std::int64_t k_end) {
  Eight part[kRows];
  for (int r = 0; r < kRows; ++r) std::memcpy(&part[r], sum.row(m + r) + n, sizeof(Eight));
  for (std::int64_t k = k_begin; k < k_end; ++k) {
    Eight of_b;
    std::memcpy(&of_b, b.row(k) + n, sizeof(Eight));
    for (int r = 0; r < kRows; ++r) {
      part[r] += a.data[(m + r) * a.of_m + k * a.of_k] * of_b;
    }
  }
  for (int r = 0; r < kRows; ++r) std::memcpy(sum.row(m + r) + n, &part[r], sizeof(Eight));
}

}  // namespace

Fragment Fragment::transposed() const {
  Fragment turned(columns_, rows_);
  for (std::int64_t r = 0; r < rows_; ++r) {
    for (std::int64_t c = 0; c < columns_; ++c) turned.row(c)[r] = row(r)[c];
  }
  return turned;
}

void multiply(Fragment& sum, const Factor& a, const Fragment& b, std::int64_t k_begin,
              std::int64_t k_end) {
  for (std::int64_t n = 0; n < sum.columns(); n += 8) {
    std::int64_t m = 0;
    for (; m + 4 <= sum.rows(); m += 4) multiply_columns<4>(sum, a, b, m, n, k_begin, k_end);
    for (; m < sum.rows(); ++m) multiply_columns<1>(sum, a, b, m, n, k_begin, k_end);
  }
}

}  // namespace attest::vendor::nvidia_grid
