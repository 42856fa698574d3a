// FlashAttention-2 on tiles (T. Dao, arXiv 2307.08691, Algorithms 1 and 2; "line n" below counts
// theirs), forward and backward, on the steps of the tile engine.
//
// Reads top down: the tiles, the pieces of a block that a mask leaves, the forward
// pass of a query block, the backward pass of a key head, and dBias in a pass of its own. What the
// paper does not have stands between its lines: softcap, bias and mask on a tile of S, dropout on a
// tile of P; a sink is where a row's softmax begins. Memory grows with the lengths only: nothing of
// size Sq x Sk exists.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "impl/bias_gradient.h"
#include "impl/dropout.h"
#include "impl/elements.h"
#include "impl/engine/engine.h"
#include "impl/mask.h"
#include "impl/parallel.h"
#include "impl/plugin.h"
#include "impl/schedule.h"
#include "impl/score.h"
#include "impl/sequence.h"
#include "impl/sink.h"
#include "impl/tile.h"
#include "impl/worker.h"

namespace attest::impl {

// How the blocks are dealt to the workers.
enum class Dealing {
  contiguous,  // neighbouring query blocks forward, whole key heads backward
  balanced,    // query blocks low with high forward, blocks of scores evenly backward
};

// B_r and B_c: multiples of what the engine computes at a time, so large that the softmax has long
// rows, and no larger than the second-level cache.
constexpr std::int64_t kQueryBlock = 96;
constexpr std::int64_t kKeyBlock = 256;      // at least
constexpr std::int64_t kLongKeyBlock = 512;  // where heads are narrow
constexpr std::int64_t kNarrow = 64;
// A block that a mask cuts is computed in slices of as many rows, each as long as it needs.
constexpr std::int64_t kSlice = 24;

inline std::int64_t forward_key_block(const attest_problem& p) {
  return std::max(p.head_dim, p.value_dim) <= kNarrow ? kLongKeyBlock : kKeyBlock;
}

// What a kernel declares: flash.cpp.
template <Dealing dealing>
ArithmeticDeclaration flash_arithmetic(const std::string& dtype);
template <Dealing dealing>
ScheduleDeclaration flash_schedule();
template <Dealing dealing>
MemoryDeclaration flash_memory();

// The engine that the kernel is named after.
template <class R>
const Engine<R>& engine_of(const Call& call) {
  for (const Engine<R>& engine : engines<R>()) {
    if (call.target.empty() || engine.target == call.target) return engine;
  }
  throw std::runtime_error("the processor does not have " + std::string(call.target));
}

// ---- Tiles -------------------------------------------------------------------------------------

// The distance between rows of scores: no power of two, lest all rows share a few lines of the
// cache.
template <class R>
std::int64_t score_stride(const Engine<R>& engine, std::int64_t keys) {
  return engine.padded(keys) + 16;
}

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
struct BackwardTiles {
  BackwardTiles(const attest_problem& problem, const Engine<R>& engine, std::int64_t summed,
                Arena arena)
      : BackwardTiles(problem, engine, std::min(problem.key_len, summed), arena,
                      std::min(problem.query_len, kQueryBlock),
                      std::min(problem.key_len, kKeyBlock)) {}

  std::int64_t summed_keys;         // as many keys of dK and dV are kept at a time
  std::int64_t stride;              // of scores
  std::int64_t width, value_width;  // of rows of dQ and dK, and of dV
  // Of a query head: what lives across key blocks.
  R *dq, *lse, *delta;
  // Of one block; panels for the right-hand sides of products.
  R *q, *d_o, *o;
  R *q_panels, *d_o_panels, *k_panels, *k_transposed, *v_transposed;
  R *p, *ds, *dk, *dv;
  std::uint8_t* visible;
  R* cap_slope;   // null without a softcap
  double* dbias;  // null without a bias
  std::uint64_t bytes;

