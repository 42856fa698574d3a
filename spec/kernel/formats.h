// Numbers of 16 bits, for kernels that compute in float: f16 and bf16 (FORMAT-3, FORMAT-4).
//
// Each widens to a float by itself, and is made of one by rounding to the nearest, ties to even,
// with subnormal numbers kept. A vendor's own types (__half, __nv_bfloat16) may stand in their
// place wherever this header takes a type.
#pragma once

#include <cstdint>
#include <cstring>

namespace attest {

namespace detail {

inline std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace detail

struct bf16 {
  std::uint16_t bits;

  bf16() = default;
  explicit bf16(float value) {
    const std::uint32_t wide = detail::bits_of(value);
    const bool is_nan = (wide & 0x7fffffffu) > 0x7f800000u;
    // Just under half of a unit, and half of one above an odd number: ties go to the even.
    const std::uint32_t rounded = (wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16;
    bits = static_cast<std::uint16_t>(is_nan ? wide >> 16 | 0x40u : rounded);
  }
  operator float() const { return detail::float_of(static_cast<std::uint32_t>(bits) << 16); }
};

struct f16 {
  std::uint16_t bits;

  f16() = default;
  explicit f16(float value) {
    const std::uint32_t wide = detail::bits_of(value), magnitude = wide & 0x7fffffffu;
    // Normal: the exponent's bias changes by 112, and 13 bits are rounded off; a carry runs on into
    // infinity. Below 2^-14: 0.5 has the spacing of subnormal halves, so that adding it rounds.
    std::uint32_t narrow = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    if (magnitude < 0x38800000u) {
      narrow = detail::bits_of(detail::float_of(magnitude) + 0.5f) - detail::bits_of(0.5f);
    } else if (magnitude >= 0x47800000u) {  // 2^16
      narrow = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    }
    bits = static_cast<std::uint16_t>((wide >> 16 & 0x8000u) | narrow);
  }
  operator float() const {
    const std::uint32_t magnitude = bits & 0x7fffu;
    // The fields moved into place are 2^-112 of the value; the product makes subnormals normal.
    const std::uint32_t finite = detail::bits_of(detail::float_of(magnitude << 13) * 0x1p112f);
    const std::uint32_t wide = magnitude < 0x7c00u ? finite : magnitude << 13 | 0x7f800000u;
    return detail::float_of(static_cast<std::uint32_t>(bits & 0x8000u) << 16 | wide);
  }
};

}  // namespace attest
