#include "cases/philox.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace attest {
namespace {

// The vectors that Random123 publishes for philox4x32_10.
TEST(PhiloxTest, AgreesWithThePublishedVectorForZeros) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Philox{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
}

TEST(PhiloxTest, AgreesWithThePublishedVectorForOnes) {
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Philox{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(PhiloxTest, AgreesWithThePublishedVectorForDigitsOfPi) {
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Philox{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, TextsThatDifferInOneLetterHaveKeysThatDiffer) {
  std::set<std::array<std::uint32_t, 2>> keys;
  for (int i = 0; i < 10000; ++i)
    keys.insert(philox_key("mask/causal/s=" + std::to_string(i) + "#q"));
  EXPECT_EQ(keys.size(), 10000u);
}

}  // namespace
}  // namespace attest
