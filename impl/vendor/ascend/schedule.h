// Who computes which blocks: a core's share of the score matrices of all sequences and heads.
#pragma once

#include <vector>

#include "impl/vendor/ascend/plan.h"

namespace attest::vendor::ascend {

// A row of blocks of one head: its blocks that aren't all hidden, from left to right.
struct BlockRow {
  int64_t sequence, head, i0, rows;
  struct Column {
    int64_t j0, columns;
    bool masked;
  };
  std::vector<Column> columns;
  bool is_new = true;  // of a launch: whether another row was before it

  Block block(const Column& c) const { return {i0, rows, c.j0, c.columns}; }
};

// All rows, in the order of sequence, head and position; those without a block too.
std::vector<BlockRow> block_rows(const Plan& plan);

// Forward: whole rows, for the softmax of a row does not leave its core. Evenly: the longest rows
// first, each to the core that has least.
std::vector<std::vector<BlockRow>> deal_rows(const std::vector<BlockRow>& rows,
                                             const Tiling& tiling);
// Backward: blocks, since gradients are sums in global memory; of a core's neighbouring blocks of a
// row up to blocks_at_once make a launch. Evenly: the blocks in their order, in runs as long as
// each other.
std::vector<std::vector<BlockRow>> deal_blocks(const std::vector<BlockRow>& rows,
                                               const Tiling& tiling);

int64_t blocks_of(const std::vector<BlockRow>& rows);
int64_t most_blocks(const std::vector<std::vector<BlockRow>>& dealt);

}  // namespace attest::vendor::ascend
