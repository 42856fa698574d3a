// The forward pass of a query block: Algorithm 1 of FlashAttention-2.
#pragma once

#include <algorithm>

#include "impl/amx/worker.h"

namespace attest::impl::amx {

// What belongs to a block of scores while it is worked on. There are two: the tiles fill one while
// the other is being used up.
struct ForwardSlot {
  ForwardSlot(Arena& arena)
      : s(arena.take<float>(kStrip, kScoreStride)),
        p(arena.take<Bits>(kStrip, kWeightStride)),
        visible(arena.take<std::uint8_t>(kStrip, kKeyBlock)) {}

  float* s;
  Bits* p;
  std::uint8_t* visible;
  Block block = {};
  bool masked = false;
};

struct ForwardTiles {
  ForwardTiles(const attest_problem& p, Arena arena)
      : keys(padded(p.key_len)),
        head_dim(padded(p.head_dim)),
        value_dim(padded(p.value_dim)),
        o_stride(value_dim + 16),
        k(arena.take<Bits>(keys, head_dim)),
        v(arena.take<Bits>(keys, value_dim)),
        page(p.page_size == 0 ? nullptr
                              : arena.take<BFloat16>(kKeyBlock, std::max(p.head_dim, p.value_dim))),
        q(arena.take<Bits>(kQueryBlock, head_dim)),
        o(arena.take<float>(kQueryBlock, o_stride)),
        max(arena.take<float>(kQueryBlock)),
        sum(arena.take<float>(kQueryBlock)),
        slots{arena, arena},
        bytes(arena.used()) {}

  std::int64_t keys, head_dim, value_dim, o_stride;  // padded
  Bits *k, *v;     // of one key head, as right-hand sides: K transposed, V
  BFloat16* page;  // a block of K or V from its pages; null unless keys are paged
  Bits* q;         // of one query block, as a left-hand side
  float *o, *max, *sum;
  ForwardSlot slots[2];
  std::uint64_t bytes;
};

using ForwardWorker = Worker<ForwardTiles>;

void forward_block(ForwardWorker& w, std::int64_t b, std::int64_t h, std::int64_t begin);

}  // namespace attest::impl::amx
