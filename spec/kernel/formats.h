// Numbers of 16 and 8 bits, for kernels that compute in float: f16, bf16, e4m3 and e5m2 (FORMAT-3
// to FORMAT-5).
//
// Each widens to a float by itself, and is made of one by rounding to the nearest, ties to even,
// with subnormal numbers kept. A vendor's own types (__half, __nv_bfloat16) may stand in their
// place wherever this header takes a type.
#pragma once

#include <algorithm>
#include <cmath>
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

namespace detail {

// The pattern of 8 bits of a value, to the nearest, ties to even, and no further than the largest:
// of so many bits of fraction, and the exponent of the smallest normal number.
inline std::uint8_t pattern_of(float value, int fraction_bits, int least, float largest) {
  const std::uint32_t sign = std::signbit(value) ? 0x80u : 0u;
  if (std::isnan(value)) return static_cast<std::uint8_t>(sign | 0x7fu);
  const float magnitude = std::min(std::fabs(value), largest);
  const int exponent = std::max(magnitude > 0 ? std::ilogb(magnitude) : least, least);
  // In units of the spacing there, which a carry makes twice as many as belong to the exponent.
  const auto units =
      static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent)));
  const std::uint32_t before = static_cast<std::uint32_t>(exponent - least) << fraction_bits;
  return static_cast<std::uint8_t>(sign | (before + units));
}

}  // namespace detail

// Of 8 bits. What lies beyond the largest number becomes that, as accelerators convert by default.
struct e5m2 {
  std::uint8_t bits;

  e5m2() = default;
  explicit e5m2(float value) : bits(detail::pattern_of(value, 2, -14, 57344)) {}
  operator float() const {
    f16 same;  // of which it is the upper half
    same.bits = static_cast<std::uint16_t>(bits << 8);
    return same;
  }
};

struct e4m3 {
  std::uint8_t bits;

  e4m3() = default;
  explicit e4m3(float value) : bits(detail::pattern_of(value, 3, -6, 448)) {}
  operator float() const {
    const std::uint32_t magnitude = bits & 0x7fu;
    const std::uint32_t finite = detail::bits_of(detail::float_of(magnitude << 20) * 0x1p120f);
    const std::uint32_t wide = magnitude < 0x7fu ? finite : 0x7fc00000u;
    return detail::float_of(static_cast<std::uint32_t>(bits & 0x80u) << 24 | wide);
  }
};

}  // namespace attest
