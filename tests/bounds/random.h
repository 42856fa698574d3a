// Random numbers that depend on nothing but a seed and a stream number, so that any problem of a
// measurement can be made again alone. SplitMix64: the n-th number is a hash of n.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "spec/index.h"

namespace attest::bounds {

// The finaliser of SplitMix64: a permutation in which every bit of the result depends on all of x.
constexpr std::uint64_t scramble(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t stream) : state_(scramble(seed) ^ scramble(~stream)) {}

  std::uint64_t next() { return scramble(state_ += 0x9e3779b97f4a7c15u); }

  Index below(Index n) { return static_cast<Index>(next() % static_cast<std::uint64_t>(n)); }
  Index between(Index low, Index high) { return low + below(high - low + 1); }

  double uniform() { return (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53; }  // in (0, 1)
  bool chance(double probability) { return uniform() < probability; }

  template <class List>
  auto pick(const List& list) {
    return list[static_cast<std::size_t>(below(static_cast<Index>(list.size())))];
  }

  double normal() {  // Box and Muller; the second of each pair is not used
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  std::uint64_t state_;
};

}  // namespace attest::bounds
