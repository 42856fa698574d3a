// dBias, in a pass of its own.
#pragma once

#include <algorithm>

#include "impl/bias_gradient.h"
#include "impl/flash/gradient.h"

namespace attest::impl {

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

}  // namespace attest::impl
