// A mask made in full before it is used: one byte for each element of the score matrix, as whoever
// passes a matrix of booleans does, and the coverage of each block of a grid, so that using it
// takes no longer than it must. It is what BlockMask saves (seen from outside they are the same):
// memory and time of making it grow with Sq x Sk.
//
// Batch elements and heads that see the same share one plane.
#pragma once

#include <cstdint>

#include "impl/call.h"
#include "impl/coverage.h"
#include "impl/tile.h"

namespace attest::impl {

class BlockMask;

class WholeMask final : public MadeMask {
 public:
  // Of the call's mask, which must outlive it, with blocks of so many queries and keys.
  WholeMask(const Call& call, std::int64_t query_block, std::int64_t key_block, Arena arena);

  std::uint64_t bytes() const { return bytes_; }

  // Makes it, with all of the call's workers. Before that it must not be asked.
  void make();

  // For a block of the grid.
  Coverage cover(std::int64_t batch, std::int64_t head, const Block& block,
                 std::uint8_t* visible) const override;

 private:
  std::int64_t plane_of(std::int64_t batch, std::int64_t head) const;
  void make_row_of_blocks(BlockMask& mask, std::int64_t plane, std::int64_t row);

  const Call& call_;
  std::int64_t query_block_, key_block_;
  std::int64_t rows_, columns_;   // blocks in a plane
  std::int64_t batches_, heads_;  // with planes of their own; 1 if all share one
  std::uint8_t* visible_;         // [batches, heads, query_len, key_len]
  Coverage* coverage_;            // [batches, heads, rows, columns]
  std::uint64_t bytes_;
};

}  // namespace attest::impl
