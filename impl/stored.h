// Q, K and V that are stored in formats of 8 bits, with scales (FORMAT-5 to FORMAT-8): each number
// is widened to a float, and multiplied by its scale.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "impl/call.h"
#include "impl/tile.h"

namespace attest::impl {

struct E4M3 {
  std::uint8_t bits;
};
struct E5M2 {
  std::uint8_t bits;
};

inline float widen(E5M2 value) { return widen(Half{static_cast<std::uint16_t>(value.bits << 8)}); }

inline float widen(E4M3 value) {
  const std::uint32_t magnitude = value.bits & 0x7fu;
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x80u) << 24;
  // As for halves: in place the fields give 2^-120 of the value. There is no infinity, and one NaN.
  const float scaled = std::bit_cast<float>(magnitude << 20) * 0x1p120f;
  const std::uint32_t finite = std::bit_cast<std::uint32_t>(scaled);
  return std::bit_cast<float>(sign | (magnitude == 0x7fu ? 0x7fc00000u : finite));
}

inline float widen(std::int8_t value) { return value; }

inline bool is_stored(attest_dtype dtype) {
  return dtype == ATTEST_FP8_E4M3 || dtype == ATTEST_FP8_E5M2 || dtype == ATTEST_INT8;
}
inline bool has_stored(const attest_problem& p) {
  return is_stored(p.q_dtype) || is_stored(p.k_dtype) || is_stored(p.v_dtype);
}

// Of K or V.
inline const attest_tensor& key_scales(const Call& call, const attest_tensor& tensor) {
  return &tensor == &call.inputs.k ? call.inputs.k_scale : call.inputs.v_scale;
}

// How many channels share a scale in formats of blocks: bfp8 (FORMAT-6), mxfp8 (FORMAT-8).
inline std::int64_t block_of(attest_dtype dtype) { return dtype == ATTEST_INT8 ? 16 : 32; }

// How many channels of a row share a scale: all of them, or those of a block.
inline std::int64_t channels_of_scale(const attest_tensor& tensor, const attest_tensor& scales) {
  if (scales.shape[3] == 1) return std::max<std::int64_t>(tensor.shape[3], 1);
  return block_of(tensor.dtype);
}

// tile[rows, channels] = the plane from position `begin` on, each `width` channels of a row times
// their scale.
template <class E>
void load_as(const Plane<const E>& plane, const Plane<const float>& scales, std::int64_t begin,
             std::int64_t rows, std::int64_t channels, std::int64_t width, float* tile) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t block = 0; block * width < channels; ++block) {
      const float scale = scales.at(begin + row, block);
      const std::int64_t end = std::min(channels, (block + 1) * width);
      for (std::int64_t c = block * width; c < end; ++c) {
        tile[row * channels + c] = widen(plane.at(begin + row, c)) * scale;
      }
    }
  }
}

// Calls visit(E{}) with the element type of a format of 8 bits.
template <class Visit>
void with_stored_type(attest_dtype dtype, const Visit& visit) {
  if (dtype == ATTEST_FP8_E4M3) return visit(E4M3{});
  dtype == ATTEST_FP8_E5M2 ? visit(E5M2{}) : visit(std::int8_t{});
}

}  // namespace attest::impl
