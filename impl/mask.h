// Which parts of the score matrix a kernel has to compute: every rectangle of it is empty, partial
// or full (MASK-1 to MASK-13). Only partial ones need a look at their elements.
//
// A mask is a list of nodes, children before their parents, so one pass over the list evaluates it.
// Most kinds are decided without a look at single elements: a band and a dilation by the distances
// that occur in the block, a prefix by its end, segments by the numbers of the block's rows and
// keys, a block-sparse mask by its own blocks. A dense table has to be read.
#pragma once

#include <cstdint>
#include <vector>

#include "impl/call.h"
#include "spec/attest_plugin.h"

namespace attest::impl {

enum class Coverage {
  empty,  // no query of the block sees any key of it
  partial,
  full,  // every query sees every key
};

// One for each worker: it keeps scratch memory of one row.
class BlockMask {
 public:
  explicit BlockMask(const Call& call) : call_(call), coverage_(call.mask.size()) {}

  // What the queries of `block` see of its keys. The answer is exact. If it is partial, `visible`
  // (one byte for each element, row by row) says which elements; otherwise it holds nothing.
  // The block lies within the lengths of its batch element and is not empty.
  Coverage cover(std::int64_t batch, std::int64_t head, const Block& block, std::uint8_t* visible);

 private:
  Coverage estimate(std::int64_t batch, std::int64_t head, const Block& block);
  void fill_row(std::int64_t batch, std::int64_t head, std::int64_t query, const Block& block,
                std::uint8_t* visible);

  const Call& call_;
  std::vector<Coverage> coverage_;  // of each node
  std::vector<std::uint8_t> rows_;  // of each node, one row
};

}  // namespace attest::impl