 private:
  BackwardTiles(const attest_problem& problem, const Engine<R>& engine, std::int64_t summed,
                Arena arena, std::int64_t queries, std::int64_t keys)
      : summed_keys(summed),
        stride(score_stride(engine, keys)),
        width(engine.padded(problem.head_dim)),
        value_width(engine.padded(problem.value_dim)),
        dq(arena.take<R>(problem.query_len, width)),
        lse(arena.take<R>(problem.query_len)),
        delta(arena.take<R>(problem.query_len)),
        q(arena.take<R>(queries, problem.head_dim)),
        d_o(arena.take<R>(queries, problem.value_dim)),
        o(arena.take<R>(queries, problem.value_dim)),
        q_panels(arena.take<R>(queries, width)),
        d_o_panels(arena.take<R>(queries, value_width)),
        k_panels(arena.take<R>(keys, width)),
        k_transposed(arena.take<R>(engine.padded(keys), problem.head_dim)),
        v_transposed(arena.take<R>(engine.padded(keys), problem.value_dim)),
        p(arena.take<R>(queries, stride)),
        ds(arena.take<R>(queries, stride)),
        dk(arena.take<R>(summed_keys, width)),
        dv(arena.take<R>(summed_keys, value_width)),
        visible(arena.take<std::uint8_t>(queries, keys)),
        cap_slope(problem.softcap == 0 ? nullptr : arena.take<R>(queries, stride)),
        // At least one element, for a bias may have an axis of size 1 where there are no keys.
        dbias(problem.has_bias ? arena.take<double>(std::max(queries, std::int64_t{1}),
                                                    std::max(keys, std::int64_t{1}))
                               : nullptr),
        bytes(arena.used()) {}
};

template <class R>
ForwardTiles<R> forward_tiles(const Call& call, Arena arena) {
  return {call.problem, engine_of<R>(call), arena};
}

template <class R>
BackwardTiles<R> backward_tiles(const Call& call, Dealing dealing, Arena arena) {
  const bool whole_head = dealing == Dealing::balanced || group_of(call.problem) > 1;
  return {call.problem, engine_of<R>(call), whole_head ? call.problem.key_len : kKeyBlock, arena};
}

inline std::uint64_t flash_workspace(const Call& call, bool backward, Dealing dealing) {
  return with_element_type(call.problem.dtype, [&](auto element) {
    using R = Real<decltype(element)>;
    return backward ? backward_tiles<R>(call, dealing, Arena()).bytes
                    : forward_tiles<R>(call, Arena()).bytes;
  });
}

// Some rows of a plane, as the engine takes and gives them.
template <class T>
Stored stored(const Plane<const T>& plane, std::int64_t rows, std::int64_t channels) {
  return {plane.data, kTypeOf<T>, rows, channels, plane.position_stride, plane.channel_stride};
}
template <class T>
StoredResult result(const Plane<T>& plane, std::int64_t rows, std::int64_t channels) {
  return {plane.data, kTypeOf<T>, rows, channels, plane.position_stride, plane.channel_stride};
}

// The same as a tile: where it lies if it is one already, else a copy in `memory`.
template <class T, class R = Real<T>>
Tile<R> as_tile(const Engine<R>& engine, const Plane<const T>& plane, std::int64_t rows,
                std::int64_t channels, R* memory) {
  if constexpr (std::is_same_v<T, R>) {
    if (plane.channel_stride == 1) {
      return {const_cast<R*>(plane.data), rows, channels, plane.position_stride};
    }
  }
  const Tile<R> tile = {memory, rows, channels, channels};
  engine.load(stored(plane, rows, channels), tile);
  return tile;
}

template <class R>
Tile<R> rows_of(const Tile<R>& tile, std::int64_t begin, std::int64_t rows) {
  return {tile.row(begin), rows, tile.columns, tile.stride};
}

// ---- Pieces of a block -------------------------------------------------------------------------

// A part of a block that is computed at once.
struct Piece {
  Block block;
  std::int64_t row, key;        // where it begins in the whole block; key is where a panel begins
  const std::uint8_t* visible;  // null: all is
};

// Calls visit(piece) for the pieces of a block that is not empty: the whole of it if it is full,
// else slices, each from its first visible key (or a little before, at a panel's begin) to its
// last.
template <class Visit>
void for_each_piece(const Block& block, Coverage coverage, const std::uint8_t* visible,
                    std::int64_t panel, const Visit& visit) {
  if (coverage == Coverage::full) return visit(Piece{block, 0, 0, nullptr});
  const std::int64_t keys = block.keys();
  for (std::int64_t row = 0; row < block.queries(); row += kSlice) {
    const std::int64_t rows = std::min(kSlice, block.queries() - row);
    const std::uint8_t* const slice = visible + row * keys;
    std::int64_t begin = keys, end = 0;
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::uint8_t* const seen = slice + i * keys;
      const void* const first = std::memchr(seen, 1, static_cast<std::size_t>(begin));
      if (first) begin = static_cast<const std::uint8_t*>(first) - seen;
      const void* const last = memrchr(seen + end, 1, static_cast<std::size_t>(keys - end));
      if (last) end = static_cast<const std::uint8_t*>(last) + 1 - seen;
    }
    if (begin >= end) continue;
    begin = begin / panel * panel;
    bool all = true;
    for (std::int64_t i = 0; i < rows && all; ++i) {
      all = !std::memchr(slice + i * keys + begin, 0, static_cast<std::size_t>(end - begin));
    }
    visit(Piece{{block.query_begin + row, block.query_begin + row + rows, block.key_begin + begin,
                 block.key_begin + end},
                row,
                begin,
                all ? nullptr : slice + begin});
  }
}

