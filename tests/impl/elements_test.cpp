#include "impl/elements.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>

#include "spec/dtype.h"

namespace attest::impl {
namespace {

// What the standard's own, slow conversion says of the same float.
std::uint16_t encoded(DType dtype, float value) {
  return static_cast<std::uint16_t>(encode(dtype, value));
}

template <class T>
bool narrows_like(DType dtype, float value) {
  const std::uint16_t bits = narrow<T>(value).bits;
  if (std::isnan(value)) return std::isnan(decode(dtype, bits));
  return bits == encoded(dtype, value);
}

template <class T>
void expect_exhaustively(DType dtype) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const T element{static_cast<std::uint16_t>(bits)};
    const double exact = decode(dtype, bits);
    const float wide = widen(element);
    if (std::isnan(exact)) {
      ASSERT_TRUE(std::isnan(wide)) << bits;
      ASSERT_TRUE(std::isnan(decode(dtype, narrow<T>(wide).bits))) << bits;
      continue;
    }
    ASSERT_EQ(wide, exact) << bits;
    ASSERT_EQ(std::signbit(wide), std::signbit(exact)) << bits;
    ASSERT_EQ(narrow<T>(wide).bits, bits);
    // The midpoint to the next element, and the floats on both sides of it.
    const double next = decode(dtype, bits + 1);
    if (std::isinf(exact) || !std::isfinite(next)) continue;
    const auto middle = static_cast<float>((exact + next) / 2);
    for (const float value :
         {std::nextafter(middle, -INFINITY), middle, std::nextafter(middle, INFINITY)}) {
      ASSERT_TRUE(narrows_like<T>(dtype, value)) << bits << " " << value;
    }
  }
}

TEST(ElementsTest, HalfIsConvertedExactlyAndBackForAllPatternsAndMidpoints) {
  expect_exhaustively<Half>(DType::f16);
}

TEST(ElementsTest, BFloatIsConvertedExactlyAndBackForAllPatternsAndMidpoints) {
  expect_exhaustively<BFloat16>(DType::bf16);
}

TEST(ElementsTest, ElementsOf8BitsAreConvertedExactlyForAllPatterns) {
  for (unsigned bits = 0; bits < 0x100; ++bits) {
    const auto pattern = static_cast<std::uint8_t>(bits);
    for (const auto& [dtype, wide] : {std::pair{DType::e4m3, widen(E4M3{pattern})},
                                      std::pair{DType::e5m2, widen(E5M2{pattern})},
                                      std::pair{DType::int8, widen(std::int8_t(pattern))}}) {
      const double exact = decode(dtype, bits);
      ASSERT_EQ(std::isnan(wide), std::isnan(exact)) << name(dtype) << " " << bits;
      if (std::isnan(exact)) continue;
      ASSERT_EQ(wide, exact) << name(dtype) << " " << bits;
      ASSERT_EQ(std::signbit(wide), std::signbit(exact)) << name(dtype) << " " << bits;
    }
  }
}

TEST(ElementsTest, OverflowStartsHalfAUnitBeyondTheLargest) {
  EXPECT_EQ(narrow<Half>(std::nextafter(65520.0f, 0.0f)).bits, 0x7bff);
  EXPECT_EQ(narrow<Half>(65520.0f).bits, 0x7c00);
  EXPECT_EQ(narrow<Half>(-1e30f).bits, 0xfc00);
  EXPECT_EQ(narrow<BFloat16>(std::bit_cast<float>(0x7f7f7fffu)).bits, 0x7f7f);
  EXPECT_EQ(narrow<BFloat16>(std::bit_cast<float>(0x7f7f8000u)).bits, 0x7f80);
}

RC_GTEST_PROP(ElementsTest, AnyFloatIsRoundedToTheNearest, (std::uint32_t bits)) {
  // RapidCheck likes small numbers; the multiplication spreads them over all exponents.
  const float value = std::bit_cast<float>(bits * 2654435761u);
  RC_ASSERT(narrows_like<Half>(DType::f16, value));
  RC_ASSERT(narrows_like<BFloat16>(DType::bf16, value));
}

TEST(ElementsTest, FloatsOfAllExponentsAreRoundedToTheNearest) {
  for (std::uint32_t i = 0; i < (1u << 20); ++i) {
    const float value = std::bit_cast<float>(i * 4099u);
    ASSERT_TRUE(narrows_like<Half>(DType::f16, value)) << value;
    ASSERT_TRUE(narrows_like<BFloat16>(DType::bf16, value)) << value;
  }
}

}  // namespace
}  // namespace attest::impl
