// Number formats: what each holds, how a real number is rounded to it, and which real numbers a
// stored value may stand for (SPEC.md, FORMAT-1 to FORMAT-5; NUMERICS.md, section "Rounding
// cells").
//
// All arithmetic here is exact or correctly rounded: scaling by powers of two and one rounding to
// the nearest, ties to even. Subnormals, infinities and NaN are handled by every function.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>

#include "spec/index.h"

namespace attest {

// The values are those of attest_dtype in attest_plugin.h.
enum class DType : std::int32_t {
  f64 = 1,
  f32 = 2,
  f16 = 3,
  bf16 = 4,
  e4m3 = 5,
  e5m2 = 6,
  int8 = 8
};

// Those that a problem may have, and those in which its inputs alone may be stored, with scales.
inline constexpr std::array kDTypes = {DType::f64, DType::f32, DType::f16, DType::bf16};
inline constexpr std::array kStoredDTypes = {DType::e4m3, DType::e5m2, DType::int8};

// A binary format in the terms of IEEE 754: p digits (the hidden one counted), and the exponents of
// its smallest and largest normal numbers.
struct Format {
  int digits;
  int min_exponent;
  int max_exponent;
  int bytes;
  // Without infinities: their patterns are numbers, but for the last, all ones, which is NaN.
  bool finite = false;
};

constexpr Format format_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return {53, -1022, 1023, 8};
    case DType::f32:
      return {24, -126, 127, 4};
    case DType::f16:
      return {11, -14, 15, 2};
    case DType::bf16:
      return {8, -126, 127, 2};
    case DType::e4m3:
      return {4, -6, 8, 1, true};
    case DType::e5m2:
      return {3, -14, 15, 1};
    case DType::int8:  // as if all its numbers were subnormal
      return {8, 7, 6, 1, true};
  }
  return {};
}

// Whether its exponents reach less far than those of f32, in which it is computed: there its
// subnormal numbers are normal ones, and what other formats hold may overflow in it.
constexpr bool has_short_range(DType dtype) {
  return format_of(dtype).max_exponent < format_of(DType::f32).max_exponent;
}

// Calls `act` with the format as a constant, so that the compiler knows it.
template <class Act>
decltype(auto) with_constant(DType dtype, const Act& act) {
  switch (dtype) {
    case DType::f64:
      return act(std::integral_constant<DType, DType::f64>());
    case DType::f32:
      return act(std::integral_constant<DType, DType::f32>());
    case DType::f16:
      return act(std::integral_constant<DType, DType::f16>());
    case DType::e4m3:
      return act(std::integral_constant<DType, DType::e4m3>());
    case DType::e5m2:
      return act(std::integral_constant<DType, DType::e5m2>());
    case DType::int8:
      return act(std::integral_constant<DType, DType::int8>());
    case DType::bf16:
      break;
  }
  return act(std::integral_constant<DType, DType::bf16>());
}

