// The machine of impl/amx/steps.inl in ordinary code: tiles and what is done with them, as Intel's
// manual (Software Developer's Manual, volume 2, TDPBF16PS; "Intel AMX Instruction Set Reference")
// specifies it, so that the kernels on tiles can be tested on any processor, bit for bit but for
// the payloads of NaN.
//
// Of its own it is strict: nothing but what load() and zero() set may be used, between configure()
// and release().
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "impl/elements.h"

namespace attest {

struct TileEmulation {
  // As palette 1 has them.
  static constexpr int kTiles = 8, kRows = 16, kColumns = 16;

  struct Tile {
    std::uint32_t words[kRows][kColumns];
    bool set = false;
  };
  struct State {
    bool configured = false;
    Tile tiles[kTiles] = {};
  };
  static State& state() {
    thread_local State of_this_thread;
    return of_this_thread;
  }

  // LDTILECFG zeroes all tiles.
  static void configure() {
    state() = {};
    state().configured = true;
  }
  static void release() { state() = {}; }

  static Tile& tile(int number, bool must_be_set) {
    State& now = state();
    if (!now.configured) throw std::logic_error("tiles are used that are not configured");
    if (must_be_set && !now.tiles[number].set) throw std::logic_error("a tile is used before set");
    now.tiles[number].set = true;
    return now.tiles[number];
  }

  template <int kTile>
  static void zero() {
    std::memset(tile(kTile, false).words, 0, sizeof Tile::words);
  }

  template <int kTile>
  static void load(const void* from, std::int64_t stride) {
    Tile& to = tile(kTile, false);
    for (int row = 0; row < kRows; ++row) {
      std::memcpy(to.words[row], static_cast<const char*>(from) + row * stride, sizeof *to.words);
    }
  }

  template <int kTile>
  static void store(void* to, std::int64_t stride) {
    const Tile& from = tile(kTile, true);
    for (int row = 0; row < kRows; ++row) {
      std::memcpy(static_cast<char*>(to) + row * stride, from.words[row], sizeof *from.words);
    }
  }

  // A subnormal number, as input or result, is a zero of its sign.
  static float flush(float x) {
    return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
  }

  // a b + c of flushed numbers, rounded once to the nearest, ties to even. The product of two bf16
  // has 16 bits, so that f32 holds it unless it leaves the range.
  static float fused(float a, float b, float c) {
    const float product = a * b;
    const float magnitude = std::abs(product);
    const bool exact = a == 0 || b == 0 ||
                       (magnitude >= std::numeric_limits<float>::min() &&
                        magnitude <= std::numeric_limits<float>::max());
    return flush(exact ? product + c : std::fma(a, b, c));
  }

  static float low(std::uint32_t pair) {
    return flush(impl::widen(impl::BFloat16{static_cast<std::uint16_t>(pair)}));
  }
  static float high(std::uint32_t pair) { return low(pair >> 16); }

  // TDPBF16PS: two sums, over the low and over the high halves of the pairs, each a chain of fused
  // multiply-adds from 0 on; then their sum, which is added to the tile.
  template <int kC, int kA, int kB>
  static void multiply() {
    Tile& c = tile(kC, true);
    const Tile &a = tile(kA, true), &b = tile(kB, true);
    float right_low[kRows][kColumns], right_high[kRows][kColumns];
    for (int k = 0; k < kRows; ++k) {
      for (int n = 0; n < kColumns; ++n) {
        right_low[k][n] = low(b.words[k][n]);
        right_high[k][n] = high(b.words[k][n]);
      }
    }
    for (int m = 0; m < kRows; ++m) {
      float low_sums[kColumns] = {}, high_sums[kColumns] = {};
      for (int k = 0; k < kColumns; ++k) {
        const float left_low = low(a.words[m][k]), left_high = high(a.words[m][k]);
        for (int n = 0; n < kColumns; ++n) {
          low_sums[n] = fused(left_low, right_low[k][n], low_sums[n]);
          high_sums[n] = fused(left_high, right_high[k][n], high_sums[n]);
        }
      }
      for (int n = 0; n < kColumns; ++n) {
        const float before = flush(std::bit_cast<float>(c.words[m][n]));
        const float sum = flush(before + flush(low_sums[n] + high_sums[n]));
        c.words[m][n] = std::bit_cast<std::uint32_t>(sum);
      }
    }
  }

  // VCVTNE2PS2BF16: to the nearest, ties to even, subnormal numbers flushed.
  static std::uint16_t narrow_one(float x) { return impl::narrow<impl::BFloat16>(flush(x)).bits; }
  template <class Vector>
  static void narrow(const Vector& x, const Vector& y, std::uint16_t* to) {
    for (int lane = 0; lane < kColumns; ++lane) {
      to[lane] = narrow_one(x[lane]);
      to[kColumns + lane] = narrow_one(y[lane]);
    }
  }
  template <class Vector>
  static void narrow_pairs(const Vector& x, const Vector& y, std::uint16_t* to) {
    for (int lane = 0; lane < kColumns; ++lane) {
      to[2 * lane] = narrow_one(x[lane]);
      to[2 * lane + 1] = narrow_one(y[lane]);
    }
  }
};

}  // namespace attest