// ---- Forward: Algorithm 1 ----------------------------------------------------------------------

// What one worker has: the engine and its tiles.
template <class R, class Tiles>
struct Worker : WorkerState {
  Worker(const Call& the_call, int the_number, const Tiles& the_tiles)
      : WorkerState(the_call, the_number), engine(engine_of<R>(call)), tile(the_tiles) {}

  const Engine<R>& engine;
  Tiles tile;
};

template <class R>
using ForwardWorker = Worker<R, ForwardTiles<R>>;
template <class R>
using BackwardWorker = Worker<R, BackwardTiles<R>>;

// Some keys of K or V; those on pages are gathered first.
template <class T, class R = Real<T>>
Stored gather_keys(const Call& call, const attest_tensor& tensor, std::int64_t b,
                   std::int64_t key_head, std::int64_t begin, std::int64_t keys, R* page) {
  const std::int64_t channels = tensor.shape[3];
  if (call.problem.page_size == 0) {
    return stored(key_plane<const T>(call, tensor, b, key_head).from(begin), keys, channels);
  }
  load_keys<T>(call, tensor, b, key_head, begin, keys, page);
  return {page, kTypeOf<R>, keys, channels, channels, 1};
}

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

// ---- Backward: Algorithm 2 ---------------------------------------------------------------------

// One key block: its matrices are in the tiles.
struct KeyBlock {
  std::int64_t begin, end;
  bool finite;  // all of K

  std::int64_t keys() const { return end - begin; }
};

// K and V of one key block (line 6).
template <class T, class R = Real<T>>
KeyBlock load_key_block(const BackwardWorker<R>& w, std::int64_t b, std::int64_t key_head,
                        std::int64_t begin, std::int64_t end) {
  const attest_problem& p = w.call.problem;
  const Stored k = stored(key_plane<const T>(w.call, w.call.inputs.k, b, key_head).from(begin),
                          end - begin, p.head_dim);
  const Stored v = stored(key_plane<const T>(w.call, w.call.inputs.v, b, key_head).from(begin),
                          end - begin, p.value_dim);
  w.engine.pack_transposed(k, 1, w.tile.k_transposed);
  w.engine.pack_transposed(v, 1, w.tile.v_transposed);
  return {begin, end, w.engine.pack(k, w.tile.k_panels)};
}

// Q and dO of one query block, as left-hand sides; as right-hand sides they are in the tiles.
template <class R>
struct QueryBlock {
  Tile<R> q, d_o;
  bool q_finite, d_o_finite;
  const R *lse, *delta;
};

// Line 10.
template <class T, class R = Real<T>>
QueryBlock<R> load_query_block(const BackwardWorker<R>& w, std::int64_t b, std::int64_t h,
                               std::int64_t begin, std::int64_t rows, const R* lse,
                               const R* delta) {
  const attest_problem& p = w.call.problem;
  const auto q = query_plane<const T>(w.call, w.call.inputs.q, b, h).from(begin);
  const auto d_o = query_plane<const T>(w.call, w.call.inputs.d_o, b, h).from(begin);
  return {as_tile(w.engine, q, rows, p.head_dim, w.tile.q),
          as_tile(w.engine, d_o, rows, p.value_dim, w.tile.d_o),
          w.engine.pack(stored(q, rows, p.head_dim), w.tile.q_panels),
          w.engine.pack(stored(d_o, rows, p.value_dim), w.tile.d_o_panels),
          lse,
          delta};
}

