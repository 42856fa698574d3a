#include "impl/vendor/wormhole/tiles.h"

#include <algorithm>
#include <array>
#include <bit>

namespace attest::vendor::wormhole {
namespace {

// The leading digits of each value, the first among them; the rest is cut off.
void cut_to_digits(std::vector<float>& values, int digits) {
  const std::uint32_t kept = ~0u << (24 - digits);
  for (float& value : values) {
    value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & kept);
  }
}

// 32 columns of one row: sum over the depth of left[d] right[d][column], in that order.
std::array<float, kTile> dot_row(const float* left, const float* right, std::int64_t depth,
                                 std::int64_t columns, bool fp32_dest) {
  std::array<float, kTile> dest{};
  for (std::int64_t begin = 0; begin < depth; begin += kTile) {
    for (std::int64_t d = begin; d < begin + kTile; ++d) {
      const float a = left[d];
      const float* const b = right + d * columns;
      for (std::size_t n = 0; n < kTile; ++n) dest[n] += a * b[n];
    }
    if (!fp32_dest) {
      for (float& sum : dest) sum = round_to_bf16(sum);
    }
  }
  return dest;
}

}  // namespace

std::vector<float> unpack_chunk(DataFormat format, const std::uint8_t* chunk,
                                std::int64_t row_tiles, std::int64_t column_tiles,
                                bool transposed) {
  const std::int64_t rows = row_tiles * kTile, columns = column_tiles * kTile;
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  std::array<float, kTileElements> tile;
  for (std::int64_t n = 0; n < row_tiles * column_tiles; ++n) {
    unpack_tile(format, chunk + n * tile_bytes(format), tile.data());
    const std::int64_t row = n / column_tiles * kTile, column = n % column_tiles * kTile;
    for (std::int64_t r = 0; r < kTile; ++r) {
      const float* const from = tile.data() + r * kTile;
      if (!transposed) {
        std::copy_n(from, kTile, values.data() + (row + r) * columns + column);
        continue;
      }
      for (std::int64_t c = 0; c < kTile; ++c) {
        values[static_cast<std::size_t>((column + c) * rows + row + r)] = from[c];
      }
    }
  }
  return values;
}

void pack_chunk(const Block& from, DataFormat format, std::uint8_t* chunk) {
  std::array<float, kTileElements> tile;
  for (std::int64_t row = 0; row < from.rows(); row += kTile) {
    for (std::int64_t column = 0; column < from.columns(); column += kTile) {
      for (std::int64_t r = 0; r < kTile; ++r) {
        std::copy_n(from.row(row + r) + column, kTile, tile.data() + r * kTile);
      }
      pack_tile(format, tile.data(), chunk);
      chunk += tile_bytes(format);
    }
  }
}

void MatrixUnit::multiply(Block& to, std::vector<float> left, std::vector<float> right) const {
  // Of the left operand a pass takes 7 digits, of the right one 5: bf16 has 8 of each.
  if (fidelity != MathFidelity::HiFi4) cut_to_digits(left, 7);
  if (fidelity == MathFidelity::LoFi) cut_to_digits(right, 5);
  const auto depth = static_cast<std::int64_t>(left.size()) / to.rows();
  for (std::int64_t row = 0; row < to.rows(); ++row) {
    for (std::int64_t column = 0; column < to.columns(); column += kTile) {
      const std::array<float, kTile> dest = dot_row(
          left.data() + row * depth, right.data() + column, depth, to.columns(), fp32_dest_acc_en);
      std::transform(dest.begin(), dest.end(), to.row(row) + column,
                     [&](float sum) { return rounded(to.format(), sum); });
    }
  }
}

}  // namespace attest::vendor::wormhole
