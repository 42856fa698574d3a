// What the compute engine does to blocks of tiles in L1.
//
// An operation unpacks tiles into the engine's registers, computes in f32, and packs the result
// into a block of some format: it is rounded there, and nowhere else. The host keeps a block's
// elements unpacked, row by row over all of its tiles; L1 has its bytes all the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "impl/vendor/device/memory.h"
#include "impl/vendor/wormhole/formats.h"

namespace attest::vendor::wormhole {

class Block {
 public:
  Block(device::Memory& l1, const std::string& name, DataFormat format, std::int64_t row_tiles,
        std::int64_t column_tiles)
      : format_(format),
        rows_(row_tiles * kTile),
        columns_(column_tiles * kTile),
        bytes_(l1.take<std::uint8_t>(
            name, static_cast<std::size_t>(row_tiles * column_tiles * tile_bytes(format)))),
        elements_(static_cast<std::size_t>(rows_ * columns_)) {}

  DataFormat format() const { return format_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  float* row(std::int64_t n) { return elements_.data() + n * columns_; }
  const float* row(std::int64_t n) const { return elements_.data() + n * columns_; }

  // With one of the same size and format.
  void swap(Block& other) { elements_.swap(other.elements_); }

  // Computes `of(row, column)` of each element, and packs it.
  template <class Of>
  void pack(const Of& of) {
    for (std::int64_t n = 0; n < rows_; ++n) {
      float* const to = row(n);
      for (std::int64_t m = 0; m < columns_; ++m) to[m] = rounded(format_, of(n, m));
    }
  }

 private:
  DataFormat format_;
  std::int64_t rows_, columns_;
  device::Memory::Region<std::uint8_t> bytes_;
  std::vector<float> elements_;
};

// Registers hold what was unpacked of a chunk in a circular buffer: row by row, or transposed.
std::vector<float> unpack_chunk(DataFormat format, const std::uint8_t* chunk,
                                std::int64_t row_tiles, std::int64_t column_tiles,
                                bool transposed = false);
void pack_chunk(const Block& from, DataFormat format, std::uint8_t* chunk);

// How the matrix unit multiplies.
struct MatrixUnit {
  MathFidelity fidelity;
  bool fp32_dest_acc_en;  // else what it has summed so far is a bf16 after each tile

  // to = left * right, with right of to.columns() in each row.
  void multiply(Block& to, std::vector<float> left, std::vector<float> right) const;
};

// The vector and matrix units take infinities for +-2^128: the difference of two that are equal
// is 0, not NaN.
inline float difference(float a, float b) { return a == b ? 0.0f : a - b; }

}  // namespace attest::vendor::wormhole
