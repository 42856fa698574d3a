// From tensors to the sides of products, and what takes part in none: numbers that are not finite.
//
// A weight of 0 times a NaN is NaN, so a NaN in a row that is summed over would reach whoever does
// not see it (FINITE-2, FINITE-3). Such numbers are packed as 0, and those of V and dO added one by
// one where the weight is not 0.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "impl/amx/steps.h"
#include "impl/elements.h"
#include "impl/tile.h"

namespace attest::impl::amx {

// A matrix of bf16 as a tensor stores it; strides count elements.
struct View {
  const BFloat16* data;
  std::int64_t rows, columns;
  std::int64_t row_stride, column_stride;

  Bits at(std::int64_t row, std::int64_t column) const {
    return data[row * row_stride + column * column_stride].bits;
  }
  View transposed() const { return {data, columns, rows, column_stride, row_stride}; }
};

// Some positions of a plane, one a row.
inline View view(const Plane<const BFloat16>& plane, std::int64_t begin, std::int64_t rows,
                 std::int64_t channels) {
  return {plane.from(begin).data, rows, channels, plane.position_stride, plane.channel_stride};
}

// bits[0, count) without what is not finite. Answers whether all was.
inline bool clean(Bits* bits, std::int64_t count) {
  constexpr unsigned kExponent = 0x7f80;
  unsigned found = 0;
  for (std::int64_t n = 0; n < count; ++n) {
    const bool special = (bits[n] & kExponent) == kExponent;
    bits[n] = special ? Bits{0} : bits[n];
    found |= special;
  }
  return found == 0;
}

// `rows` rows of `stride` elements, filled up with zeros.
inline void pack_left(const View& from, std::int64_t rows, std::int64_t stride, Bits* to) {
  for (std::int64_t row = 0; row < rows; ++row) {
    Bits* const out = to + row * stride;
    const std::int64_t columns = row < from.rows ? from.columns : 0;
    if (columns > 0 && from.column_stride == 1) {
      std::memcpy(out, from.data + row * from.row_stride,
                  sizeof(Bits) * static_cast<std::size_t>(columns));
    } else {
      for (std::int64_t c = 0; c < columns; ++c) out[c] = from.at(row, c);
    }
    std::fill(out + columns, out + stride, Bits{0});
  }
}

// Rows first ... first + padded(rows of the matrix) of a right-hand side that has `rows` rows,
// filled up with zeros. `first` is a multiple of kEdge.
inline void pack_right(const View& from, std::int64_t first, std::int64_t rows, Bits* to) {
  const std::int64_t inner = padded(from.rows), columns = padded(from.columns);
  for (std::int64_t panel = 0; panel < columns; panel += kPanel) {
    Bits* const out = to + Right::index(rows, first, panel);
    const std::int64_t width = std::clamp<std::int64_t>(from.columns - panel, 0, kPanel);
    if (from.rows % kEdge != 0 || from.rows == 0 || width < kPanel) {
      std::fill_n(out, inner * kPanel, Bits{0});
    }
    const std::int64_t pairs = from.rows / 2;
    if (from.row_stride == 1) {  // K transposed: both elements of a pair lie side by side
      for (std::int64_t c = 0; c < width; ++c) {
        const BFloat16* const column = from.data + (panel + c) * from.column_stride;
        for (std::int64_t pair = 0; pair < pairs; ++pair) {
          std::memcpy(out + pair * 2 * kPanel + 2 * c, column + 2 * pair, 2 * sizeof(Bits));
        }
      }
    } else {
      for (std::int64_t pair = 0; pair < pairs; ++pair) {
        Bits* const line = out + pair * 2 * kPanel;
        for (std::int64_t c = 0; c < width; ++c) {
          line[2 * c] = from.at(2 * pair, panel + c);
          line[2 * c + 1] = from.at(2 * pair + 1, panel + c);
        }
      }
    }
    if (from.rows % 2 == 1) {
      for (std::int64_t c = 0; c < width; ++c) {
        out[pairs * 2 * kPanel + 2 * c] = from.at(from.rows - 1, panel + c);
      }
    }
  }
}

// Calls visit(row, column, value) for each element that is not finite.
template <class Visit>
void for_each_special(const View& matrix, const Visit& visit) {
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    for (std::int64_t c = 0; c < matrix.columns; ++c) {
      const float value = widen(BFloat16{matrix.at(row, c)});
      if (!std::isfinite(value)) visit(row, c, value);
    }
  }
}

}  // namespace attest::impl::amx
