// The formats of 8 and 16 bits are tried on all of their patterns and between all of their
// neighbours, f32 and f64 on random ones. Expected values come from the definition of a format
// (significand times a power of two) and from exact midpoints, never from the functions under test.
#include "spec/dtype.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
const std::vector<DType> kNarrow = [] {
  std::vector<DType> narrow;
  for (const DType dtype : kDTypes) {
    if (format_of(dtype).bytes == 2) narrow.push_back(dtype);
  }
  for (const DType dtype : kStoredDTypes) {
    if (dtype != DType::int8) narrow.push_back(dtype);  // whose numbers are not of IEEE 754's kind
  }
  return narrow;
}();

const std::vector<DType> kEach = {DType::f64,  DType::f32,  DType::f16,
                                  DType::bf16, DType::e4m3, DType::e5m2};

// What lies beyond the range of e4m3, whose last pattern is the only NaN, and of the others.
double beyond(DType dtype) { return dtype == DType::e4m3 ? kNaN : kInfinity; }

// All non-negative finite numbers of a narrow format in ascending order, so that the index is the
// bit pattern; then the number that would follow if the range went on.
std::vector<double> ladder(DType dtype) {
  const Format format = format_of(dtype);
  const int fractions = 1 << (format.digits - 1);
  std::vector<double> values;
  for (int fraction = 0; fraction < fractions; ++fraction) {
    values.push_back(std::ldexp(fraction, format.min_exponent - (format.digits - 1)));
  }
  for (int exponent = format.min_exponent; exponent <= format.max_exponent; ++exponent) {
    for (int fraction = 0; fraction < fractions; ++fraction) {
      values.push_back(std::ldexp(fractions + fraction, exponent - (format.digits - 1)));
    }
  }
  if (dtype != DType::e4m3) values.push_back(std::ldexp(1.0, format.max_exponent + 1));
  return values;
}

std::uint64_t sign_bit(DType dtype) { return std::uint64_t(1) << (8 * format_of(dtype).bytes - 1); }

bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

TEST(DTypeTest, DecodesEveryPatternOfTheNarrowFormats) {
  for (const DType dtype : kNarrow) {
    const std::vector<double> values = ladder(dtype);
    const std::uint64_t infinity = values.size() - 1;
    for (std::uint64_t bits = 0; bits < sign_bit(dtype); ++bits) {
      const double expected = bits < infinity    ? values[bits]
                              : bits == infinity ? beyond(dtype)
                                                 : kNaN;
      ASSERT_TRUE(same(decode(dtype, bits), expected)) << name(dtype) << " " << bits;
      ASSERT_TRUE(same(decode(dtype, bits | sign_bit(dtype)), -expected))
          << name(dtype) << " " << bits;
    }
  }
}

TEST(DTypeTest, EveryNaNIsReadAsTheSameOne) {
  for (const DType dtype : kEach) {
    const std::uint64_t nan = encode(dtype, kNaN);
    for (const std::uint64_t bits : {nan, nan | 1, nan | sign_bit(dtype)}) {
      EXPECT_TRUE(std::isnan(decode(dtype, bits))) << name(dtype);
      EXPECT_FALSE(std::signbit(decode(dtype, bits))) << name(dtype) << ": printed as -nan";
    }
  }
}

TEST(DTypeTest, EncodingWhatWasDecodedGivesThePatternBack) {
  for (const DType dtype : kNarrow) {
    const std::uint64_t quiet_nan = dtype == DType::f16    ? 0x7e00
                                    : dtype == DType::bf16 ? 0x7fc0
                                    : dtype == DType::e4m3 ? 0x7f
                                                           : 0x7e;
    for (std::uint64_t bits = 0; bits < 2 * sign_bit(dtype); ++bits) {
      const double value = decode(dtype, bits);
      ASSERT_EQ(encode(dtype, value), std::isnan(value) ? quiet_nan : bits) << name(dtype);
      ASSERT_TRUE(same(round_to(dtype, value), value)) << name(dtype) << " " << bits;
    }
  }
}

