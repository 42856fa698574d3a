// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011).
//
// A counter-based generator: the numbers of counter n are a pure function of key and n, so any
// element of a tensor can be drawn alone, in any order, on any machine.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace attest {

using Philox = std::array<std::uint32_t, 4>;

constexpr Philox philox(Philox counter, std::array<std::uint32_t, 2> key) {
  constexpr auto multiply = [](std::uint32_t a, std::uint32_t b) { return std::uint64_t(a) * b; };
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t left = multiply(0xD2511F53, counter[0]);
    const std::uint64_t right = multiply(0xCD9E8D57, counter[2]);
    counter = {static_cast<std::uint32_t>(right >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(right),
               static_cast<std::uint32_t>(left >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(left)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// The key that a text stands for: FNV-1a, then a mixing step, because FNV leaves texts that differ
// in their last letter only close together.
constexpr std::array<std::uint32_t, 2> philox_key(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  }
  hash = (hash ^ (hash >> 31)) * 0x7fb5d329728ea185;
  hash = (hash ^ (hash >> 27)) * 0x81dadef4bc2dd44d;
  hash ^= hash >> 33;
  return {static_cast<std::uint32_t>(hash), static_cast<std::uint32_t>(hash >> 32)};
}

}  // namespace attest
