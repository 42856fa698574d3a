// The formats of tiles in L1 and in DRAM, and how the packer rounds to them.
//
//   Float32     4 bytes an element
//   Float16_b   2 bytes: bf16, rounded to the nearest, ties to even
//   Bfp8_b      16 values share an exponent of 8 bits: an exponent's byte, and a byte for each
//               value: a sign, and 7 digits of magnitude, the leading one among them
//
// Tensix has no subnormal numbers: where a float is read or stored they are 0.
#pragma once

#include <array>
#include <cstdint>

#include "impl/vendor/wormhole/rules.h"

namespace attest::vendor::wormhole {

enum class DataFormat { Float32, Float16_b, Bfp8_b };

// 4096, 2048, and 1088: 64 exponents first, then the faces.
std::int64_t tile_bytes(DataFormat format);

float round_to_bf16(float value);
float flush_subnormal(float value);
// `value` as the packer stores it in a format whose elements stand alone.
float rounded(DataFormat format, float value);

constexpr int kGroup = 16;  // values that share an exponent: a row of a face

// One group of Bfp8_b.
struct Bfp8Group {
  std::uint8_t exponent;                      // biased by 127; that of the largest magnitude
  std::array<std::uint8_t, kGroup> elements;  // sign in the highest bit, then m: m * 2^(E - 133)
};

// One value beside a given shared exponent, and back. What of a value's digits falls below 24 bits,
// counted from the shared exponent, is cut off before the rest is rounded to the nearest, ties to
// even; what rounds up beyond 7 digits stays at 127, and the exponent as it is; -0 becomes +0.
// (TT-Metal's packing on the host gives subnormal numbers a leading digit that they have not; the
// engine has none, and so these are 0 here.)
std::uint8_t pack_bfp8(float value, std::uint8_t shared_exponent);
float unpack_bfp8(std::uint8_t element, std::uint8_t shared_exponent);

Bfp8Group pack_bfp8_group(const float* values);

// 32 x 32 values, row by row, into a tile's bytes, and back.
void pack_tile(DataFormat format, const float* values, std::uint8_t* tile);
void unpack_tile(DataFormat format, const std::uint8_t* tile, float* values);

}  // namespace attest::vendor::wormhole
