// Numbers of 16 and 8 bits as the device has them. f16 and f8e5m2 have the same five bits of
// exponent, so that an f8e5m2 is the upper byte of an f16; but rounding goes from the wide number
// in one step, since two in a row are not to the nearest.
#pragma once

#include <cstdint>
#include <cstring>

namespace attest::vendor::triton {

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

// To the nearest, ties to even, with subnormal numbers, infinities beyond the largest, and one NaN
// of either sign: sign, five bits of exponent, kFraction bits.
template <int kFraction>
std::uint32_t narrowed(float value) {
  constexpr int kDropped = 23 - kFraction;
  constexpr std::uint32_t kInfinity = 31u << kFraction, kNan = (32u << kFraction) - 1;
  const std::uint32_t wide = bits_of(value), magnitude = wide & 0x7fffffffu;
  const std::uint32_t sign = (wide >> 31) << (kFraction + 5);
  if (magnitude > 0x7f800000u) return sign | kNan;
  if (magnitude >= 0x47800000u) return sign | kInfinity;  // 2^16
  if (magnitude < 0x38800000u) {                          // 2^-14
    // A number with the spacing of the subnormal ones: adding it rounds to them.
    const float spaced = float_of(static_cast<std::uint32_t>(127 + 9 - kFraction) << 23);
    return sign | (bits_of(float_of(magnitude) + spaced) - bits_of(spaced));
  }
  const std::uint32_t half_less_one = (1u << (kDropped - 1)) - 1;
  const std::uint32_t odd = magnitude >> kDropped & 1u;
  return sign | (magnitude - (112u << 23) + half_less_one + odd) >> kDropped;
}

}  // namespace detail

struct f16 {
  std::uint16_t bits;

  f16() = default;
  explicit f16(float value) : bits(static_cast<std::uint16_t>(detail::narrowed<10>(value))) {}
  operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return detail::float_of(sign | 0x7f800000u | magnitude << 13);
    // The fields moved into place are 2^-112 of the value; the product makes subnormals normal.
    const float value = detail::float_of(magnitude << 13) * 0x1p112f;
    return detail::float_of(sign | detail::bits_of(value));
  }
};

struct f8e5m2 {
  std::uint8_t bits;

  f8e5m2() = default;
  explicit f8e5m2(float value) : bits(static_cast<std::uint8_t>(detail::narrowed<2>(value))) {}
  explicit f8e5m2(f16 value) : f8e5m2(static_cast<float>(value)) {}  // which is exact
  operator float() const {
    f16 wide;
    wide.bits = static_cast<std::uint16_t>(bits << 8);
    return wide;
  }
};

struct bf16 {
  std::uint16_t bits;

  bf16() = default;
  explicit bf16(float value) {
    const std::uint32_t wide = detail::bits_of(value);
    const bool is_nan = (wide & 0x7fffffffu) > 0x7f800000u;
    bits =
        static_cast<std::uint16_t>(is_nan ? 0x7fffu : (wide + 0x7fffu + (wide >> 16 & 1u)) >> 16);
  }
  operator float() const { return detail::float_of(static_cast<std::uint32_t>(bits) << 16); }
};

// An f16 that stays in a float: what P is on its way into the second product.
inline float rounded_to_f16(float value) {
  const std::uint32_t wide = detail::bits_of(value);
  if (wide < 0x38800000u || wide >= 0x3f800001u) return f16(value);
  return detail::float_of((wide + 0xfffu + (wide >> 13 & 1u)) & ~0x1fffu);  // 2^-14 to 1
}

}  // namespace attest::vendor::triton