// Line 4: delta = rowsum(dO o O), less dLSE, for some rows of one query head; and their LSE.
template <class T, class R = Real<T>>
void form_delta(const BackwardWorker<R>& w, std::int64_t b, std::int64_t h, std::int64_t begin,
                std::int64_t rows, R* lse, R* delta) {
  const attest_problem& p = w.call.problem;
  const attest_inputs& in = w.call.inputs;
  const Tile<R> d_o = as_tile(w.engine, query_plane<const T>(w.call, in.d_o, b, h).from(begin),
                              rows, p.value_dim, w.tile.d_o);
  const Tile<R> o = as_tile(w.engine, query_plane<const T>(w.call, in.o, b, h).from(begin), rows,
                            p.value_dim, w.tile.o);
  const auto given_lse = query_plane<const R>(w.call, in.lse, b, h);
  const auto d_lse = query_plane<const R>(w.call, in.d_lse, b, h);
  for (std::int64_t i = 0; i < rows; ++i) {
    lse[i] = given_lse.at(begin + i, 0);
    delta[i] = 0;
    for (std::int64_t c = 0; c < p.value_dim; ++c) delta[i] += d_o.row(i)[c] * o.row(i)[c];
    if (p.has_dlse) delta[i] -= d_lse.at(begin + i, 0);
  }
}

// P and dS of a piece.
template <class R>
struct Gradient {
  Tile<R> p, ds;
};

// Lines 11 to 14 for one piece: P, and dS with respect to the final score. LSE is -inf in a row
// that saw nothing; all its elements are hidden, and their P is 0 (EMPTY-3).
template <class T, class R = Real<T>>
Gradient<R> form_gradient(const BackwardWorker<R>& w, std::int64_t b, std::int64_t h,
                          const QueryBlock<R>& query, const KeyBlock& key, const Piece& piece) {
  const attest_problem& problem = w.call.problem;
  const Block& block = piece.block;
  const std::int64_t rows = block.queries(), stride = w.tile.stride;
  const Tile<R> p = {w.tile.p, rows, block.keys(), stride};
  const Tile<R> ds = {w.tile.ds, rows, block.keys(), stride};
  const std::int64_t head_dim = problem.head_dim, value_dim = problem.value_dim;
  w.engine.multiply(rows_of(query.q, piece.row, rows),
                    {w.tile.k_transposed + piece.key * head_dim, head_dim},
                    static_cast<R>(problem.scale), p);
  HeadScores<T>(w.call, b, h, &w.engine).finish(block, stride, p.data, w.tile.cap_slope);
  if (piece.visible) hide(block, piece.visible, key.keys(), stride, p.data);
  w.engine.multiply(rows_of(query.d_o, piece.row, rows),
                    {w.tile.v_transposed + piece.key * value_dim, value_dim}, R(1), ds);
  w.dropout.apply(b, h, block, static_cast<R>(w.dropout.rescale()), stride, ds.data);
  w.engine.differentiate(p, ds, query.lse + piece.row, query.delta + piece.row);
  return {p, ds};
}

// Lines 12, 15 and 16 for one piece; dq is that of the query block, dk and dv of the key block.
template <class R>
void add_gradient(const BackwardWorker<R>& w, const QueryBlock<R>& query, const KeyBlock& key,
                  const Piece& piece, const Gradient<R>& gradient, R* dq, R* dk, R* dv) {
  const attest_problem& p = w.call.problem;
  const BackwardTiles<R>& tile = w.tile;
  const std::int64_t panel = w.engine.panel;
  const std::int64_t rows = piece.block.queries(), keys = piece.block.keys();
  const Panels<R> q = {tile.q_panels, query.q.rows}, d_o = {tile.d_o_panels, query.d_o.rows};
  const Panels<R> k = {tile.k_panels, key.keys()};
  w.engine.add_transposed_product(
      gradient.p, d_o.from_row(piece.row, panel), !query.d_o_finite,
      {dv + piece.key * tile.value_width, keys, p.value_dim, tile.value_width});
  w.engine.add_product(gradient.ds, k.from_row(piece.key, panel), !key.finite,
                       {dq + piece.row * tile.width, rows, p.head_dim, tile.width});
  w.engine.add_transposed_product(gradient.ds, q.from_row(piece.row, panel), !query.q_finite,
                                  {dk + piece.key * tile.width, keys, p.head_dim, tile.width});
}

