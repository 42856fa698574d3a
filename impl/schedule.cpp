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

std::int64_t scores_in(const BandOfScores& band, std::int64_t query_block, std::int64_t key_block,
                       const BlockRow& row, std::int64_t n) {
  const std::int64_t begin = row.keys.begin * key_block;
  const std::int64_t end = std::min((row.keys.begin + n) * key_block, band.keys);
  const std::int64_t last = std::min((row.row + 1) * query_block, band.queries);
  std::int64_t scores = 0;
  for (std::int64_t i = row.row * query_block; i < last; ++i) {
    const std::int64_t diagonal = i + band.shift;
    const std::int64_t from = diagonal > band.left ? std::max(begin, diagonal - band.left) : begin;
    const std::int64_t to = end - diagonal > band.right ? diagonal + band.right + 1 : end;
    scores += std::max<std::int64_t>(to - from, 0);
  }
  return scores;
}

std::vector<std::vector<BlockRow>> even_shares(std::span<const BlockRow> rows, std::int64_t workers,
                                               const ScoresOfBlocks& scores) {
  std::vector<std::int64_t> before = {0};  // scores in the rows above
  for (const BlockRow& row : rows) before.push_back(before.back() + scores(row, row.keys.size()));

  // Where a share ends: after so many blocks of a row, whichever number is nearest to what it
  // should have with all shares above.
  std::size_t at = 0;
  const auto blocks_up_to = [&](std::int64_t wanted) {
    const BlockRow& row = rows[at];
    std::int64_t low = 0, high = row.keys.size();  // the first has too few, the second does not
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      (before[at] + scores(row, middle) < wanted ? low : high) = middle;
    }
    const std::int64_t lacks = wanted - before[at] - scores(row, low);
    return lacks < scores(row, high) + before[at] - wanted ? low : high;
  };

  std::vector<std::vector<BlockRow>> shares(static_cast<std::size_t>(workers));
  std::int64_t done = 0;  // blocks of the row
  for (std::int64_t worker = 0; worker < workers; ++worker) {
    const std::int64_t wanted = contiguous_share(before.back(), workers, worker).end;
    for (; at < rows.size(); ++at, done = 0) {
      const BlockRow& row = rows[at];
      const bool ends_here = worker + 1 < workers && wanted <= before[at + 1];
      const std::int64_t end = ends_here ? blocks_up_to(wanted) : row.keys.size();
      if (done < end) {
        shares[static_cast<std::size_t>(worker)].push_back(
            {row.row, {row.keys.begin + done, row.keys.begin + end}});
        done = end;
      }
      if (ends_here) break;
    }
  }
  return shares;
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
