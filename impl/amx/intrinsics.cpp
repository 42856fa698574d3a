// The instructions of AMX and AVX-512. This file alone is compiled for processors that have them,
// and nothing of it may run on others; so it includes nothing that has code of its own.
#include "impl/amx/intrinsics.h"

#include <immintrin.h>

#include "impl/amx/steps.inl"

namespace attest::impl::amx {
namespace {

// The operand of LDTILECFG.
struct alignas(64) TileConfig {
  std::uint8_t palette, start_row, reserved[14];
  std::uint16_t row_bytes[16];
  std::uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == 64);

// The compiler does not know that loads of tiles and of their configuration read memory: what has
// been stored before must be there.
inline void finish_stores() { __asm__ volatile("" ::: "memory"); }

// The number of a tile is part of an instruction's name.
#define ATTEST_FOR_EACH_TILE(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)

struct Tiles {
  static void configure() {
    TileConfig config = {};
    config.palette = 1;
    for (int tile = 0; tile < 8; ++tile) {
      config.row_bytes[tile] = 64;
      config.rows[tile] = 16;
    }
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
  }
  static void release() { _tile_release(); }

  template <int kTile>
  static void zero() {
#define ATTEST_ZERO(n) \
  if constexpr (kTile == n) _tile_zero(n);
    ATTEST_FOR_EACH_TILE(ATTEST_ZERO)
#undef ATTEST_ZERO
  }

  template <int kTile>
  static void load(const void* from, std::int64_t stride) {
    finish_stores();
#define ATTEST_LOAD(n) \
  if constexpr (kTile == n) _tile_loadd(n, from, stride);
    ATTEST_FOR_EACH_TILE(ATTEST_LOAD)
#undef ATTEST_LOAD
  }

  template <int kTile>
  static void store(void* to, std::int64_t stride) {
#define ATTEST_STORE(n) \
  if constexpr (kTile == n) _tile_stored(n, to, stride);
    ATTEST_FOR_EACH_TILE(ATTEST_STORE)
#undef ATTEST_STORE
    finish_stores();
  }

  // Only those that a square of 2 by 2 tiles needs.
  template <int kC, int kA, int kB>
  static void multiply() {
    static_assert(kA == 4 + kC / 2 && kB == 6 + kC % 2);
    if constexpr (kC == 0) _tile_dpbf16ps(0, 4, 6);
    if constexpr (kC == 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (kC == 2) _tile_dpbf16ps(2, 5, 6);
    if constexpr (kC == 3) _tile_dpbf16ps(3, 5, 7);
  }

  static void narrow(const Vector& x, const Vector& y, Bits* to) {
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh((__m512)y, (__m512)x));
  }
  static void narrow_pairs(const Vector& x, const Vector& y, Bits* to) {
    using Halves = Bits __attribute__((vector_size(64)));
    constexpr Halves kInTurn = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)y, (__m512)x);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16((__m512i)kInTurn, both));
  }
};

#undef ATTEST_FOR_EACH_TILE

}  // namespace

const Steps& tile_steps() {
  static constexpr Steps kSteps = steps_of<Tiles>();
  return kSteps;
}

}  // namespace attest::impl::amx
