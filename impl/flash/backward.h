// Backward: Algorithm 2, for a key head, by one worker or by all together.
#pragma once

#include <algorithm>

#include "impl/flash/gradient.h"
#include "impl/parallel.h"
#include "impl/schedule.h"

namespace attest::impl {

// Who adds to dQ, where no others do.
struct Alone {
  void wait(std::int64_t /*query_block*/) const {}
  void pass(std::int64_t /*query_block*/) const {}
};

// Lines 12, 15 and 16 for one piece; dq is that of the query block, dk and dv of the key block.
// Calls wait() before it adds to dq.
template <class R, class Wait>
void add_gradient(const BackwardWorker<R>& w, const QueryBlock<R>& query, const KeyBlock& key,
                  const Piece& piece, const Gradient<R>& gradient, const Wait& wait, R* dq, R* dk,
                  R* dv) {
  const attest_problem& p = w.call.problem;
  const BackwardTiles<R>& tile = w.tile;
  const std::int64_t panel = w.engine.panel;
  const std::int64_t rows = piece.block.queries(), keys = piece.block.keys();
  const Panels<R> q = {tile.q_panels, query.q.rows}, d_o = {tile.d_o_panels, query.d_o.rows};
  const Panels<R> k = {tile.k_panels, key.keys()};
  w.engine.add_transposed_product(
      gradient.p, d_o.from_row(piece.row, panel), !query.d_o_finite,
      {dv + piece.key * tile.value_width, keys, p.value_dim, tile.value_width});
  w.engine.add_transposed_product(gradient.ds, q.from_row(piece.row, panel), !query.q_finite,
                                  {dk + piece.key * tile.width, keys, p.head_dim, tile.width});
  wait();
  w.engine.add_product(gradient.ds, k.from_row(piece.key, panel), !key.finite,
                       {dq + piece.row * tile.width, rows, p.head_dim, tile.width});
}

// dQ = 0, and what the rows need (lines 3 and 4), for some query blocks of a head.
template <class T>
void begin_head(const BackwardWorker<Real<T>>& w, std::int64_t b, std::int64_t h,
                const Range& query_blocks) {
  const std::int64_t queries = w.call.lengths_of(b).query;
  const BackwardTiles<Real<T>>& tile = w.tile;
  for (std::int64_t n = query_blocks.begin; n < query_blocks.end; ++n) {
    const std::int64_t begin = n * kQueryBlock, rows = std::min(kQueryBlock, queries - begin);
    std::fill_n(tile.dq + begin * tile.width, rows * tile.width, Real<T>(0));
    form_delta<T>(w, b, h, begin, rows, tile.lse + begin, tile.delta + begin);
  }
}

// Lines 10 to 16: adds what one query block gives of one key block, which a mask may cut.
template <class T, class Wait, class R = Real<T>>
void add_block(BackwardWorker<R>& w, std::int64_t b, std::int64_t h, const KeyBlock& key,
               const Block& block, Coverage coverage, const QueryBlock<R>& query, const Wait& wait,
               R* dq, R* dk, R* dv) {
  const BackwardTiles<R>& tile = w.tile;
  for_each_piece(block, coverage, tile.visible, w.engine.panel, [&](const Piece& piece) {
    w.call.report(w.number, b, h, piece.block, piece.visible, kGradientPass);
    const Gradient<R> gradient = form_gradient<T>(w, b, h, query, key, piece);
    w.dropout.apply(b, h, piece.block, R(1), tile.stride, gradient.p.data);
    if (tile.cap_slope) {
      through_cap(piece.block, tile.stride, tile.cap_slope, gradient.ds.data);
    }
    add_gradient(w, query, key, piece, gradient, wait, dq, dk, dv);
  });
}

// Lines 9 to 16: adds what some query blocks of head h give of one key block.
template <class T, class Turn = Alone, class R = Real<T>>
void add_blocks(BackwardWorker<R>& w, std::int64_t b, std::int64_t h, const KeyBlock& key,
                const Range& query_blocks, R* dk, R* dv, const Turn& turn = {}) {
  const Call& call = w.call;
  const BackwardTiles<R>& tile = w.tile;
  const std::int64_t queries = call.lengths_of(b).query;
  for (std::int64_t n = query_blocks.begin; n < query_blocks.end; ++n) {  // line 8
    const std::int64_t begin = n * kQueryBlock;
    const Block block = {begin, std::min(begin + kQueryBlock, queries), key.begin, key.end};
    const Coverage coverage = w.mask.cover(b, h, block, tile.visible);
    if (coverage != Coverage::empty) {
      const QueryBlock<R> query = load_query_block<T>(w, b, h, begin, block.queries(),
                                                      tile.lse + begin, tile.delta + begin);
      add_block<T>(
          w, b, h, key, block, coverage, query, [&] { turn.wait(n); }, tile.dq + begin * tile.width,
          dk, dv);
    }
    turn.pass(n);
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

// Lines 5 to 18 for the g-th query head of a key head, and every step-th of its key blocks. dK and
// dV sum over all the query heads (HEAD-2).
template <class T, class TurnOf>
void add_key_blocks(BackwardWorker<Real<T>>& w, std::int64_t b, std::int64_t key_head,
                    std::int64_t g, std::int64_t first, std::int64_t step, const TurnOf& turn_of) {
  using R = Real<T>;
  const BackwardTiles<R>& tile = w.tile;
  const Lengths& lengths = w.call.lengths_of(b);
  const std::int64_t group = w.call.group_size();
  const Range all = {0, blocks_of(lengths.query, kQueryBlock)};
  for (std::int64_t n = first; n < blocks_of(lengths.key, kKeyBlock); n += step) {  // line 5
    const std::int64_t begin = n * kKeyBlock;
    const KeyBlock key = load_key_block<T>(w, b, key_head, begin,
                                           std::min(begin + kKeyBlock, lengths.key));  // line 6
    const std::int64_t kept = begin % tile.summed_keys;
    R* const dk = tile.dk + kept * tile.width;
    R* const dv = tile.dv + kept * tile.value_width;
    if (g == 0) {  // line 7
      std::fill_n(dk, key.keys() * tile.width, R(0));
      std::fill_n(dv, key.keys() * tile.value_width, R(0));
    }
    add_blocks<T>(w, b, key_head * group + g, key, all, dk, dv, turn_of(n));
    if (g == group - 1) store_keys<T>(w, b, key_head, begin, key.keys(), dk, dv);
  }
}

// One worker computes a whole key head.
template <class T>
void backward_head(BackwardWorker<Real<T>>& w, std::int64_t b, std::int64_t key_head) {
  const Range all = {0, blocks_of(w.call.lengths_of(b).query, kQueryBlock)};
  for (std::int64_t g = 0; g < w.call.group_size(); ++g) {
    const std::int64_t h = key_head * w.call.group_size() + g;
    begin_head<T>(w, b, h, all);
    add_key_blocks<T>(w, b, key_head, g, 0, 1, [](std::int64_t) { return Alone(); });
    store_queries<T>(w, b, h);
  }
  clear_unread_keys<T>(w.call, b, key_head);
}

// All workers compute a key head together, each every T-th of its key blocks. dQ they add to one
// memory: a query block takes the key blocks in order, so that whoever has one waits for the one
// before, which is a query block ahead of it. So every sum has the order that it has by one worker.
template <class T>
void backward_head_together(const Call& call, Workers& workers, std::int64_t b,
                            std::int64_t key_head) {
  using R = Real<T>;
  const std::uint64_t bytes = flash_workspace(call, true, kUpwards);
  const auto tiles_of = [&](int number) {
    return backward_tiles<R>(call, kUpwards, Arena(workspace_of(call, number, bytes)));
  };
  const BackwardTiles<R> shared = tiles_of(0);
  const auto worker = [&](int number) {
    BackwardWorker<R> w(call, number, tiles_of(number));
    w.tile.dq = shared.dq;
    w.tile.lse = shared.lse;
    w.tile.delta = shared.delta;
    return w;
  };
  const std::int64_t query_blocks = blocks_of(call.lengths_of(b).query, kQueryBlock);
  for (std::int64_t g = 0; g < call.group_size(); ++g) {
    const std::int64_t h = key_head * call.group_size() + g;
    workers.share_out(query_blocks, [&](int number, std::int64_t begin, std::int64_t end) {
      begin_head<T>(worker(number), b, h, {begin, end});
    });
    Turns turns(query_blocks);
    workers.share_out(call.workers, [&](int number, std::int64_t, std::int64_t) {
      turns.or_abandon([&] {
        BackwardWorker<R> w = worker(number);
        add_key_blocks<T>(w, b, key_head, g, number, call.workers,
                          [&](std::int64_t key_block) { return turns.of(key_block); });
      });
    });
    store_queries<T>(worker(0), b, h);
  }
  clear_unread_keys<T>(call, b, key_head);
}

}  // namespace attest::impl