TEST(DTypeTest, RoundsToTheNearestWithTiesToEvenBetweenAllNeighbours) {
  for (const DType dtype : kNarrow) {
    const std::vector<double> values = ladder(dtype);
    for (std::size_t bits = 0; bits + 1 < values.size(); ++bits) {
      const double low = values[bits];
      const double high = bits + 2 < values.size() ? values[bits + 1] : beyond(dtype);
      const double middle = (low + values[bits + 1]) / 2;  // exact in double
      const double even = bits % 2 == 0 ? low : high;
      for (const double sign : {1.0, -1.0}) {
        ASSERT_TRUE(same(round_to(dtype, sign * middle), sign * even))
            << name(dtype) << " " << bits;
        ASSERT_TRUE(same(round_to(dtype, sign * std::nextafter(middle, 0)), sign * low))
            << name(dtype) << " " << bits;
        ASSERT_TRUE(same(round_to(dtype, sign * std::nextafter(middle, kInfinity)), sign * high))
            << name(dtype) << " " << bits;
      }
      ASSERT_EQ(encode(dtype, middle), bits % 2 == 0 ? bits : bits + 1) << name(dtype);
      const std::uint64_t sign = std::isnan(high) ? 0 : sign_bit(dtype);
      ASSERT_EQ(encode(dtype, -std::nextafter(middle, kInfinity)), (bits + 1) | sign);
    }
  }
}

TEST(DTypeTest, Int8IsTwosComplementRoundedToTheNearestWithinItsRange) {
  for (int number = -128; number < 128; ++number) {
    const auto bits = static_cast<std::uint8_t>(number < 0 ? number + 256 : number);
    ASSERT_EQ(decode(DType::int8, bits), number);
    ASSERT_EQ(encode(DType::int8, number), bits);
    const double middle = number + 0.5, next = std::min(number + 1, 127);
    EXPECT_EQ(round_to(DType::int8, middle), number % 2 == 0 ? number : next);
    EXPECT_EQ(round_to(DType::int8, std::nextafter(middle, -kInfinity)), number);
    EXPECT_EQ(round_to(DType::int8, std::nextafter(middle, kInfinity)), next);
  }
  EXPECT_EQ(round_to(DType::int8, -128.51), -128);
  EXPECT_EQ(round_to(DType::int8, -kInfinity), -128);
  EXPECT_EQ(round_to(DType::int8, kInfinity), 127);
  EXPECT_EQ(encode(DType::int8, kNaN), 0x80);
  EXPECT_TRUE(same(round_to(DType::int8, -0.0), 0)) << "there is one zero";
  EXPECT_TRUE(same(round_to(DType::int8, -0.5), 0));
  EXPECT_EQ(largest_finite(DType::int8), 127);
}

TEST(DTypeTest, RoundsOnceStraightFromDouble) {
  // Each of these lies just above a tie of the narrow format, by less than f32 can hold: by way of
  // f32 it would become the tie and go down to even.
  const double tiny = std::ldexp(1.0, -40);
  EXPECT_EQ(round_to(DType::f16, 1 + std::ldexp(1.0, -11) + tiny), 1 + std::ldexp(1.0, -10));
  EXPECT_EQ(round_to(DType::bf16, 1 + std::ldexp(1.0, -8) + tiny), 1 + std::ldexp(1.0, -7));
  EXPECT_EQ(round_to(DType::f16, std::nextafter(65520.0, 0.0)), 65504);
  EXPECT_EQ(round_to(DType::f16, 65520), kInfinity);
}

TEST(DTypeTest, KeepsTheSignOfZeroAndPassesSpecialsOn) {
  for (const DType dtype : kEach) {
    EXPECT_TRUE(same(round_to(dtype, 0.0), 0.0));
    EXPECT_TRUE(same(round_to(dtype, -0.0), -0.0));
    EXPECT_TRUE(same(round_to(dtype, kInfinity), beyond(dtype)));
    EXPECT_TRUE(same(round_to(dtype, -kInfinity), -beyond(dtype)));
    EXPECT_TRUE(std::isnan(round_to(dtype, kNaN)));
    EXPECT_EQ(encode(dtype, -0.0), sign_bit(dtype));
    EXPECT_TRUE(std::isnan(decode(dtype, encode(dtype, kNaN))));
    EXPECT_EQ(encode(dtype, kNaN), encode(dtype, -kNaN)) << "NaN is canonical";
    if (dtype == DType::f64) continue;
    const double least = 2 * half_smallest_subnormal(dtype);
    EXPECT_TRUE(same(round_to(dtype, -least / 2), -0.0)) << "a tie with zero goes to zero";
    EXPECT_EQ(round_to(dtype, std::nextafter(least / 2, 1)), least);
    EXPECT_TRUE(same(round_to(dtype, -std::numeric_limits<double>::denorm_min()), -0.0));
  }
}

