// The numbers of kernel.h are those of the vocabulary.
#include "spec/kernel/formats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "spec/dtype.h"
#include "spec/kernel/tensor.h"

namespace attest {
namespace {

template <class T>
T of_bits(unsigned bits) {
  T number;
  number.bits = static_cast<std::uint16_t>(bits);
  return number;
}

// Every number of the format; and between each and the next the middle, and what lies beside it.
template <class T>
void expect_the_same(DType dtype) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const auto number = static_cast<std::uint16_t>(bits);
    const double exact = load(dtype, &number);
    const float wide = of_bits<T>(bits);
    if (std::isnan(exact)) {
      EXPECT_TRUE(std::isnan(wide)) << bits;
      EXPECT_TRUE(std::isnan(static_cast<float>(T(wide)))) << bits;
      continue;
    }
    ASSERT_EQ(wide, exact) << bits;
    const auto next = static_cast<std::uint16_t>(bits + 1);
    const auto middle = static_cast<float>((exact + load(dtype, &next)) / 2);
    for (const float x : {wide, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, wide),
                          std::nextafter(middle, 2 * middle)}) {
      if (std::isnan(x)) continue;
      std::uint16_t rounded = 0;
      store(dtype, x, &rounded);
      ASSERT_EQ(T(x).bits, rounded) << x;
    }
  }
}

// What a kernel on kernel.h is called with must have a type there.
TEST(KernelFormatsTest, EveryFormatOfTheVocabularyHasAType) {
  std::vector<DType> all(kDTypes.begin(), kDTypes.end());
  all.insert(all.end(), kStoredDTypes.begin(), kStoredDTypes.end());
  for (const DType dtype : all) {
    attest_tensor tensor{};
    tensor.data = &tensor;
    tensor.dtype = static_cast<attest_dtype>(dtype);
    const auto is_viewed = [&](auto element) {
      Tensor(tensor).view<decltype(element)>();
      return sizeof(element) == static_cast<std::size_t>(format_of(dtype).bytes);
    };
    EXPECT_TRUE(with_element_type(tensor.dtype, is_viewed)) << name(dtype);
  }
}

// As above, but that what lies beyond the largest number becomes that.
template <class T>
void expect_the_same_of_8_bits(DType dtype) {
  const double largest = largest_finite(dtype);
  for (unsigned bits = 0; bits < 0x100; ++bits) {
    T number;
    number.bits = static_cast<std::uint8_t>(bits);
    const double exact = decode(dtype, bits);
    const float wide = number;
    ASSERT_EQ(std::isnan(wide), std::isnan(exact)) << bits;
    if (std::isnan(exact)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(T(wide)))) << bits;
      continue;
    }
    ASSERT_EQ(wide, exact) << bits;
    const double next = decode(dtype, bits + 1), middle = (exact + next) / 2;
    for (const double x :
         {exact, middle, std::nextafter(middle, 0.0), std::nextafter(middle, next), 2 * exact}) {
      const auto narrow = static_cast<float>(x);
      if (std::isnan(narrow)) continue;
      const double clamped = std::clamp<double>(narrow, -largest, largest);
      ASSERT_EQ(T(narrow).bits, encode(dtype, clamped)) << narrow;
    }
  }
}

TEST(KernelFormatsTest, E4m3IsThatOfTheVocabulary) { expect_the_same_of_8_bits<e4m3>(DType::e4m3); }
TEST(KernelFormatsTest, E5m2IsThatOfTheVocabulary) { expect_the_same_of_8_bits<e5m2>(DType::e5m2); }
TEST(KernelFormatsTest, F16IsThatOfTheVocabulary) { expect_the_same<f16>(DType::f16); }
TEST(KernelFormatsTest, Bf16IsThatOfTheVocabulary) { expect_the_same<bf16>(DType::bf16); }

}  // namespace
}  // namespace attest
