// The chances of a random problem: a sequence of numbers that depends on a text alone, the same on
// every machine and whoever else draws at the same time.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cases/philox.h"
#include "spec/assert.h"
#include "spec/index.h"

namespace attest {

class Dice {
 public:
  explicit Dice(std::string_view text) : key_(philox_key(text)) {}

  // Both ends included.
  Index within(Index least, Index most) {
    ATTEST_ASSERT(least <= most);
    const auto count = static_cast<std::uint64_t>(most - least) + 1;
    ATTEST_ASSERT(count <= std::uint64_t(1) << 32);
    const std::uint64_t word = philox({draw_++, 0, 0, 0}, key_)[0];
    return least + static_cast<Index>((word * count) >> 32);
  }

  bool chance(int percent) { return within(0, 99) < percent; }

  template <class T>
  const T& one_of(const std::vector<T>& choices) {
    ATTEST_ASSERT(!choices.empty());
    return choices[static_cast<std::size_t>(within(0, static_cast<Index>(choices.size()) - 1))];
  }

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint32_t draw_ = 0;
};

}  // namespace attest