TEST(DTypeTest, ConstantsAreThoseOfIeee754) {
  EXPECT_EQ(unit_roundoff(DType::f64), std::ldexp(1.0, -53));
  EXPECT_EQ(unit_roundoff(DType::f32), std::ldexp(1.0, -24));
  EXPECT_EQ(unit_roundoff(DType::f16), std::ldexp(1.0, -11));
  EXPECT_EQ(unit_roundoff(DType::bf16), std::ldexp(1.0, -8));
  EXPECT_EQ(largest_finite(DType::f64), std::numeric_limits<double>::max());
  EXPECT_EQ(largest_finite(DType::f32), std::numeric_limits<float>::max());
  EXPECT_EQ(largest_finite(DType::f16), 65504);
  EXPECT_EQ(largest_finite(DType::bf16), 0x1.fep127);
  EXPECT_EQ(largest_finite(DType::e4m3), 448);
  EXPECT_EQ(largest_finite(DType::e5m2), 57344);
  EXPECT_EQ(smallest_normal(DType::f64), std::numeric_limits<double>::min());
  EXPECT_EQ(smallest_normal(DType::f32), std::numeric_limits<float>::min());
  EXPECT_EQ(smallest_normal(DType::f16), std::ldexp(1.0, -14));
  EXPECT_EQ(smallest_normal(DType::bf16), std::ldexp(1.0, -126));
  EXPECT_EQ(2 * half_smallest_subnormal(DType::f32), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(half_smallest_subnormal(DType::f16), std::ldexp(1.0, -25));
  EXPECT_EQ(half_smallest_subnormal(DType::bf16), std::ldexp(1.0, -134));
  for (const DType dtype : kDTypes) EXPECT_EQ(dtype_named(name(dtype)), dtype);
  EXPECT_FALSE(dtype_named("float"));
}

#if defined(__FLT16_MANT_DIG__)
#if defined(__aarch64__)
using CompilersHalf = __fp16;  // GCC 12 has no other in C++
#else
using CompilersHalf = _Float16;
#endif

TEST(DTypeTest, F16AgreesWithTheCompiler) {
  // Every exponent within and around the range of f16, of both signs, with any significand.
  std::mt19937_64 random;
  for (std::uint64_t exponent = 1023 - 30; exponent < 1023 + 20; ++exponent) {
    for (int i = 0; i < 20000; ++i) {
      const auto bits = (random() & 0x800fffffffffffffu) | exponent << 52;
      const auto value = std::bit_cast<double>(bits);
      const auto half = static_cast<double>(static_cast<CompilersHalf>(value));
      ASSERT_TRUE(same(round_to(DType::f16, value), half)) << value;
    }
  }
}
#endif

RC_GTEST_PROP(DTypeTest, F32RoundsToTheNearestWithTiesToEven, (std::uint32_t drawn)) {
  for (std::uint32_t exponent = 0; exponent < 255; ++exponent) {
    const std::uint32_t bits = (drawn & 0x7fffff) | exponent << 23;
    const float low = std::bit_cast<float>(bits);
    const float high = std::nextafter(low, std::numeric_limits<float>::infinity());
    const double above = std::isinf(high) ? std::ldexp(1.0, 128) : double(high);
    const double middle = (double(low) + above) / 2;
    RC_ASSERT(same(round_to(DType::f32, middle), bits % 2 == 0 ? low : high));
    RC_ASSERT(same(round_to(DType::f32, std::nextafter(middle, 0)), low));
    RC_ASSERT(same(round_to(DType::f32, -std::nextafter(middle, kInfinity)), -high));
    RC_ASSERT(encode(DType::f32, low) == bits);
    RC_ASSERT(encode(DType::f32, -low) == (bits | 0x80000000u));
    RC_ASSERT(same(decode(DType::f32, bits), low));
    const Cell cell = rounding_cell(DType::f32, low);
    RC_ASSERT(cell.high == middle);
    RC_ASSERT(rounding_cell(DType::f32, -low).low == -middle);
    RC_ASSERT(rounding_cell(DType::f32, low, Rounding::faithful).high == above);
    if (!std::isinf(high)) RC_ASSERT(rounding_cell(DType::f32, high).low == middle);
  }
}

RC_GTEST_PROP(DTypeTest, F64IsLeftAsItIsAndItsCellsAreHalfWayToTheNeighbours,
              (std::uint32_t upper, std::uint32_t lower)) {
  const auto bits = std::uint64_t(upper) << 32 | lower;
  const double value = std::bit_cast<double>(bits);
  RC_PRE(std::isfinite(value) && std::abs(value) < std::numeric_limits<double>::max());
  RC_ASSERT(same(round_to(DType::f64, value), value));
  RC_ASSERT(encode(DType::f64, value) == bits);
  RC_ASSERT(same(decode(DType::f64, bits), value));
  const Cell cell = rounding_cell(DType::f64, value);
  const Cell wide = rounding_cell(DType::f64, value, Rounding::faithful);
  const long double up = std::nextafter(value, kInfinity), down = std::nextafter(value, -kInfinity);
  RC_ASSERT(wide.low == down && wide.high == up);
  RC_ASSERT(cell.low == (down + value) / 2 && cell.high == (up + value) / 2);
}

TEST(DTypeTest, CellsHoldExactlyTheNumbersThatRoundToTheirValue) {
  for (const DType dtype : kNarrow) {
    if (format_of(dtype).finite) continue;  // no result is of such a format
    const std::vector<double> values = ladder(dtype);
    for (std::size_t bits = 0; bits < values.size(); ++bits) {
      const bool overflown = bits + 1 == values.size();
      const double value = overflown ? kInfinity : values[bits];
      const Cell cell = rounding_cell(dtype, value);
      const Cell wide = rounding_cell(dtype, value, Rounding::faithful);
      const double below = bits == 0 ? -values[1] : values[bits - 1];
      ASSERT_EQ(cell.low, (below + values[bits]) / 2) << name(dtype) << " " << bits;
      ASSERT_EQ(wide.low, below) << name(dtype) << " " << bits;
      ASSERT_EQ(cell.high, overflown ? kInfinity : (values[bits] + values[bits + 1]) / 2);
      ASSERT_EQ(wide.high, overflown ? kInfinity : values[bits + 1]);
      // What lies within rounds to the value; what lies outside does not.
      const double first = std::nextafter(static_cast<double>(cell.low), kInfinity);
      ASSERT_EQ(round_to(dtype, first), value) << name(dtype) << " " << bits;
      ASSERT_NE(round_to(dtype, std::nextafter(static_cast<double>(cell.low), -kInfinity)), value);
      if (!overflown) {
        const double last = std::nextafter(static_cast<double>(cell.high), -kInfinity);
        ASSERT_EQ(round_to(dtype, last), value) << name(dtype) << " " << bits;
        ASSERT_NE(round_to(dtype, std::nextafter(static_cast<double>(cell.high), kInfinity)),
                  value);
      }
      const Cell mirrored = rounding_cell(dtype, -value);
      ASSERT_EQ(mirrored.low, -cell.high);
      ASSERT_EQ(mirrored.high, -cell.low);
    }
  }
}

TEST(DTypeTest, StoresAndLoadsAtAnyAddress) {
  for (const DType dtype : kEach) {
    const int bytes = format_of(dtype).bytes;
    for (const double value : {1.5, -0.0, beyond(dtype), std::ldexp(1.0, -9)}) {
      unsigned char memory[24];
      std::memset(memory, 0xa5, sizeof memory);
      store(dtype, value, memory + 3);
      EXPECT_TRUE(same(load(dtype, memory + 3), value)) << name(dtype);
      EXPECT_EQ(memory[2], 0xa5);
      EXPECT_EQ(memory[3 + bytes], 0xa5) << "nothing behind the element is touched";
    }
  }
}

}  // namespace
}  // namespace attest
