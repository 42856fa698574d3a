// The forward pass, dealt by scores: every worker has equally many, so that a query block may lie
// with several. Each attends to its own part of the keys, and the parts are merged afterwards.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "impl/flash/forward.h"
#include "impl/flash/needed.h"

namespace attest::impl {

// So many keys, of one query block, are dealt at a time: a multiple of every engine's panel.
constexpr std::int64_t kDealtKeys = 64;

// The most parts of a query block.
constexpr std::int64_t kMostParts = 30;

// O, l and m of some rows over a part of the keys.
template <class R>
struct PartOfRows {
  PartOfRows(const Call& call, Arena arena)
      : PartOfRows(std::min(call.problem.query_len, kQueryBlock),
                   engine_of<R>(call).padded(call.problem.value_dim), arena) {}

  R *o, *max, *sum;
  std::uint64_t bytes;

 private:
  PartOfRows(std::int64_t rows, std::int64_t width, Arena arena)
      : o(arena.take<R>(rows, width)),
        max(arena.take<R>(rows)),
        sum(arena.take<R>(rows)),
        bytes(arena.used()) {}
};

// No worker leaves more than two: of the first query block of its share, and of the last.
template <class R>
std::uint64_t bytes_of_parts(const Call& call) {
  const PartOfRows<R> part(call, Arena());
  Arena arena;
  arena.take<char>(2 * std::int64_t{call.workers}, static_cast<std::int64_t>(part.bytes));
  return arena.used();
}

// Which worker computes what. A row is a query block, counted over all heads; its keys are counted
// in steps of kDealtKeys.
struct EvenDeal {
  struct Piece {
    std::int64_t row;
    Range keys;
    bool first, whole;      // whether it has the row's first keys, and all of them
    std::int64_t part = 0;  // if not whole: its number among those that are not
  };
  struct Row {
    std::int64_t pieces = 0, first_part = 0;
  };

  explicit EvenDeal(const Call& call)
      : rows(static_cast<std::size_t>(call.problem.batch * call.problem.query_heads *
                                      row_blocks(call.problem))),
        pieces(static_cast<std::size_t>(call.workers)) {
    const std::int64_t heads = call.problem.query_heads, of_head = row_blocks(call.problem);
    std::vector<BandOfScores> bands;
    for (std::int64_t b = 0; b < call.problem.batch; ++b) bands.push_back(band_of(call, b));
    std::vector<BlockRow> needed;
    std::int64_t all = 0, longest = 1;
    for (std::int64_t head = 0; head < call.problem.batch * heads; ++head) {
      const BandOfScores& band = bands[static_cast<std::size_t>(head / heads)];
      for (const BlockRow& row : needed_blocks(band, kQueryBlock, kDealtKeys)) {
        needed.push_back({head * of_head + row.row, row.keys});
        const std::int64_t scores = scores_in(band, kQueryBlock, kDealtKeys, row, row.keys.size());
        all += scores;
        longest = std::max(longest, scores);
      }
    }
    // Shares end every all / workers scores: so often a row is cut, or once more.
    const std::int64_t most = std::max<std::int64_t>((kMostParts - 2) * all / longest, 1);
    const auto shares =
        even_shares(needed, std::min<std::int64_t>(call.workers, most),
                    [&](const BlockRow& row, std::int64_t n) {
                      return scores_in(bands[static_cast<std::size_t>(row.row / of_head / heads)],
                                       kQueryBlock, kDealtKeys, {row.row % of_head, row.keys}, n);
                    });
    std::int64_t parts = 0;
    std::size_t n = 0;  // of what is needed
    for (std::size_t worker = 0; worker < shares.size(); ++worker) {
      for (const BlockRow& share : shares[worker]) {
        while (needed[n].row != share.row) ++n;
        const Range& keys = needed[n].keys;
        Row& row = rows[static_cast<std::size_t>(share.row)];
        Piece piece = {share.row, share.keys, share.keys.begin == keys.begin, share.keys == keys};
        if (row.pieces++ == 0) row.first_part = parts;
        if (!piece.whole) piece.part = parts++;
        pieces[worker].push_back(piece);
      }
    }
  }

