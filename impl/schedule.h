// Schedules: who computes which blocks of the score matrix. Pure functions of sizes, so that what
// they promise can be tried for all sizes: every block that is needed is computed exactly once,
// none that a band hides wholly is computed, and no worker has much more to do than the others.
//
// The score matrix is cut into blocks; a "row" here is a row of blocks. Under a causal mask the
// rows grow longer downwards, and that is what the schedules differ in:
//
//   contiguous   neighbouring rows: with two workers the second has three times as much to do
//   even         the blocks themselves: equal to one block, but a row may lie with several workers,
//                who must merge what they have of it
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace attest::impl {

// How many blocks it takes to hold all of a size.
inline std::int64_t blocks_of(std::int64_t size, std::int64_t block) {
  return size / block + (size % block != 0);
}

// Numbers from begin to end - 1.
struct Range {
  std::int64_t begin, end;

  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// The blocks of one row that are needed, of the keys' blocks.
struct BlockRow {
  std::int64_t row;
  Range keys;

  bool operator==(const BlockRow&) const = default;
};

// Which scores are visible: query i sees key j if -left <= j - (i + shift) <= right. Causal: right
// is 0 and left at least as large as all lengths together.
struct BandOfScores {
  std::int64_t queries, keys;
  std::int64_t left, right;  // not negative
  std::int64_t shift;
};

// All rows that need a block, with the blocks that they need.
std::vector<BlockRow> needed_blocks(const BandOfScores& band, std::int64_t query_block,
                                    std::int64_t key_block);

// How many scores are visible in the first n blocks of a row, which is one of the above.
std::int64_t scores_in(const BandOfScores& band, std::int64_t query_block, std::int64_t key_block,
                       const BlockRow& row, std::int64_t n);

// Of `units` in a row, the share of a worker.
inline Range contiguous_share(std::int64_t units, std::int64_t workers, std::int64_t worker) {
  return {units * worker / workers, units * (worker + 1) / workers};
}

// The share of each worker in all blocks of the rows: as many scores, but for half a block at
// either end, where scores(row, n) are in the first n blocks of a row. Rows stay in order and
// blocks together.
using ScoresOfBlocks = std::function<std::int64_t(const BlockRow& row, std::int64_t n)>;
std::vector<std::vector<BlockRow>> even_shares(std::span<const BlockRow> rows, std::int64_t workers,
                                               const ScoresOfBlocks& scores);

// Of a sequence of keys that is split into parts of whole chunks (the last one may be shorter), the
// keys of a part. Parts differ by one chunk at most; where chunks are too few, some have no keys.
Range split_of_keys(std::int64_t keys, std::int64_t chunk, std::int64_t splits, std::int64_t split);

// Into how many parts the keys are split where `units` (batch elements times heads) alone would
// leave workers idle. Units times splits run in waves of one for each worker, and the last wave may
// be short: as the first code of FlashAttention did, this takes the fewest splits, of at most
// `most`, that keep the workers busy for 95% of the time that they can be at best.
std::int64_t split_count(std::int64_t units, std::int64_t workers, std::int64_t most);

}  // namespace attest::impl
