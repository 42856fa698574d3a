#include "impl/schedule.h"

#include <algorithm>

namespace attest::impl {

std::vector<BlockRow> needed_blocks(const BandOfScores& band, std::int64_t query_block,
                                    std::int64_t key_block) {
  std::vector<BlockRow> rows;
  for (std::int64_t row = 0; row < blocks_of(band.queries, query_block); ++row) {
    const std::int64_t first = row * query_block;
    const std::int64_t last = std::min(first + query_block, band.queries) - 1;
    // The keys of one query overlap those of the next or touch them, so none lies between that no
    // query sees. Written so that widths without bound do not overflow.
    const std::int64_t begin = first + band.shift > band.left ? first + band.shift - band.left : 0;
    const std::int64_t beyond = band.keys - 1 - (last + band.shift);
    const std::int64_t end = beyond > band.right ? band.keys - beyond + band.right : band.keys;
    if (begin >= end) continue;
    rows.push_back({row, {begin / key_block, blocks_of(end, key_block)}});
  }
  return rows;
}

std::vector<std::int64_t> low_high_share(std::int64_t rows, std::int64_t workers,
                                         std::int64_t worker) {
  // Rows without work in front make whole rounds of pairs. Every other round goes backwards, so
  // that the pairs that lack a row, which differ, are not always largest for the same worker.
  const std::int64_t rounds = blocks_of(rows, 2 * workers);
  const std::int64_t absent = rounds * 2 * workers - rows;
  std::vector<std::int64_t> share;
  for (std::int64_t round = 0; round < rounds; ++round) {
    const std::int64_t place = round % 2 == 0 ? worker : workers - 1 - worker;
    const std::int64_t pair = round * workers + place;
    if (pair >= absent) share.push_back(pair - absent);
    if (rows - 1 - pair >= 0) share.push_back(rows - 1 - pair);
  }
  return share;
}

std::vector<BlockRow> even_share(std::span<const BlockRow> rows, std::int64_t workers,
                                 std::int64_t worker) {
  std::int64_t blocks = 0;
  for (const BlockRow& row : rows) blocks += row.keys.size();
  const Range mine = contiguous_share(blocks, workers, worker);
  std::vector<BlockRow> share;
  std::int64_t before = 0;  // blocks in the rows above
  for (const BlockRow& row : rows) {
    const std::int64_t begin = std::max<std::int64_t>(mine.begin - before, 0);
    const std::int64_t end = std::min(mine.end - before, row.keys.size());
    if (begin < end) share.push_back({row.row, {row.keys.begin + begin, row.keys.begin + end}});
    before += row.keys.size();
  }
  return share;
}

Range split_of_keys(std::int64_t keys, std::int64_t chunk, std::int64_t splits,
                    std::int64_t split) {
  const Range chunks = contiguous_share(blocks_of(keys, chunk), splits, split);
  return {std::min(chunks.begin * chunk, keys), std::min(chunks.end * chunk, keys)};
}

std::int64_t split_count(std::int64_t units, std::int64_t workers, std::int64_t most) {
  const auto busy = [&](std::int64_t splits) {
    const std::int64_t tasks = units * splits;
    return static_cast<double>(tasks) / static_cast<double>(blocks_of(tasks, workers) * workers);
  };
  if (units == 0) return 1;
  double best = 0;
  for (std::int64_t splits = 1; splits <= most; ++splits) best = std::max(best, busy(splits));
  std::int64_t splits = 1;
  while (splits < most && busy(splits) < 0.95 * best) ++splits;
  return splits;
}

}  // namespace attest::impl
