// Forward: Algorithm 1, for a block of queries; then how the blocks are dealt to the workers.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "impl/flash.h"
#include "impl/flash/pieces.h"
#include "impl/flash/tiles.h"
#include "impl/parallel.h"
#include "impl/schedule.h"
#include "impl/score.h"
#include "impl/sequence.h"
#include "impl/sink.h"

namespace attest::impl {

// What a worker keeps.
template <class R>
struct ForwardTiles {
  ForwardTiles(const attest_problem& p, const Engine<R>& engine, Arena arena)
      : ForwardTiles(p, engine, arena, std::min(p.query_len, kQueryBlock),
                     std::min(p.key_len, forward_key_block(p))) {}

  std::int64_t stride;  // of scores
  std::int64_t width;   // of rows of O
  // Of one key head: K' and V as panels, key block by key block.
  R *k_transposed, *v;
  R* page;  // a block of K or V from its pages; null unless keys are paged
  // Of one block.
  R *q, *s, *o;
  R *max, *sum;  // m and l
  std::uint8_t* visible;
  std::uint64_t bytes;

 private:
  ForwardTiles(const attest_problem& p, const Engine<R>& engine, Arena arena, std::int64_t queries,
               std::int64_t keys)
      : stride(score_stride(engine, keys)),
        width(engine.padded(p.value_dim)),
        k_transposed(arena.take<R>(engine.padded(p.key_len), p.head_dim)),
        v(arena.take<R>(p.key_len, width)),
        page(p.page_size == 0 ? nullptr : arena.take<R>(keys, std::max(p.head_dim, p.value_dim))),
        q(arena.take<R>(queries, p.head_dim)),
        s(arena.take<R>(queries, stride)),
        o(arena.take<R>(queries, width)),
        max(arena.take<R>(queries)),
        sum(arena.take<R>(queries)),
        visible(arena.take<std::uint8_t>(queries, keys)),
        bytes(arena.used()) {}
};

template <class R>
ForwardTiles<R> forward_tiles(const Call& call, Arena arena) {
  return {call.problem, engine_of<R>(call), arena};
}

template <class R>
using ForwardWorker = Worker<R, ForwardTiles<R>>;

// K and V of one key head (line 7 for all its blocks at once), unless the worker has them already.
template <class T>
void pack_keys(ForwardWorker<Real<T>>& w, std::int64_t b, std::int64_t key_head) {
  const Call& call = w.call;
  const attest_problem& p = call.problem;
  if (!w.has_to_pack(b, key_head)) return;
  w.values_finite = true;
  const std::int64_t length = call.lengths_of(b).key, key_block = forward_key_block(p);
  for (std::int64_t key = 0; key < length; key += key_block) {
    const std::int64_t keys = std::min(key_block, length - key);
    w.engine.pack_transposed(
        gather_keys<T>(call, call.inputs.k, b, key_head, key, keys, w.tile.page), 1,
        w.tile.k_transposed + key * p.head_dim);
    w.values_finite &=
        w.engine.pack(gather_keys<T>(call, call.inputs.v, b, key_head, key, keys, w.tile.page),
                      w.tile.v + key * w.tile.width);
  }
}

// Lines 8 to 10 for one piece: takes its scores into the softmax of its rows (engine.h states the
// invariant), and its keys into O. A row with a sink has seen it from the start, as a key with the
// value 0; so a row has seen neither key nor sink as long as its sum is 0.
template <class T>
void absorb_piece(const ForwardWorker<Real<T>>& w, std::int64_t b, std::int64_t h,
                  const Block& whole, const Piece& piece) {
  using R = Real<T>;
  const attest_problem& p = w.call.problem;
  const ForwardTiles<R>& tile = w.tile;
  const Block& block = piece.block;
  const std::int64_t rows = block.queries();
  const Tile<R> q = {tile.q + piece.row * p.head_dim, rows, p.head_dim, p.head_dim};
  const Tile<R> s = {tile.s, rows, block.keys(), tile.stride};
  const Tile<R> o = {tile.o + piece.row * tile.width, rows, p.value_dim, tile.width};
  w.engine.multiply(q, {tile.k_transposed + block.key_begin * p.head_dim, p.head_dim},
                    static_cast<R>(p.scale), s);
  HeadScores<T>(w.call, b, h, &w.engine).finish(block, s.stride, s.data);
  if (piece.visible) hide(block, piece.visible, whole.keys(), s.stride, s.data);
  w.engine.absorb(s, {tile.max + piece.row, tile.sum + piece.row, o});
  w.dropout.apply(b, h, block, R(1), s.stride, s.data);
  const Panels<R> v = {tile.v + whole.key_begin * tile.width, whole.keys()};
  w.engine.add_product(s, v.from_row(piece.key, w.engine.panel), !w.values_finite, o);
}

template <class T>
void forward_block(ForwardWorker<Real<T>>& w, std::int64_t b, std::int64_t h, std::int64_t begin) {
  using R = Real<T>;
  const Call& call = w.call;
  const ForwardTiles<R>& tile = w.tile;
  const attest_problem& p = call.problem;
  const Lengths& lengths = call.lengths_of(b);
  const std::int64_t end = std::min(begin + kQueryBlock, p.query_len);
  const std::int64_t real_end = std::clamp(lengths.query, begin, end);
  const std::int64_t rows = real_end - begin, key_block = forward_key_block(p);
  const auto q = query_plane<const T>(call, call.inputs.q, b, h);
  const auto out = query_plane<T>(call, call.outputs.o, b, h);
  const auto lse = query_plane<R>(call, call.outputs.lse, b, h);

  pack_keys<T>(w, b, h / call.group_size());
  w.engine.load(stored(q.from(begin), rows, p.head_dim),
                {tile.q, rows, p.head_dim, p.head_dim});  // line 4
  std::fill_n(tile.o, rows * tile.width, R(0));           // line 5
  std::fill_n(tile.sum, rows, p.has_sink ? R(1) : R(0));
  std::fill_n(tile.max, rows, sink_of<R>(call, h));

  for (std::int64_t key = 0; rows > 0 && key < lengths.key; key += key_block) {  // line 6
    const Block block = {begin, real_end, key, std::min(key + key_block, lengths.key)};
    const Coverage coverage = w.mask.cover(b, h, block, tile.visible);
    if (coverage == Coverage::empty) continue;
    for_each_piece(block, coverage, tile.visible, w.engine.panel, [&](const Piece& piece) {
      call.report(w.number, b, h, piece.block, piece.visible, kForwardPass);
      absorb_piece<T>(w, b, h, block, piece);  // lines 8 to 10
    });
  }

  for (std::int64_t i = 0; i < rows; ++i) {  // lines 12 and 13
    // A row that saw nothing keeps O = 0, and its LSE is -inf + log 0 = -inf (EMPTY-1, EMPTY-2).
    lse.at(begin + i, 0) = tile.max[i] + std::log(tile.sum[i]);
    if (tile.sum[i] == 0) tile.sum[i] = 1;
  }
  w.engine.store({tile.o, rows, p.value_dim, tile.width}, static_cast<R>(w.dropout.rescale()),
                 tile.sum, result(out.from(begin), rows, p.value_dim));  // lines 14 and 15
  const std::int64_t stored_end = std::min(end, call.stored_queries(b));
  fill(out, real_end, stored_end, p.value_dim, R(0));
  fill(lse, real_end, stored_end, 1, -std::numeric_limits<R>::infinity());
  w.dropout.publish(b, h, begin, end);
}

// All query blocks of all heads, dealt to the workers.
template <class T>
void forward_as(const Call& call, Dealing dealing) {
  using R = Real<T>;
  const attest_problem& p = call.problem;
  const std::int64_t blocks = (p.query_len + kQueryBlock - 1) / kQueryBlock;
  const std::int64_t heads = p.batch * p.query_heads;
  const std::uint64_t bytes = flash_workspace(call, false, dealing);
  share_out(call.workers, call.workers, [&](int number, std::int64_t, std::int64_t) {
    ForwardWorker<R> worker(call, number,
                            forward_tiles<R>(call, Arena(workspace_of(call, number, bytes))));
    const auto compute = [&](std::int64_t head, std::int64_t row) {
      forward_block<T>(worker, head / p.query_heads, head % p.query_heads, row * kQueryBlock);
    };
    if (dealing == Dealing::contiguous) {
      const Range mine = contiguous_share(heads * blocks, call.workers, number);
      for (std::int64_t n = mine.begin; n < mine.end; ++n) compute(n / blocks, n % blocks);
      return;
    }
    for (std::int64_t head = 0; head < heads; ++head) {
      // Another worker is the first in each head, where there are fewer rows than workers.
      const std::int64_t place = (number + head) % call.workers;
      for (const std::int64_t row : low_high_share(blocks, call.workers, place)) compute(head, row);
    }
  });
}

}  // namespace attest::impl
