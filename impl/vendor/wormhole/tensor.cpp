#include "impl/vendor/wormhole/tensor.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace attest::vendor::wormhole {
namespace {

std::int64_t volume(const Shape& shape) { return shape[0] * shape[1] * shape[2] * shape[3]; }

std::int64_t element_bytes(DataType dtype) { return dtype == DataType::FLOAT32 ? 4 : 2; }

float row_major_element(DataType dtype, const std::uint8_t* from) {
  std::uint32_t bits = 0;
  const auto size = static_cast<std::size_t>(element_bytes(dtype));
  std::memcpy(reinterpret_cast<char*>(&bits) + (4 - size), from, size);
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

}  // namespace

const char* name(DataType dtype) {
  switch (dtype) {
    case DataType::FLOAT32:
      return "FLOAT32";
    case DataType::BFLOAT16:
      return "BFLOAT16";
    case DataType::BFLOAT8_B:
      break;
  }
  return "BFLOAT8_B";
}

const char* name(Layout layout) { return layout == Layout::TILE ? "TILE" : "ROW_MAJOR"; }

DataFormat tile_format(DataType dtype) {
  switch (dtype) {
    case DataType::FLOAT32:
      return DataFormat::Float32;
    case DataType::BFLOAT16:
      return DataFormat::Float16_b;
    case DataType::BFLOAT8_B:
      break;
  }
  return DataFormat::Bfp8_b;
}

Tensor::Tensor(const Shape& shape, DataType dtype, Layout layout)
    : shape_(shape), dtype_(dtype), layout_(layout) {
  for (const std::int64_t size : shape) {
    if (size < 1) throw std::invalid_argument("a tensor has no size of " + std::to_string(size));
  }
  if (layout == Layout::ROW_MAJOR && dtype == DataType::BFLOAT8_B) {
    throw std::invalid_argument("BFLOAT8_B tensors must be in TILE layout");
  }
  const std::int64_t tiles = shape[0] * shape[1] * rows_in_tiles() * columns_in_tiles();
  buffer_.resize(static_cast<std::size_t>(
      layout == Layout::TILE ? address(tiles) : volume(shape) * element_bytes(dtype)));
}

// Calls visit(tile's id, place of its first element among the values, its rows, its columns), the
// last two without padding.
template <class Visit>
void Tensor::for_each_tile(const Visit& visit) const {
  std::int64_t id = 0;
  for (std::int64_t matrix = 0; matrix < shape_[0] * shape_[1]; ++matrix) {
    for (std::int64_t row = 0; row < shape_[2]; row += kTile) {
      for (std::int64_t col = 0; col < shape_[3]; col += kTile) {
        visit(id++, (matrix * shape_[2] + row) * shape_[3] + col,
              std::min<std::int64_t>(kTile, shape_[2] - row),
              std::min<std::int64_t>(kTile, shape_[3] - col));
      }
    }
  }
}

Tensor Tensor::from_values(const std::vector<float>& values, const Shape& shape, DataType dtype,
                           Layout layout) {
  Tensor tensor(shape, dtype, layout);
  if (static_cast<std::int64_t>(values.size()) != volume(shape)) {
    throw std::invalid_argument(std::to_string(values.size()) + " values are none of the shape");
  }
  if (layout == Layout::ROW_MAJOR) {
    const auto size = static_cast<std::size_t>(element_bytes(dtype));
    for (std::size_t n = 0; n < values.size(); ++n) {
      const float value = dtype == DataType::BFLOAT16 ? round_to_bf16(values[n]) : values[n];
      std::memcpy(tensor.buffer_.data() + n * size,
                  reinterpret_cast<const char*>(&value) + (4 - size), size);
    }
    return tensor;
  }
  tensor.for_each_tile([&](auto id, auto first, auto rows, auto cols) {
    std::array<float, kTileElements> tile{};
    for (std::int64_t row = 0; row < rows; ++row) {
      std::copy_n(values.data() + first + row * shape[3], cols, tile.data() + row * kTile);
    }
    pack_tile(tile_format(dtype), tile.data(), tensor.tile(id));
  });
  return tensor;
}

std::vector<float> Tensor::to_values() const {
  std::vector<float> values(static_cast<std::size_t>(volume(shape_)));
  if (layout_ == Layout::ROW_MAJOR) {
    const auto size = static_cast<std::size_t>(element_bytes(dtype_));
    for (std::size_t n = 0; n < values.size(); ++n) {
      values[n] = row_major_element(dtype_, buffer_.data() + n * size);
    }
    return values;
  }
  for_each_tile([&](auto id, auto first, auto rows, auto cols) {
    std::array<float, kTileElements> tile;
    unpack_tile(tile_format(dtype_), this->tile(id), tile.data());
    for (std::int64_t row = 0; row < rows; ++row) {
      std::copy_n(tile.data() + row * kTile, cols, values.data() + first + row * shape_[3]);
    }
  });
  return values;
}

Tensor Tensor::to_layout(Layout layout) const {
  return layout == layout_ ? *this : from_values(to_values(), shape_, dtype_, layout);
}

Tensor Tensor::typecast(DataType dtype) const {
  return from_values(to_values(), shape_, dtype, layout_);
}

}  // namespace attest::vendor::wormhole
