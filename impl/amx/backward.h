// The backward pass of a key head: Algorithm 2 of FlashAttention-2; and dBias in a pass of its own.
#pragma once

#include "impl/amx/pack.h"
#include "impl/amx/worker.h"
#include "impl/bias_gradient.h"

namespace attest::impl::amx {

// As in forward.h: the tiles fill one while the other is being used up.
struct GradientSlot {
  GradientSlot(Arena& arena)
      : s(arena.take<float>(kGradientBlock, kGradientStride)),
        dp(arena.take<float>(kGradientBlock, kGradientStride)),
        narrow{arena.take<Bits>(kGradientBlock, kNarrowStride), kNarrowStride,
               arena.take<Bits>(kGradientBlock, kGradientBlock),
               arena.take<Bits>(kGradientBlock, kGradientBlock), kGradientBlock},
        visible(arena.take<std::uint8_t>(kGradientBlock, kGradientBlock)) {}

  float *s, *dp;  // become P and dS
  NarrowGradient narrow;
  std::uint8_t* visible;
  Block block = {};
  bool masked = false;
};

struct BackwardTiles {
  BackwardTiles(const attest_problem& p, Arena arena)
      : queries(whole_blocks(p.query_len)),
        summed_keys(group_of(p) > 1 ? whole_blocks(p.key_len) : kGradientBlock),
        head_dim(padded(p.head_dim)),
        value_dim(padded(p.value_dim)),
        q(arena.take<Bits>(queries, head_dim)),
        q_transposed(arena.take<Bits>(queries, head_dim)),
        d_o(arena.take<Bits>(queries, value_dim)),
        d_o_transposed(arena.take<Bits>(queries, value_dim)),
        lse(arena.take<float>(queries)),
        delta(arena.take<float>(queries)),
        dq(arena.take<float>(queries, head_dim)),
        dk_transposed(arena.take<float>(summed_keys, head_dim)),
        dv_transposed(arena.take<float>(summed_keys, value_dim)),
        k(arena.take<Bits>(kGradientBlock, head_dim)),
        k_transposed(arena.take<Bits>(kGradientBlock, head_dim)),
        v_transposed(arena.take<Bits>(kGradientBlock, value_dim)),
        cap_slope(p.softcap == 0 ? nullptr : arena.take<float>(kGradientBlock, kGradientStride)),
        dbias(p.has_bias ? arena.take<double>(kGradientBlock, kGradientBlock) : nullptr),
        slots{arena, arena},
        bytes(arena.used()) {}

  std::int64_t queries;              // of whole blocks
  std::int64_t summed_keys;          // as many keys of dK and dV are kept at a time
  std::int64_t head_dim, value_dim;  // padded
  // Of one query head. Transposed means block by block: all channels of a block's queries.
  Bits *q, *q_transposed, *d_o, *d_o_transposed;  // left-hand sides
  float *lse, *delta, *dq;
  // Of a key head, or a block of it where it has one query head; block by block transposed.
  float *dk_transposed, *dv_transposed;
  // Of one key block, as right-hand sides.
  Bits *k, *k_transposed, *v_transposed;
  float* cap_slope;  // null without a softcap
  double* dbias;     // null without a bias
  GradientSlot slots[2];
  std::uint64_t bytes;
};

using BackwardWorker = Worker<BackwardTiles>;

void backward_head(BackwardWorker& w, std::int64_t b, std::int64_t key_head);
void bias_gradient(BackwardWorker& w, const BiasPart& part);

}  // namespace attest::impl::amx