// dQ = 0, and what the rows of a query head need (lines 2 and 4).
template <class T>
void begin_head(const BackwardWorker<Real<T>>& w, std::int64_t b, std::int64_t h) {
  const std::int64_t queries = w.call.lengths_of(b).query;
  std::fill_n(w.tile.dq, queries * w.tile.width, Real<T>(0));
  for (std::int64_t begin = 0; begin < queries; begin += kQueryBlock) {
    form_delta<T>(w, b, h, begin, std::min(kQueryBlock, queries - begin), w.tile.lse + begin,
                  w.tile.delta + begin);
  }
}

// Lines 9 to 16: adds what some query blocks of head h give of one key block.
template <class T, class R = Real<T>>
void add_blocks(BackwardWorker<R>& w, std::int64_t b, std::int64_t h, const KeyBlock& key,
                const Range& query_blocks, R* dk, R* dv) {
  const Call& call = w.call;
  const BackwardTiles<R>& tile = w.tile;
  const std::int64_t queries = call.lengths_of(b).query;
  for (std::int64_t n = query_blocks.begin; n < query_blocks.end; ++n) {  // line 8
    const std::int64_t begin = n * kQueryBlock;
    const Block block = {begin, std::min(begin + kQueryBlock, queries), key.begin, key.end};
    const Coverage coverage = w.mask.cover(b, h, block, tile.visible);
    if (coverage == Coverage::empty) continue;
    const QueryBlock<R> query =
        load_query_block<T>(w, b, h, begin, block.queries(), tile.lse + begin, tile.delta + begin);
    for_each_piece(block, coverage, tile.visible, w.engine.panel, [&](const Piece& piece) {
      call.report(w.number, b, h, piece.block, piece.visible, kGradientPass);
      const Gradient<R> gradient = form_gradient<T>(w, b, h, query, key, piece);
      w.dropout.apply(b, h, piece.block, R(1), tile.stride, gradient.p.data);
      if (tile.cap_slope) {
        through_cap(piece.block, tile.stride, tile.cap_slope, gradient.ds.data);
      }
      add_gradient(w, query, key, piece, gradient, tile.dq + begin * tile.width, dk, dv);
    });
  }
}

// Line 18, for some keys.
template <class T, class R = Real<T>>
void store_keys(const BackwardWorker<R>& w, std::int64_t b, std::int64_t key_head,
                std::int64_t begin, std::int64_t keys, R* dk_sums, R* dv_sums) {
  const Call& call = w.call;
  const attest_problem& p = call.problem;
  const auto dk = key_plane<T>(call, call.outputs.dk, b, key_head);
  const auto dv = key_plane<T>(call, call.outputs.dv, b, key_head);
  if (dk.data) {
    w.engine.store({dk_sums, keys, p.head_dim, w.tile.width}, static_cast<R>(p.scale), nullptr,
                   result(dk.from(begin), keys, p.head_dim));
  }
  if (dv.data) {
    w.engine.store({dv_sums, keys, p.value_dim, w.tile.value_width},
                   static_cast<R>(w.dropout.rescale()), nullptr,
                   result(dv.from(begin), keys, p.value_dim));
  }
}

// dQ of a query head, and zeros beyond its length.
template <class T>
void store_queries(const BackwardWorker<Real<T>>& w, std::int64_t b, std::int64_t h) {
  using R = Real<T>;
  const attest_problem& p = w.call.problem;
  const std::int64_t queries = w.call.lengths_of(b).query;
  const auto dq = query_plane<T>(w.call, w.call.outputs.dq, b, h);
  if (!dq.data) return;
  w.engine.store({w.tile.dq, queries, p.head_dim, w.tile.width}, static_cast<R>(p.scale), nullptr,
                 result(dq, queries, p.head_dim));
  fill(dq, queries, w.call.stored_queries(b), p.head_dim, R(0));
}

// One worker computes a whole key head: dK and dV sum over all its query heads (HEAD-2), and every
// sum has a fixed order.
template <class T>
void backward_head(BackwardWorker<Real<T>>& w, std::int64_t b, std::int64_t key_head) {
  using R = Real<T>;
  const BackwardTiles<R>& tile = w.tile;
  const Lengths& lengths = w.call.lengths_of(b);
  const std::int64_t group = w.call.group_size();
  const Range all = {0, (lengths.query + kQueryBlock - 1) / kQueryBlock};
  for (std::int64_t g = 0; g < group; ++g) {
    const std::int64_t h = key_head * group + g;
    begin_head<T>(w, b, h);
    for (std::int64_t begin = 0; begin < lengths.key; begin += kKeyBlock) {  // line 5
      const KeyBlock key = load_key_block<T>(w, b, key_head, begin,
                                             std::min(begin + kKeyBlock, lengths.key));  // line 6
      const std::int64_t kept = begin % tile.summed_keys;
      R* const dk = tile.dk + kept * tile.width;
      R* const dv = tile.dv + kept * tile.value_width;
      if (g == 0) {  // line 7
        std::fill_n(dk, key.keys() * tile.width, R(0));
        std::fill_n(dv, key.keys() * tile.value_width, R(0));
      }
      add_blocks<T>(w, b, h, key, all, dk, dv);
      if (g == group - 1) store_keys<T>(w, b, key_head, begin, key.keys(), dk, dv);
    }
    store_queries<T>(w, b, h);
  }
  clear_unread_keys<T>(w.call, b, key_head);
}

