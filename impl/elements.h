// The numbers that kernels read and write: f64, f32, f16 and bf16, and the type that each is
// computed in (FORMAT-1 to FORMAT-4).
//
// Conversions are by bits, to the nearest with ties to even, with subnormal numbers kept. They have
// no branches, so that loops over them vectorise.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "spec/attest_plugin.h"

namespace attest::impl {

struct Half {
  std::uint16_t bits;
};

struct BFloat16 {
  std::uint16_t bits;
};

template <class T>
inline constexpr attest_dtype kTypeOf = std::is_same_v<T, double>  ? ATTEST_F64
                                        : std::is_same_v<T, float> ? ATTEST_F32
                                        : std::is_same_v<T, Half>  ? ATTEST_F16
                                                                   : ATTEST_BF16;

// The type in which elements of type T are computed.
template <class T>
using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;

inline double widen(double value) { return value; }
inline float widen(float value) { return value; }

inline float widen(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

inline float widen(Half value) {
  const std::uint32_t magnitude = value.bits & 0x7fffu;
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000u) << 16;
  // The fields moved into place give 2^-112 of the value, because the exponents' biases differ by
  // 112. The product is exact, and makes subnormal halves normal.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  const std::uint32_t finite = std::bit_cast<std::uint32_t>(scaled);
  const std::uint32_t special = (magnitude << 13) | 0x7f800000u;  // infinity or NaN
  return std::bit_cast<float>(sign | (magnitude >= 0x7c00u ? special : finite));
}

template <class T>
T narrow(Real<T> value);

template <>
inline double narrow<double>(double value) {
  return value;
}

template <>
inline float narrow<float>(float value) {
  return value;
}

template <>
inline BFloat16 narrow<BFloat16>(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  // Just under half of a unit, and half of one above an odd number: ties go to the even.
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet_nan = (bits >> 16) | 0x40u;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return {static_cast<std::uint16_t>(is_nan ? quiet_nan : rounded)};
}

template <>
inline Half narrow<Half>(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  // Normal: rebias the exponent by -112 and round off 13 bits; a carry runs on into infinity.
  const std::uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Subnormal: 0.5 has the spacing 2^-24 of subnormal halves, so the addition does the rounding.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5f);
  const std::uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const std::uint32_t result = magnitude < 0x38800000u    ? subnormal  // below 2^-14
                               : magnitude >= 0x47800000u ? special    // from 2^16 on
                                                          : normal;
  return {static_cast<std::uint16_t>(sign | result)};
}

// Calls visit(T{}) with the element type of `dtype`, which must be one of the four.
template <class Visit>
auto with_element_type(attest_dtype dtype, Visit visit) {
  switch (dtype) {
    case ATTEST_F64:
      return visit(double{});
    case ATTEST_F16:
      return visit(Half{});
    case ATTEST_BF16:
      return visit(BFloat16{});
    default:
      return visit(float{});
  }
}

}  // namespace attest::impl
