// tl.dot of tiles that were widened to f32: c += a b, each element the sum over ascending depth, in
// f32, rounded to the nearest. Products of f16 are exact in f32. So is the mock; that matrix units
// add otherwise is a matter of the order and of truncation, of which the seed says nothing.
#pragma once

#include <cstdint>
#include <cstring>

namespace attest::vendor::triton {

// Of a[rows][depth], b[depth][columns], c[rows][columns], all dense; rows are even, columns a
// multiple of 16, as the compiler demands of tl.dot.
inline void dot(const float* a, const float* b, float* c, std::int64_t rows, std::int64_t depth,
                std::int64_t columns) {
  using Lanes [[gnu::vector_size(64)]] = float;
  for (std::int64_t column = 0; column < columns; column += 16) {
    for (std::int64_t row = 0; row < rows; row += 2) {
      float* const c0 = c + row * columns + column;
      float* const c1 = c0 + columns;
      Lanes sum0, sum1, of_b;
      std::memcpy(&sum0, c0, sizeof(sum0));
      std::memcpy(&sum1, c1, sizeof(sum1));
      const float* a0 = a + row * depth;
      for (std::int64_t d = 0; d < depth; ++d, ++a0) {
        std::memcpy(&of_b, b + d * columns + column, sizeof(of_b));
        sum0 += a0[0] * of_b;
        sum1 += a0[depth] * of_b;
      }
      std::memcpy(c0, &sum0, sizeof(sum0));
      std::memcpy(c1, &sum1, sizeof(sum1));
    }
  }
}

}  // namespace attest::vendor::triton
