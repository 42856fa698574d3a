#include "impl/vendor/ascend/schedule.h"

#include <algorithm>
#include <numeric>
#include <queue>

namespace attest::vendor::ascend {

namespace {

using Shares = std::vector<std::vector<BlockRow>>;

// Of each head's rows of blocks the first ceil(rows / cores) to core 0, and so on.
Shares deal_by_rows(const std::vector<BlockRow>& rows, const Tiling& tiling) {
  Shares shares(static_cast<std::size_t>(tiling.cores));
  for (std::size_t begin = 0; begin < rows.size();) {
    std::size_t end = begin;
    while (end < rows.size() && rows[end].head == rows[begin].head &&
           rows[end].sequence == rows[begin].sequence) {
      ++end;
    }
    const std::size_t of_core = (end - begin + shares.size() - 1) / shares.size();
    for (std::size_t n = begin; n < end; ++n) shares[(n - begin) / of_core].push_back(rows[n]);
    begin = end;
  }
  return shares;
}

void add_launches(std::vector<BlockRow>& share, const BlockRow& row, std::size_t begin,
                  std::size_t end, int64_t blocks_at_once) {
  const auto step = static_cast<std::size_t>(blocks_at_once);
  for (std::size_t n = begin; n < end; n += step) {
    BlockRow launch = row;
    const auto first = row.columns.begin();
    launch.columns.assign(first + static_cast<std::ptrdiff_t>(n),
                          first + static_cast<std::ptrdiff_t>(std::min(end, n + step)));
    launch.is_new = n == begin;
    share.push_back(std::move(launch));
  }
}

}  // namespace

std::vector<BlockRow> block_rows(const Plan& plan) {
  std::vector<BlockRow> rows;
  for (std::size_t b = 0; b < plan.sequences.size(); ++b) {
    const auto sequence = static_cast<int64_t>(b);
    const Sequence& s = plan.sequences[b];
    for (int64_t head = 0; head < plan.query.n; ++head) {
      for (int64_t i0 = 0; i0 < s.s1; i0 += plan.tiling.base_m) {
        BlockRow row{sequence, head, i0, std::min(plan.tiling.base_m, s.s1 - i0), {}};
        for (int64_t j0 = 0; j0 < s.s2; j0 += plan.tiling.base_n) {
          BlockRow::Column c{j0, std::min(plan.tiling.base_n, s.s2 - j0), false};
          const BlockMask mask = plan.masks().block_mask(sequence, row.block(c));
          c.masked = mask == BlockMask::kPartly;
          if (mask != BlockMask::kAllHidden) row.columns.push_back(c);
        }
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

Shares deal_rows(const std::vector<BlockRow>& rows, const Tiling& tiling) {
  if (tiling.dealing == Dealing::kByRows) return deal_by_rows(rows, tiling);
  std::vector<std::size_t> order(rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return rows[a].columns.size() > rows[b].columns.size();
  });
  Shares shares(static_cast<std::size_t>(tiling.cores));
  using Load = std::pair<std::size_t, std::size_t>;  // blocks, core
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least;
  for (std::size_t core = 0; core < shares.size(); ++core) least.emplace(0, core);
  for (const std::size_t n : order) {
    const auto [blocks, core] = least.top();
    least.pop();
    shares[core].push_back(rows[n]);
    // A row without a block still has its outputs to be written.
    least.emplace(blocks + std::max<std::size_t>(1, rows[n].columns.size()), core);
  }
  return shares;
}

Shares deal_blocks(const std::vector<BlockRow>& rows, const Tiling& tiling) {
  Shares shares(static_cast<std::size_t>(tiling.cores));
  if (tiling.dealing == Dealing::kByRows) {
    const Shares by_rows = deal_by_rows(rows, tiling);
    for (std::size_t core = 0; core < by_rows.size(); ++core) {
      for (const BlockRow& row : by_rows[core])
        add_launches(shares[core], row, 0, row.columns.size(), tiling.blocks_at_once);
    }
    return shares;
  }
  const int64_t total = blocks_of(rows);
  int64_t before = 0;
  std::size_t core = 0;
  const auto end_of = [&](std::size_t of) {
    return total * static_cast<int64_t>(of + 1) / tiling.cores;
  };
  for (const BlockRow& row : rows) {
    for (std::size_t begin = 0; begin < row.columns.size();) {
      while (before == end_of(core)) ++core;
      const auto left = static_cast<std::size_t>(end_of(core) - before);
      const std::size_t end = std::min(row.columns.size(), begin + left);
      add_launches(shares[core], row, begin, end, tiling.blocks_at_once);
      before += static_cast<int64_t>(end - begin);
      begin = end;
    }
  }
  return shares;
}

int64_t blocks_of(const std::vector<BlockRow>& rows) {
  int64_t blocks = 0;
  for (const BlockRow& row : rows) blocks += static_cast<int64_t>(row.columns.size());
  return blocks;
}

int64_t most_blocks(const Shares& dealt) {
  int64_t most = 0;
  for (const auto& share : dealt) most = std::max(most, blocks_of(share));
  return most;
}

}  // namespace attest::vendor::ascend
