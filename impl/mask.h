// Which parts of the score matrix a kernel has to compute: every rectangle of it is empty, partial
// or full (MASK-1 to MASK-13). Only partial ones need a look at their elements.
//
// A mask is a list of nodes, children before their parents, so one pass over the list evaluates it.
// Most kinds are decided without a look at single elements, by the distances, lengths and numbers
// that occur in the block; a dense table has to be read. So a mask needs no memory but for the one
// block that is looked at; whole_mask.h is the opposite.
#pragma once

#include <cstdint>
#include <vector>

#include "impl/call.h"
#include "impl/coverage.h"
#include "spec/attest_plugin.h"

namespace attest::impl {

// Takes a row of elements, the first or a later one, into the coverage of its block.
void add_row(const std::uint8_t* visible, std::int64_t keys, bool first, Coverage& block);

// One for each worker: it keeps scratch memory of one row.
class BlockMask {
 public:
  explicit BlockMask(const Call& call) : call_(call), coverage_(call.mask.size()) {}

  // In all functions the block lies within the lengths of its batch element and is not empty.

  // What the queries of `block` see of its keys, without a look at single elements. Empty and full
  // are certain; partial means not known where only elements could tell:
  //   - a dense table, always;
  //   - segments, if the ranges of the queries' and the keys' numbers meet, but no number is in
  //     both; where documents follow each other, none is left out;
  //   - the intersection of two partial masks, which may be empty, and their union, which may be
  //     full. If one of the two is not partial, the answer is as exact as that for the other.
  // In all other cases it is exact.
  Coverage classify(std::int64_t batch, std::int64_t head, const Block& block);

  // The same, but exact always. If the answer is partial, `visible` (one byte for each element, row
  // by row) says which elements; otherwise it holds nothing.
  Coverage cover(std::int64_t batch, std::int64_t head, const Block& block, std::uint8_t* visible);

  // The elements of one query of the block.
  void fill_row(std::int64_t batch, std::int64_t head, std::int64_t query, const Block& block,
                std::uint8_t* visible);

 private:
  const Call& call_;
  std::vector<Coverage> coverage_;  // of each node
  std::vector<std::uint8_t> rows_;  // of each node, one row
};

}  // namespace attest::impl
