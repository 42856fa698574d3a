// What the backward pass and dBias have in common: a key block and a query block in tiles, and the
// gradient of a piece of their scores.
#pragma once

#include <algorithm>

#include "impl/flash.h"
#include "impl/flash/pieces.h"
#include "impl/flash/tiles.h"
#include "impl/score.h"
#include "impl/sequence.h"

namespace attest::impl {

// What a worker keeps.
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
BackwardTiles<R> backward_tiles(const Call& call, Form form, Arena arena) {
  const bool whole_head = form.dealing == Dealing::balanced || group_of(call.problem) > 1;
  return {call.problem, engine_of<R>(call), whole_head ? call.problem.key_len : kKeyBlock, arena};
}

template <class R>
using BackwardWorker = Worker<R, BackwardTiles<R>>;

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

// Line 9.
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

// Lines 10, 11, 13 and 14 for one piece: P, and dS with respect to the final score. LSE is -inf in
// a row that saw nothing; all its elements are hidden, and their P is 0 (EMPTY-3).
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

}  // namespace attest::impl
