#include "tests/bench/tile_peak.h"

#include <stdexcept>

#include "tests/bench/fma_peak.h"

#if defined(__AMX_TILE__) && defined(__AMX_BF16__)
#include <immintrin.h>

#include <cstdint>

namespace attest {

double tile_peak() {
  struct alignas(64) Config {
    std::uint8_t palette, start_row, reserved[14];
    std::uint16_t row_bytes[16];
    std::uint8_t rows[16];
  } config = {1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
  __asm__ volatile("" : : "r"(&config) : "memory");  // its stores come before what follows
  _tile_loadconfig(&config);                         // and makes all tiles 0
  constexpr int kRounds = 4000;
  const double begin = thread_seconds();
  for (int round = 0; round < kRounds; ++round) {
    // Four sums: more than a latency of 52 cycles needs, at one product in 16 cycles.
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  float sums[16][16];
  _tile_stored(0, sums, sizeof sums[0]);  // waits for the last
  const double seconds = thread_seconds() - begin;
  _tile_release();
  return 2.0 * 16 * 16 * 32 * 4 * kRounds / seconds;
}

}  // namespace attest
#else
namespace attest {

double tile_peak() { throw std::runtime_error("built without AMX"); }

}  // namespace attest
#endif