// The scores of a batch element by blocks, keys down and queries across, without those that a band
// hides; other masks are left to BlockMask.
inline std::vector<BlockRow> key_rows(const Call& call, std::int64_t b) {
  const Lengths& lengths = call.lengths_of(b);
  constexpr std::int64_t kUnbounded = std::int64_t{1} << 60;
  BandOfScores band = {lengths.key, lengths.query, kUnbounded, kUnbounded, 0};
  if (call.mask.size() == 1 && call.mask[0].kind == ATTEST_MASK_BAND) {
    // -left <= j - (i + shift) <= right, read from the keys' side.
    const attest_mask& node = call.mask[0];
    const std::int64_t diagonal = node.anchored_bottom_right ? lengths.key - lengths.query : 0;
    band.left = std::min(node.right, kUnbounded);
    band.right = std::min(node.left, kUnbounded);
    band.shift = -(node.offset + diagonal);
  }
  return needed_blocks(band, kKeyBlock, kQueryBlock);
}

// All workers compute one key head together: as many blocks each, added up worker by worker. So the
// order of a sum depends on how many they are, and on nothing else.
template <class T>
void backward_head_evenly(const Call& call, Workers& workers, std::int64_t b, std::int64_t key_head,
                          const std::vector<BlockRow>& rows) {
  using R = Real<T>;
  const Lengths& lengths = call.lengths_of(b);
  const std::int64_t group = call.group_size();
  const std::uint64_t bytes = flash_workspace(call, true, Dealing::balanced);
  const auto tiles_of = [&](int number) {
    return backward_tiles<R>(call, Dealing::balanced, Arena(workspace_of(call, number, bytes)));
  };
  const BackwardWorker<R> first(call, 0, tiles_of(0));
  const auto add = [](const R* from, std::int64_t count, R* to) {
    for (std::int64_t n = 0; n < count; ++n) to[n] += from[n];
  };
  for (std::int64_t g = 0; g < group; ++g) {
    const std::int64_t h = key_head * group + g;
    workers.share_out(call.workers, [&](int number, std::int64_t, std::int64_t) {
      BackwardWorker<R> w(call, number, tiles_of(number));
      begin_head<T>(w, b, h);
      if (g == 0) {
        std::fill_n(w.tile.dk, lengths.key * w.tile.width, R(0));
        std::fill_n(w.tile.dv, lengths.key * w.tile.value_width, R(0));
      }
      for (const BlockRow& row : even_share(rows, call.workers, number)) {
        const std::int64_t begin = row.row * kKeyBlock;
        const KeyBlock key =
            load_key_block<T>(w, b, key_head, begin, std::min(begin + kKeyBlock, lengths.key));
        add_blocks<T>(w, b, h, key, row.keys, w.tile.dk + begin * w.tile.width,
                      w.tile.dv + begin * w.tile.value_width);
      }
    });
    for (int number = 1; number < call.workers; ++number) {
      add(tiles_of(number).dq, lengths.query * first.tile.width, first.tile.dq);
    }
    store_queries<T>(first, b, h);
  }
  for (int number = 1; number < call.workers; ++number) {
    const BackwardTiles<R> other = tiles_of(number);
    add(other.dk, lengths.key * other.width, first.tile.dk);
    add(other.dv, lengths.key * other.value_width, first.tile.dv);
  }
  if (group > 0) {
    store_keys<T>(first, b, key_head, 0, lengths.key, first.tile.dk, first.tile.dv);
  }
  clear_unread_keys<T>(call, b, key_head);
}

