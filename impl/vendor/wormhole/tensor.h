// A tensor as ttnn has it: [batch, heads, sequence, head_dim] in DRAM, of a data type and in one of
// two layouts.
//
//   ROW_MAJOR   one row after the other
//   TILE        "tilized": the last two axes are filled up with zeros to multiples of 32, and cut
//               into tiles of 32 x 32, each in one run of bytes; tiles go row by row
//
// Tiles are what the engine takes, and one tile is one burst over the NoC.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "impl/vendor/wormhole/formats.h"

namespace attest::vendor::wormhole {

enum class DataType { FLOAT32, BFLOAT16, BFLOAT8_B };
enum class Layout { ROW_MAJOR, TILE };
const char* name(DataType dtype);
const char* name(Layout layout);
DataFormat tile_format(DataType dtype);

using Shape = std::array<std::int64_t, 4>;

class Tensor {
 public:
  // As ttnn.from_torch: `values` row by row, rounded to the type. Block floats exist in tiles
  // alone: std::invalid_argument for others, for sizes below 1, and for another number of values.
  static Tensor from_values(const std::vector<float>& values, const Shape& shape, DataType dtype,
                            Layout layout);
  static Tensor empty(const Shape& shape, DataType dtype, Layout layout) {
    return {shape, dtype, layout};
  }
  // As ttnn.to_torch: without the padding.
  std::vector<float> to_values() const;

  // tilize and untilize, exactly; and to another type, which rounds.
  Tensor to_layout(Layout layout) const;
  Tensor typecast(DataType dtype) const;

  const Shape& shape() const { return shape_; }
  DataType dtype() const { return dtype_; }
  Layout layout() const { return layout_; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(buffer_.size()); }

  // In tiles: of the sequence, and of head_dim.
  std::int64_t rows_in_tiles() const { return (shape_[2] + kTile - 1) / kTile; }
  std::int64_t columns_in_tiles() const { return (shape_[3] + kTile - 1) / kTile; }
  std::int64_t tile_id(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t col) const {
    return ((b * shape_[1] + h) * rows_in_tiles() + row) * columns_in_tiles() + col;
  }
  // Where a tile lies in the tensor's DRAM, in bytes.
  std::int64_t address(std::int64_t tile) const { return tile * tile_bytes(tile_format(dtype_)); }
  const std::uint8_t* tile(std::int64_t id) const { return buffer_.data() + address(id); }
  std::uint8_t* tile(std::int64_t id) { return buffer_.data() + address(id); }

 private:
  Tensor(const Shape& shape, DataType dtype, Layout layout);
  template <class Visit>
  void for_each_tile(const Visit& visit) const;

  Shape shape_;
  DataType dtype_;
  Layout layout_;
  std::vector<std::uint8_t> buffer_;
};

}  // namespace attest::vendor::wormhole
