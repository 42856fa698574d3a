// Nearly normal numbers from Philox: the sum of eight uniform 16-bit numbers, centred and scaled to
// standard deviation 1; within 4.9. Integers up to the last step, which rounds correctly, so that
// they are the same on every machine.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include "cases/philox.h"

namespace attest {

// `sum`: of the eight.
inline double normal_from_sum(std::int32_t sum) {
  return (static_cast<double>(sum) - 4 * 65535.0) / std::sqrt(8.0 / 12.0 * 65536.0 * 65536.0);
}

inline double normal_from(const Philox& words) {
  std::uint32_t sum = 0;
  for (const std::uint32_t word : words) sum += (word & 0xffff) + (word >> 16);
  return normal_from_sum(static_cast<std::int32_t>(sum));
}

// numbers[n] = normal_from(philox({low and high half of first + n, 0, 0}, key)), side by side.
void normal_numbers(std::array<std::uint32_t, 2> key, std::uint64_t first,
                    std::span<double> numbers);

}  // namespace attest