// One part of dBias: over all blocks of scores that read it, tile by tile as above.
template <class T>
void bias_gradient(BackwardWorker<Real<T>>& w, const BiasPart& part) {
  using R = Real<T>;
  const Call& call = w.call;
  const BackwardTiles<R>& tile = w.tile;
  std::fill_n(tile.dbias, part.rows() * part.columns(), 0.0);
  for (std::int64_t b = part.batch; b < part.batch_end; ++b) {
    const Lengths& lengths = call.lengths_of(b);
    const std::int64_t query_end = std::min(part.scores.query_end, lengths.query);
    const std::int64_t key_end = std::min(part.scores.key_end, lengths.key);
    for (std::int64_t h = part.head; h < part.head_end; ++h) {
      for (std::int64_t begin_key = part.scores.key_begin; begin_key < key_end;
           begin_key += kKeyBlock) {
        const KeyBlock key = load_key_block<T>(w, b, h / call.group_size(), begin_key,
                                               std::min(begin_key + kKeyBlock, key_end));
        for (std::int64_t begin = part.scores.query_begin; begin < query_end;
             begin += kQueryBlock) {
          const Block block = {begin, std::min(begin + kQueryBlock, query_end), key.begin, key.end};
          const Coverage coverage = w.mask.cover(b, h, block, tile.visible);
          if (coverage == Coverage::empty) continue;
          form_delta<T>(w, b, h, begin, block.queries(), tile.lse, tile.delta);
          const QueryBlock<R> query =
              load_query_block<T>(w, b, h, begin, block.queries(), tile.lse, tile.delta);
          for_each_piece(block, coverage, tile.visible, w.engine.panel, [&](const Piece& piece) {
            call.report(w.number, b, h, piece.block, piece.visible, kBiasPass);
            const Gradient<R> gradient = form_gradient<T>(w, b, h, query, key, piece);
            add_to_bias(part, piece.block, tile.stride, gradient.ds.data, tile.dbias);
          });
        }
      }
    }
  }
  store_bias<T>(part, tile.dbias, call.outputs.dbias);
}

template <class T>
void backward_as(const Call& call, Dealing dealing) {
  using R = Real<T>;
  const attest_problem& p = call.problem;
  const std::uint64_t bytes = flash_workspace(call, true, dealing);
  Workers workers(call.workers);
  const auto for_each_unit = [&](std::int64_t units, const auto& work) {
    workers.share_out(units, [&](int number, std::int64_t begin, std::int64_t end) {
      BackwardWorker<R> worker(
          call, number, backward_tiles<R>(call, dealing, Arena(workspace_of(call, number, bytes))));
      for (std::int64_t unit = begin; unit < end; ++unit) work(worker, unit);
    });
  };
  if (dealing == Dealing::contiguous) {
    for_each_unit(p.batch * p.key_heads, [&](BackwardWorker<R>& w, std::int64_t unit) {
      backward_head<T>(w, unit / p.key_heads, unit % p.key_heads);
    });
  } else {
    for (std::int64_t b = 0; b < p.batch && p.key_heads > 0; ++b) {
      const std::vector<BlockRow> rows = key_rows(call, b);
      for (std::int64_t head = 0; head < p.key_heads; ++head) {
        backward_head_evenly<T>(call, workers, b, head, rows);
      }
    }
  }
  if (call.outputs.dbias.data) {
    const BiasParts parts(call, kQueryBlock, kKeyBlock);
    for_each_unit(parts.count(), [&](BackwardWorker<R>& w, std::int64_t unit) {
      bias_gradient<T>(w, parts[unit]);
    });
  }
  if (call.outputs.dsink.data) {
    for (std::int64_t h = 0; h < p.query_heads; ++h) sink_gradient<T>(call, h);
  }
}

// Both passes in the element type of the call, compiled once for all kernels.
void flash_forward(const Call& call, Dealing dealing);
void flash_backward(const Call& call, Dealing dealing);

// A kernel of this algorithm.
template <Dealing kDealing>
KernelCode flash_kernel(const char* name) {
  return {
      .name = name,
      .arithmetic = &flash_arithmetic<kDealing>,
      .workspace = [](const Call& call,
                      bool backward) { return flash_workspace(call, backward, kDealing); },
      .forward = [](const Call& call) { flash_forward(call, kDealing); },
      .backward = [](const Call& call) { flash_backward(call, kDealing); },
      .schedule = &flash_schedule<kDealing>,
      .memory = &flash_memory<kDealing>,
  };
}

}  // namespace attest::impl
