#include "cases/normal.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/bounds/each_target.h"

namespace attest {
namespace {

void expect_same_as_one_by_one() {
  const std::array<std::uint32_t, 2> key = {0x243f6a88, 0xffffffff};
  const std::uint64_t carry = std::uint64_t(1) << 32;  // from the low half of a counter
  for (const std::uint64_t first :
       {std::uint64_t(0), std::uint64_t(12345), carry - 7, 3 * carry - 21}) {
    for (const std::size_t count : {0, 1, 3, 4, 15, 16, 17, 40}) {
      std::vector<double> numbers(count);
      normal_numbers(key, first, numbers);
      for (std::size_t n = 0; n < count; ++n) {
        const std::uint64_t counter = first + n;
        const Philox words = philox(
            {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0},
            key);
        ASSERT_EQ(numbers[n], normal_from(words)) << first << " + " << n;
      }
    }
  }
}

TEST(NormalTest, ManyAtATimeAreTheSameAsOneByOne) { on_each_target(expect_same_as_one_by_one); }

TEST(NormalTest, TheLargestIsBelowFive) {
  EXPECT_LT(normal_from({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}), 5);
  EXPECT_EQ(normal_from({0, 0, 0, 0}),
            -normal_from({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}));
}

}  // namespace
}  // namespace attest
