// The backward pass of a key head by all workers together.
#pragma once

#include <algorithm>
#include <vector>

#include "impl/flash/backward.h"
#include "impl/flash/needed.h"
#include "impl/parallel.h"

namespace attest::impl {

// Which share of a head a worker has. Some are a block larger, so they change hands from one head
// to the next.
inline std::int64_t share_in_head(std::int64_t worker, std::int64_t head, std::int64_t workers) {
  return (worker + head) % workers;
}

// All workers compute one key head together: as many scores each, added up worker by worker. So the
// order of a sum depends on how many they are, and on nothing else.
template <class T>
void backward_head_evenly(const Call& call, Workers& workers, std::int64_t b,
                          std::int64_t key_head) {
  using R = Real<T>;
  const Lengths& lengths = call.lengths_of(b);
  const BandOfScores band = transposed(band_of(call, b));
  const auto shares = even_shares(needed_blocks(band, kKeyBlock, kQueryBlock), call.workers,
                                  [&](const BlockRow& row, std::int64_t n) {
                                    return scores_in(band, kKeyBlock, kQueryBlock, row, n);
                                  });
  const std::int64_t group = call.group_size();
  const std::uint64_t bytes = flash_workspace(call, true, kBalanced);
  const auto tiles_of = [&](int number) {
    return backward_tiles<R>(call, kBalanced, Arena(workspace_of(call, number, bytes)));
  };
  const BackwardWorker<R> first(call, 0, tiles_of(0));
  const Range all = {0, blocks_of(lengths.query, kQueryBlock)};
  const auto add = [](const R* from, std::int64_t count, R* to) {
    for (std::int64_t n = 0; n < count; ++n) to[n] += from[n];
  };
  for (std::int64_t g = 0; g < group; ++g) {
    const std::int64_t h = key_head * group + g;
    workers.share_out(call.workers, [&](int number, std::int64_t, std::int64_t) {
      BackwardWorker<R> w(call, number, tiles_of(number));
      begin_head<T>(w, b, h, all);
      if (g == 0) {
        std::fill_n(w.tile.dk, lengths.key * w.tile.width, R(0));
        std::fill_n(w.tile.dv, lengths.key * w.tile.value_width, R(0));
      }
      const std::int64_t share =
          share_in_head(number, b * call.problem.query_heads + h, call.workers);
      for (const BlockRow& row : shares[static_cast<std::size_t>(share)]) {
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

}  // namespace attest::impl
