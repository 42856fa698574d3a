#include "spec/dtype.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "spec/assert.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The exponent of a normal double; of a smaller one, one less than that of any normal.
inline int exponent_of(double value) {
  return static_cast<int>(std::bit_cast<std::uint64_t>(value) >> 52 & 0x7ff) - 1023;
}

// The exponent of the distance between neighbouring numbers of `format` around `value` (finite, not
// zero).
inline int spacing_exponent(const Format& format, double value) {
  return std::max(exponent_of(value), format.min_exponent) - (format.digits - 1);
}

}  // namespace

double unit_roundoff(DType dtype) { return std::ldexp(1.0, -format_of(dtype).digits); }

double half_smallest_subnormal(DType dtype) {
  const Format format = format_of(dtype);
  return std::ldexp(1.0, format.min_exponent - format.digits);  // f64: 2^-1075 rounds to 0
}

double smallest_normal(DType dtype) { return std::ldexp(1.0, format_of(dtype).min_exponent); }

double largest_finite(DType dtype) {
  const Format format = format_of(dtype);
  return (2 - power_of_two(1 - format.digits)) * power_of_two(format.max_exponent);
}

double round_to(DType dtype, double value) {
  if (dtype == DType::f64 || value == 0 || !std::isfinite(value)) return value;
  if (dtype == DType::f32) return static_cast<float>(value);
  const Format format = format_of(dtype);
  if (exponent_of(value) > format.max_exponent) return std::copysign(kInfinity, value);
  // The numbers around this one are as far apart as those of the format around `value`: so the sum
  // is rounded to the nearest of them, ties to even, and the difference is exact.
  const double coarse = 0x1.8p52 * power_of_two(spacing_exponent(format, value));
  const double rounded = (std::abs(value) + coarse) - coarse;
  const bool overflows = exponent_of(rounded) > format.max_exponent;
  return std::copysign(overflows ? kInfinity : rounded, value);
}

std::uint64_t encode(DType dtype, double value) {
  const Format format = format_of(dtype);
  if (dtype == DType::f64) {
    return std::isnan(value) ? 0x7ff8000000000000u : std::bit_cast<std::uint64_t>(value);
  }
  if (dtype == DType::f32 && !std::isnan(value)) {
    return std::bit_cast<std::uint32_t>(static_cast<float>(value));
  }
  const int width = 8 * format.bytes;
  const int fraction_bits = format.digits - 1;
  const std::uint64_t sign = std::uint64_t(std::signbit(value)) << (width - 1);
  const std::uint64_t infinity = std::uint64_t(2 * format.max_exponent + 1) << fraction_bits;
  if (std::isnan(value)) return infinity | (std::uint64_t(1) << (fraction_bits - 1));
  const double magnitude = std::abs(round_to(dtype, value));
  if (std::isinf(magnitude)) return sign | infinity;
  if (magnitude == 0) return sign;
  const int unit = spacing_exponent(format, magnitude);
  const auto significand = static_cast<std::uint64_t>(magnitude * power_of_two(-unit));
  // A subnormal number has exponent field 0; a normal one's hidden bit raises the field by one.
  const auto field = static_cast<std::uint64_t>(unit + fraction_bits - format.min_exponent);
  return sign | ((field << fraction_bits) + significand);
}

double decode(DType dtype, std::uint64_t bits) {
  if (dtype == DType::f64) return std::bit_cast<double>(bits);
  if (dtype == DType::f32) return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  if (dtype == DType::bf16) return std::bit_cast<float>(static_cast<std::uint32_t>(bits << 16));
  const Format format = format_of(dtype);
  const int fraction_bits = format.digits - 1;
  const auto fraction = bits & ((std::uint64_t(1) << fraction_bits) - 1);
  const int field_max = 2 * format.max_exponent + 1;
  const int field = static_cast<int>(bits >> fraction_bits) & field_max;
  double magnitude;
  if (field == field_max) {
    magnitude = fraction ? std::numeric_limits<double>::quiet_NaN() : kInfinity;
  } else if (field == 0) {
    magnitude = double(fraction) * power_of_two(format.min_exponent - fraction_bits);
  } else {
    magnitude = double(fraction + (std::uint64_t(1) << fraction_bits)) *
                power_of_two(field - 1 + format.min_exponent - fraction_bits);
  }
  const bool negative = bits >> (8 * format.bytes - 1) & 1;
  return negative ? -magnitude : magnitude;
}

void store(DType dtype, double value, void* address) {
  const std::uint64_t bits = encode(dtype, value);
  switch (format_of(dtype).bytes) {
    case 8:
      std::memcpy(address, &bits, 8);
      return;
    case 4: {
      const auto narrow = static_cast<std::uint32_t>(bits);
      std::memcpy(address, &narrow, 4);
      return;
    }
    default: {
      const auto narrow = static_cast<std::uint16_t>(bits);
      std::memcpy(address, &narrow, 2);
    }
  }
}

double load(DType dtype, const void* address) {
  switch (format_of(dtype).bytes) {
    case 8: {
      std::uint64_t bits;
      std::memcpy(&bits, address, 8);
      return decode(dtype, bits);
    }
    case 4: {
      std::uint32_t bits;
      std::memcpy(&bits, address, 4);
      return decode(dtype, bits);
    }
    default: {
      std::uint16_t bits;
      std::memcpy(&bits, address, 2);
      return decode(dtype, bits);
    }
  }
}

Cell rounding_cell(DType dtype, double value, Rounding rounding) {
  ATTEST_ASSERT(!std::isnan(value));
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
  }
  return "?";
}

std::optional<DType> dtype_named(std::string_view text) {
  for (const DType dtype : kDTypes) {
    if (name(dtype) == text) return dtype;
  }
  return std::nullopt;
}

}  // namespace attest
