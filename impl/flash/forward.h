// Forward: Algorithm 1, for a block of queries; then all of them, dealt to the workers.
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
  R* page;  // a block of K or V, gathered; null unless that is needed
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
        page(gathers_keys(p) ? arena.take<R>(keys, std::max(p.head_dim, p.value_dim)) : nullptr),
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
  const std::int64_t key_block = forward_key_block(p);
  const std::int64_t packed = block.key_begin / key_block * key_block;
  const Panels<R> v = {tile.v + packed * tile.width,
                       std::min(key_block, w.call.lengths_of(b).key - packed)};
  w.engine.add_product(s, v.from_row(block.key_begin - packed, w.engine.panel), !w.values_finite,
                       o);
}

// Some rows of a head; those from real_end on are padding.
struct QueryRows {
  QueryRows(const Call& call, std::int64_t the_batch, std::int64_t the_head, std::int64_t the_begin)
      : b(the_batch),
        h(the_head),
        begin(the_begin),
        end(std::min(begin + kQueryBlock, call.problem.query_len)),
        real_end(std::clamp(call.lengths_of(b).query, begin, end)) {}

  std::int64_t count() const { return real_end - begin; }

  std::int64_t b, h, begin, end, real_end;
};

// Lines 4 and 5.
template <class T>
void begin_rows(ForwardWorker<Real<T>>& w, const QueryRows& rows, bool with_sink) {
  using R = Real<T>;
  const attest_problem& p = w.call.problem;
  const ForwardTiles<R>& tile = w.tile;
  if (is_stored(p.q_dtype)) {
    load_queries<T>(w.call, rows.b, rows.h, rows.begin, rows.count(), tile.q);
  } else {
    const auto q = query_plane<const T>(w.call, w.call.inputs.q, rows.b, rows.h);
    w.engine.load(stored(q.from(rows.begin), rows.count(), p.head_dim),
                  {tile.q, rows.count(), p.head_dim, p.head_dim});
  }
  std::fill_n(tile.o, rows.count() * tile.width, R(0));
  std::fill_n(tile.sum, rows.count(), p.has_sink && with_sink ? R(1) : R(0));
  std::fill_n(tile.max, rows.count(),
              with_sink ? sink_of<R>(w.call, rows.h) : -std::numeric_limits<R>::infinity());
}

// Lines 6 to 11, for some of the keys: those of a block that are among them come together.
template <class T>
void attend(ForwardWorker<Real<T>>& w, const QueryRows& rows, const Range& keys, Visits visits) {
  const std::int64_t size = forward_key_block(w.call.problem);
  if (rows.count() == 0 || keys.size() <= 0) return;
  pack_keys<T>(w, rows.b, rows.h / w.call.group_size());
  const Range blocks = {keys.begin / size, blocks_of(keys.end, size)};
  for (std::int64_t n = 0; n < blocks.size(); ++n) {
    const std::int64_t key =
        size * (visits == Visits::upwards ? blocks.begin + n : blocks.end - 1 - n);
    const Block block = {rows.begin, rows.real_end, std::max(key, keys.begin),
                         std::min(key + size, keys.end)};
    const Coverage coverage = w.mask.cover(rows.b, rows.h, block, w.tile.visible);
    if (coverage == Coverage::empty) continue;
    for_each_piece(block, coverage, w.tile.visible, w.engine.panel, [&](const Piece& piece) {
      w.call.report(w.number, rows.b, rows.h, piece.block, piece.visible, kForwardPass);
      absorb_piece<T>(w, rows.b, rows.h, block, piece);
    });
  }
}

// Lines 12 to 15, and what stands beyond the length.
template <class T>
void store_rows(const ForwardWorker<Real<T>>& w, const QueryRows& rows) {
  using R = Real<T>;
  const Call& call = w.call;
  const attest_problem& p = call.problem;
  const ForwardTiles<R>& tile = w.tile;
  const auto out = query_plane<T>(call, call.outputs.o, rows.b, rows.h);
  const auto lse = query_plane<R>(call, call.outputs.lse, rows.b, rows.h);
  for (std::int64_t i = 0; i < rows.count(); ++i) {
    // A row that saw nothing keeps O = 0, and its LSE is -inf + log 0 = -inf (EMPTY-1, EMPTY-2).
    lse.at(rows.begin + i, 0) = tile.max[i] + std::log(tile.sum[i]);
    if (tile.sum[i] == 0) tile.sum[i] = 1;
  }
  w.engine.store({tile.o, rows.count(), p.value_dim, tile.width},
                 static_cast<R>(w.dropout.rescale()), tile.sum,
                 result(out.from(rows.begin), rows.count(), p.value_dim));
  const std::int64_t stored_end = std::min(rows.end, call.stored_queries(rows.b));
  fill(out, rows.real_end, stored_end, p.value_dim, R(0));
  fill(lse, rows.real_end, stored_end, 1, -std::numeric_limits<R>::infinity());
  w.dropout.publish(rows.b, rows.h, rows.begin, rows.end);
}

// The rows of blocks of all heads: number n is row n % rows of head n / rows.
inline std::int64_t row_blocks(const attest_problem& p) {
  return blocks_of(p.query_len, kQueryBlock);
}
inline QueryRows query_rows(const Call& call, std::int64_t n) {
  const std::int64_t rows = row_blocks(call.problem), heads = call.problem.query_heads;
  return {call, n / rows / heads, n / rows % heads, n % rows * kQueryBlock};
}

// All query blocks of all heads; neighbours go to the same worker.
template <class T>
void forward_as(const Call& call, Visits visits) {
  using R = Real<T>;
  const attest_problem& p = call.problem;
  const std::uint64_t bytes = flash_workspace(call, false, kUpwards);
  const std::int64_t all = p.batch * p.query_heads * row_blocks(p);
  share_out(all, call.workers, [&](int number, std::int64_t begin, std::int64_t end) {
    ForwardWorker<R> worker(call, number,
                            forward_tiles<R>(call, Arena(workspace_of(call, number, bytes))));
    for (std::int64_t n = begin; n < end; ++n) {
      const QueryRows rows = query_rows(call, n);
      begin_rows<T>(worker, rows, true);
      attend<T>(worker, rows, {0, call.lengths_of(rows.b).key}, visits);
      store_rows<T>(worker, rows);
    }
  });
}

}  // namespace attest::impl
