#include "spec/dtype.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "spec/assert.h"

namespace attest {

static constexpr double kInfinite = std::numeric_limits<double>::infinity();

double unit_roundoff(DType dtype) { return power_of_two(-format_of(dtype).digits); }

double half_smallest_subnormal(DType dtype) {
  const Format format = format_of(dtype);
  return std::ldexp(1.0, format.min_exponent - format.digits);  // f64: 2^-1075 rounds to 0
}

double smallest_normal(DType dtype) { return std::ldexp(1.0, format_of(dtype).min_exponent); }

double largest_finite(DType dtype) {
  if (dtype == DType::int8) return 127;
  const Format format = format_of(dtype);
  // Without infinities, the last but one of the numbers in their place.
  const int last = format.finite ? 2 - format.digits : 1 - format.digits;
  return (2 - power_of_two(last)) * power_of_two(format.max_exponent);
}

double round_to_finite(DType dtype, double value) {
  if (dtype == DType::int8) {
    // There is one zero.
    return std::isnan(value) ? -128 : std::nearbyint(std::clamp(value, -128.0, 127.0)) + 0.0;
  }
  const Format format = format_of(dtype);
  const double magnitude = std::abs(value), largest = largest_finite(dtype);
  const double unit = power_of_two(spacing_exponent(format, magnitude));
  // What would be the next number is none. Half way to it, the largest is the even one.
  if (!(magnitude <= largest + power_of_two(spacing_exponent(format, largest)) / 2)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return std::copysign(std::nearbyint(magnitude / unit) * unit, value);
}

std::uint64_t encode_rounded(DType dtype, double value) {
  const Format format = format_of(dtype);
  if (dtype == DType::f64) {
    return std::isnan(value) ? 0x7ff8000000000000u : std::bit_cast<std::uint64_t>(value);
  }
  if (dtype == DType::int8) {
    return static_cast<std::uint8_t>(static_cast<std::int8_t>(round_to(dtype, value)));
  }
  const int fraction_bits = format.digits - 1;
  const std::uint64_t sign = std::uint64_t(std::signbit(value)) << (8 * format.bytes - 1);
  const int bias = 1 - format.min_exponent;
  const std::uint64_t infinity = std::uint64_t(2 * bias + 1) << fraction_bits;
  const std::uint64_t not_a_number = format.finite
                                         ? (std::uint64_t(1) << (8 * format.bytes - 1)) - 1
                                         : infinity | (std::uint64_t(1) << (fraction_bits - 1));
  if (std::isnan(value)) return not_a_number;
  double magnitude = std::abs(value);
  const std::uint64_t below = (std::uint64_t(1) << (52 - fraction_bits)) - 1;
  const bool fits = (std::bit_cast<std::uint64_t>(magnitude) & below) == 0 &&
                    exponent_of(magnitude) >= format.min_exponent;
  if (!fits || format.finite) magnitude = round_to(dtype, magnitude);
  if (std::isnan(magnitude)) return not_a_number;
  if (exponent_of(magnitude) > format.max_exponent) return sign | infinity;
  const int unit = format.min_exponent - fraction_bits;  // of subnormal numbers
  if (exponent_of(magnitude) < format.min_exponent) {
    return sign | static_cast<std::uint64_t>(magnitude * power_of_two(-unit));
  }
  // The same fields as a double's: fewer bits of the fraction, and another bias.
  const std::uint64_t fields = std::bit_cast<std::uint64_t>(magnitude) >> (52 - fraction_bits);
  return sign | (fields - (std::uint64_t(1023 - bias) << fraction_bits));
}

double decode_f16(std::uint64_t bits) {
  constexpr Format kFormat = format_of(DType::f16);
  constexpr int kFractionBits = kFormat.digits - 1;
  constexpr std::uint64_t kSign = 0x8000, kInfinityBits = 0x7c00;
  constexpr auto kBias = std::uint64_t(1023 - kFormat.max_exponent) << kFractionBits;
  const std::uint64_t magnitude_bits = bits & (kSign - 1);
  double magnitude;
  if (magnitude_bits >> kFractionBits == 0) {
    magnitude = double(magnitude_bits) * power_of_two(kFormat.min_exponent - kFractionBits);
  } else if (magnitude_bits < kInfinityBits) {
    magnitude = std::bit_cast<double>((magnitude_bits + kBias) << (52 - kFractionBits));
  } else {
    magnitude =
        magnitude_bits == kInfinityBits ? kInfinite : std::numeric_limits<double>::quiet_NaN();
  }
  return bits & kSign ? -magnitude : magnitude;
}

double decode_short(DType dtype, std::uint64_t bits) {
  if (dtype == DType::e5m2) return decode_f16(bits << 8);  // the upper half of one
  constexpr Format kFormat = format_of(DType::e4m3);
  constexpr int kFractionBits = kFormat.digits - 1;
  const auto magnitude_bits = bits & 0x7f, fraction = magnitude_bits & 7;
  const int exponent = int(magnitude_bits >> kFractionBits) + kFormat.min_exponent - 1;
  double magnitude = std::numeric_limits<double>::quiet_NaN();
  if (magnitude_bits >> kFractionBits == 0) {
    magnitude = double(fraction) * power_of_two(kFormat.min_exponent - kFractionBits);
  } else if (magnitude_bits != 0x7f) {
    magnitude = double(8 + fraction) * power_of_two(exponent - kFractionBits);
  }
  return bits & 0x80 ? -magnitude : magnitude;
}

Cell rounding_cell(DType dtype, double value, Rounding rounding) {
  ATTEST_ASSERT(!std::isnan(value) && !format_of(dtype).finite);  // no result is of such a format
  const Format format = format_of(dtype);
  const long double share = rounding == Rounding::nearest ? 0.5L : 1.0L;  // of a spacing
  constexpr long double kBeyond = std::numeric_limits<long double>::infinity();
  const long double magnitude = std::abs(static_cast<long double>(value));
  Cell cell;  // of the magnitude; mirrored below
  if (magnitude == 0) {
    const long double half = share * power_of_two(format.min_exponent - format.digits + 1);
    return {-half, half};
  }
  if (std::isinf(magnitude)) {
    const long double unit = std::ldexp(1.0L, format.max_exponent - format.digits + 1);
    const long double last = std::ldexp(1.0L, format.max_exponent + 1) - unit;
    cell = {last + (1 - share) * unit, kBeyond};
  } else {
    const long double up = power_of_two(spacing_exponent(format, value));
    // Below a power of two the numbers lie twice as dense, except at the bottom of the range.
    const int exponent = exponent_of(value);
    const bool lowest = exponent > format.min_exponent && power_of_two(exponent) == magnitude;
    const long double down = lowest ? up / 2 : up;
    cell = {magnitude - share * down, magnitude + share * up};
  }
  return std::signbit(value) ? Cell{-cell.high, -cell.low} : cell;
}

std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "f64";
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::e4m3:
      return "e4m3";
    case DType::e5m2:
      return "e5m2";
    case DType::int8:
      return "int8";
  }
  return "?";
}

std::optional<DType> dtype_named(std::string_view text) {
  for (const DType dtype : kDTypes) {
    if (name(dtype) == text) return dtype;
  }
  return std::nullopt;
}

std::optional<DType> element_type_named(std::string_view text) {
  for (const DType dtype : kStoredDTypes) {
    if (name(dtype) == text) return dtype;
  }
  return dtype_named(text);
}

std::optional<DType> dtype_numbered(std::int32_t number) {
  const auto found = std::find(kDTypes.begin(), kDTypes.end(), static_cast<DType>(number));
  return found == kDTypes.end() ? std::nullopt : std::optional(*found);
}

}  // namespace attest
