// What splash attention makes of a mask before a kernel runs: which blocks the grid visits, in
// which order they are brought, and what masks those that are visible in part.
//
//   block_mask   0: nothing is visible, skip; 1: a part is; 2: all is
//   data_next    the block that is brought for a step: its own, or of a step to be skipped the next
//                one that will be needed, so that it is there in time
//   mask_next    likewise the number of a partial block
//
// Three of them belong to a kernel: of the forward pass, of dQ, and of dK and dV (is_dkv), each for
// blocks of its own sizes. The arrays lie in the scalar memory of the device.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "impl/vendor/splash/host_count.h"
#include "impl/vendor/splash/mask.h"

namespace attest::vendor::splash {

struct BlockShape {
  std::int64_t q, kv;
  friend bool operator==(const BlockShape&, const BlockShape&) = default;
};

// integers[heads or 1, q blocks, kv blocks], of the fewest bytes that hold them.
struct BlockTable {
  std::int64_t heads = 0, rows = 0, columns = 0;
  std::int64_t itemsize = 4;  // int32, int16 or int8
  std::vector<std::int32_t> entries;

  BlockTable() = default;
  BlockTable(std::int64_t the_heads, std::int64_t the_rows, std::int64_t the_columns)
      : heads(the_heads),
        rows(the_rows),
        columns(the_columns),
        entries(static_cast<std::size_t>(the_heads * the_rows * the_columns)) {}
  std::int32_t& at(std::int64_t head, std::int64_t row, std::int64_t column) {
    return entries[static_cast<std::size_t>((head * rows + row) * columns + column)];
  }
  std::int32_t at(std::int64_t head, std::int64_t row, std::int64_t column) const {
    return entries[static_cast<std::size_t>((head * rows + row) * columns + column)];
  }
  std::int64_t bytes() const { return itemsize * static_cast<std::int64_t>(entries.size()); }
  friend bool operator==(const BlockTable&, const BlockTable&) = default;
};

struct MaskInfo {
  BlockShape block = {};
  Shape shape = {};
  BlockTable data_next, block_mask;
  std::optional<BlockTable> mask_next;
  // Blocks that are visible in part, each once: [number][q][kv], of dK and dV [number][kv][q].
  // Absent where the kernel computes the mask.
  std::vector<std::uint8_t> partial_mask_blocks;
  // What the kernel computes it from, otherwise.
  std::vector<std::int32_t> q_sequence;
  MaskFunction mask_function;

  std::int64_t partial_blocks() const {
    return static_cast<std::int64_t>(partial_mask_blocks.size()) / (block.q * block.kv);
  }
  // In scalar memory.
  std::int64_t smem_bytes() const {
    return data_next.bytes() + block_mask.bytes() + (mask_next ? mask_next->bytes() : 0);
  }
};

struct ProcessMask {
  BlockShape block;
  bool is_dkv;
  bool downcast_smem_data = true;
  bool shrink_grid = true;  // leave out of each row of blocks what no row of blocks has
  friend bool operator==(const ProcessMask&, const ProcessMask&) = default;
};
MaskInfo process_mask(const MultiHeadMask& mask, const ProcessMask& how, HostCount& count);

// Of each row of blocks those that are visible in part or in full, side by side: rows are as long
// as the longest. Of dK and dV columns, filled up in front.
void shrink_mask_info(MaskInfo& info);
void shrink_mask_info_dkv(MaskInfo& info);

// The infos that were made last, by their masks: the layers of a network have the same mask, and
// each makes a kernel of its own.
class MaskInfoCache {
 public:
  std::shared_ptr<const MaskInfo> process(const MultiHeadMask& mask, const ProcessMask& how,
                                          HostCount& count);

 private:
  struct Entry {
    std::size_t hash;
    std::vector<MaskPtr> masks;
    ProcessMask how;
    std::shared_ptr<const MaskInfo> info;
  };
  static constexpr std::size_t kMaxSize = 12;
  std::list<Entry> entries_;  // the one that was asked for last comes first
};

}  // namespace attest::vendor::splash