  std::vector<Row> rows;                   // one that needs no keys has no pieces
  std::vector<std::vector<Piece>> pieces;  // of each worker
};

// Makes of all parts of some rows what one pass over the keys makes, in the worker's tiles:
//
//   m = max m_n      l = sum_n e^(m_n - m) l_n      O = sum_n e^(m_n - m) O_n
//
// A part that saw nothing of a row has m = -inf, l = 0 and O = 0.
template <class T, class R = Real<T>>
void merge_parts(const ForwardWorker<R>& w, const QueryRows& rows,
                 const std::vector<PartOfRows<R>>& parts) {
  const ForwardTiles<R>& tile = w.tile;
  std::fill_n(tile.o, rows.count() * tile.width, R(0));
  for (std::int64_t i = 0; i < rows.count(); ++i) {
    R max = -std::numeric_limits<R>::infinity(), sum = 0;
    for (const PartOfRows<R>& part : parts) max = std::max(max, part.max[i]);
    R* const o = tile.o + i * tile.width;
    for (const PartOfRows<R>& part : parts) {
      const bool nothing = max == -std::numeric_limits<R>::infinity();
      const R weight = nothing ? R(1) : std::exp(part.max[i] - max);
      const R* const from = part.o + i * tile.width;
      sum += weight * part.sum[i];
      for (std::int64_t c = 0; c < tile.width; ++c) o[c] += weight * from[c];
    }
    tile.max[i] = max;
    tile.sum[i] = sum;
  }
}

template <class T>
void forward_evenly(const Call& call) {
  using R = Real<T>;
  const std::uint64_t bytes = flash_workspace(call, false, kBalanced);
  auto* const memory = static_cast<char*>(shared_workspace_of(call, bytes));
  const auto part_number = [&](std::int64_t n) {
    const std::uint64_t size = PartOfRows<R>(call, Arena()).bytes;
    return PartOfRows<R>(call, Arena(memory + static_cast<std::uint64_t>(n) * size));
  };
  const auto worker = [&](int number) {
    return ForwardWorker<R>(call, number,
                            forward_tiles<R>(call, Arena(workspace_of(call, number, bytes))));
  };
  const EvenDeal deal(call);
  Workers workers(call.workers);

  workers.share_out(call.workers, [&](int number, std::int64_t, std::int64_t) {
    ForwardWorker<R> w = worker(number);
    for (const EvenDeal::Piece& piece : deal.pieces[static_cast<std::size_t>(number)]) {
      const QueryRows rows = query_rows(call, piece.row);
      begin_rows<T>(w, rows, piece.first);
      attend<T>(w, rows,
                {piece.keys.begin * kDealtKeys,
                 std::min(piece.keys.end * kDealtKeys, call.lengths_of(rows.b).key)},
                Visits::upwards);
      if (piece.whole) {
        store_rows<T>(w, rows);
        continue;
      }
      const PartOfRows<R> part = part_number(piece.part);
      std::copy_n(w.tile.o, rows.count() * w.tile.width, part.o);
      std::copy_n(w.tile.max, rows.count(), part.max);
      std::copy_n(w.tile.sum, rows.count(), part.sum);
    }
  });

  const auto all = static_cast<std::int64_t>(deal.rows.size());
  workers.share_out(all, [&](int number, std::int64_t begin, std::int64_t end) {
    ForwardWorker<R> w = worker(number);
    for (std::int64_t n = begin; n < end; ++n) {
      const EvenDeal::Row& row = deal.rows[static_cast<std::size_t>(n)];
      if (row.pieces == 1) continue;
      const QueryRows rows = query_rows(call, n);
      if (row.pieces == 0) {
        begin_rows<T>(w, rows, true);
      } else {
        std::vector<PartOfRows<R>> parts;
        for (std::int64_t i = 0; i < row.pieces; ++i) {
          parts.push_back(part_number(row.first_part + i));
        }
        merge_parts<T>(w, rows, parts);
      }
      store_rows<T>(w, rows);
    }
  });
}

}  // namespace attest::impl