// 2^exponent, for exponents up to 1023.
inline double power_of_two(int exponent) {
  if (exponent < -1022) return std::ldexp(1.0, exponent);
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

// The unit roundoff u: |round_to(x) - x| <= u |x| for x in the normal range (2^-24 for f32).
double unit_roundoff(DType dtype);
// The largest error of rounding into the subnormal range: half the smallest subnormal number.
double half_smallest_subnormal(DType dtype);
double smallest_normal(DType dtype);
double largest_finite(DType dtype);

// The exponent of a normal double; of a smaller one, one less than that of any normal.
inline int exponent_of(double value) {
  return static_cast<int>(std::bit_cast<std::uint64_t>(value) >> 52 & 0x7ff) - 1023;
}

// The exponent of the distance between neighbouring numbers of `format` around `value` (finite, not
// zero).
inline int spacing_exponent(const Format& format, double value) {
  return std::max(exponent_of(value), format.min_exponent) - (format.digits - 1);
}

// Of a format without infinities, what round_to() says. int8 has no NaN either: what lies beyond
// its range becomes the end of it, and NaN -128, as conversions of processors have it.
double round_to_finite(DType dtype, double value);

// `value` rounded to the nearest number of `dtype`, ties to even; beyond the range, an infinity, or
// NaN in a format without.
inline double round_to(DType dtype, double value) {
  if (dtype == DType::f32) return static_cast<float>(value);
  const Format format = format_of(dtype);
  if (format.finite) return round_to_finite(dtype, value);
  if (dtype == DType::f64 || value == 0 || !std::isfinite(value)) return value;
  if (exponent_of(value) > format.max_exponent)
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  // The numbers around this one are as far apart as those of the format around `value`: so the sum
  // is rounded to the nearest of them, ties to even, and the difference is exact.
  const double coarse = 0x1.8p52 * power_of_two(spacing_exponent(format, value));
  const double rounded = (std::abs(value) + coarse) - coarse;
  const bool overflows = exponent_of(rounded) > format.max_exponent;
  return std::copysign(overflows ? std::numeric_limits<double>::infinity() : rounded, value);
}

// The bit pattern of round_to(dtype, value). NaN encodes as the quiet NaN without payload.
std::uint64_t encode_rounded(DType dtype, double value);

inline std::uint64_t encode(DType dtype, double value) {
  // What the format holds, which most values are, needs no more.
  if (dtype == DType::bf16) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    if ((bits & 0xffff) == 0 && std::bit_cast<float>(bits) == value) return bits >> 16;
  } else if (dtype == DType::f16) {
    // The fields of a double are as wide as those of a f16 and 42 bits, and biased by 1008 more.
    const auto bits = std::bit_cast<std::uint64_t>(value);
    const std::uint64_t sign = bits >> 63 << 15, fields = bits << 1 >> 43;
    const std::uint64_t normal = fields - (std::uint64_t(1008 + 1) << 10);
    const bool fits = (bits & ((std::uint64_t(1) << 42) - 1)) == 0;
    if (fits && normal < std::uint64_t(30) << 10) return sign | (normal + (1 << 10));
    if (bits << 1 == 0) return sign;
  } else if (dtype == DType::f32) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    return std::isnan(value) ? 0x7fc00000u : bits;
  }
  return encode_rounded(dtype, value);
}

// As decode(), but that a NaN has the sign of its pattern.
double decode_f16(std::uint64_t bits);
double decode_short(DType dtype, std::uint64_t bits);
inline double decode_signed(DType dtype, std::uint64_t bits) {
  switch (dtype) {
    case DType::f64:
      return std::bit_cast<double>(bits);
    case DType::f32:
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    case DType::f16:
      return decode_f16(bits);
    case DType::bf16:
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits << 16));
    case DType::e4m3:
    case DType::e5m2:
      return decode_short(dtype, bits);
    case DType::int8:
      return static_cast<std::int8_t>(bits);
  }
  return 0;
}

// The number that a bit pattern stands for. All NaNs are one: what sign one has says nothing, and
// would be printed.
inline double decode(DType dtype, std::uint64_t bits) {
  const double value = decode_signed(dtype, bits);
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

// The same at an address, which needs no alignment.
inline void store(DType dtype, double value, void* address) {
  const auto put = [address](auto bits) { std::memcpy(address, &bits, sizeof(bits)); };
  const std::uint64_t bits = encode(dtype, value);
  switch (format_of(dtype).bytes) {
    case 8:
      return put(bits);
    case 4:
      return put(static_cast<std::uint32_t>(bits));
    case 1:
      return put(static_cast<std::uint8_t>(bits));
    default:
      return put(static_cast<std::uint16_t>(bits));
  }
}

inline double load(DType dtype, const void* address) {
  const auto bits_as = [address](auto bits) {
    std::memcpy(&bits, address, sizeof(bits));
    return bits;
  };
  switch (format_of(dtype).bytes) {
    case 8:
      return decode(dtype, bits_as(std::uint64_t()));
    case 4:
      return decode(dtype, bits_as(std::uint32_t()));
    case 1:
      return decode(dtype, bits_as(std::uint8_t()));
    default:
      return decode(dtype, bits_as(std::uint16_t()));
  }
}

// How a kernel may round its result into the output format: to the nearest number, or to either
// neighbour ("faithfully").
enum class Rounding { nearest, faithful };

// The real numbers that round to `value`, a number of `dtype`: from the midpoint with its
// predecessor to the midpoint with its successor, ends included; for faithful rounding, from
// neighbour to neighbour. The cell of an infinity starts where numbers start to overflow.
struct Cell {
  long double low;
  long double high;
};
Cell rounding_cell(DType dtype, double value, Rounding rounding = Rounding::nearest);

std::string_view name(DType dtype);  // "bf16"
// Of kDTypes.
std::optional<DType> dtype_named(std::string_view name);
std::optional<DType> dtype_numbered(std::int32_t number);  // as attest_dtype has it
// Of either.
std::optional<DType> element_type_named(std::string_view name);

}  // namespace attest
