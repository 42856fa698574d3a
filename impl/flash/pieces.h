// The pieces of a block that a mask leaves.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "impl/mask.h"

namespace attest::impl {

// A block that a mask cuts is computed in slices of as many rows, each as long as it needs.
constexpr std::int64_t kSlice = 24;

// A part of a block that is computed at once.
struct Piece {
  Block block;
  std::int64_t row, key;        // where it begins in the whole block; key is where a panel begins
  const std::uint8_t* visible;  // null: all is
};

// Calls visit(piece) for the pieces of a block that is not empty: the whole of it if it is full,
// else slices, each from its first visible key (or a little before, at a panel's begin) to its
// last.
template <class Visit>
void for_each_piece(const Block& block, Coverage coverage, const std::uint8_t* visible,
                    std::int64_t panel, const Visit& visit) {
  if (coverage == Coverage::full) return visit(Piece{block, 0, 0, nullptr});
  const std::int64_t keys = block.keys();
  for (std::int64_t row = 0; row < block.queries(); row += kSlice) {
    const std::int64_t rows = std::min(kSlice, block.queries() - row);
    const std::uint8_t* const slice = visible + row * keys;
    std::int64_t begin = keys, end = 0;
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::uint8_t* const seen = slice + i * keys;
      const void* const first = std::memchr(seen, 1, static_cast<std::size_t>(begin));
      if (first) begin = static_cast<const std::uint8_t*>(first) - seen;
      const void* const last = memrchr(seen + end, 1, static_cast<std::size_t>(keys - end));
      if (last) end = static_cast<const std::uint8_t*>(last) + 1 - seen;
    }
    if (begin >= end) continue;
    begin = begin / panel * panel;
    bool all = true;
    for (std::int64_t i = 0; i < rows && all; ++i) {
      all = !std::memchr(slice + i * keys + begin, 0, static_cast<std::size_t>(end - begin));
    }
    visit(Piece{{block.query_begin + row, block.query_begin + row + rows, block.key_begin + begin,
                 block.key_begin + end},
                row,
                begin,
                all ? nullptr : slice + begin});
  }
}

}  // namespace attest::impl
