#include "impl/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <set>
#include <utility>

#include "spec/attest_plugin.h"

namespace attest::impl {
namespace {

using ::testing::ElementsAre;

using Index = std::int64_t;
using Blocks = std::multiset<std::pair<Index, Index>>;  // row, block of keys

Blocks blocks_of(const std::vector<BlockRow>& rows) {
  Blocks blocks;
  for (const BlockRow& row : rows) {
    for (Index key = row.keys.begin; key < row.keys.end; ++key) blocks.insert({row.row, key});
  }
  return blocks;
}

// By definition: the blocks in which any query sees any key.
Blocks blocks_with_scores(const BandOfScores& band, Index query_block, Index key_block) {
  std::set<std::pair<Index, Index>> blocks;
  for (Index i = 0; i < band.queries; ++i) {
    for (Index j = 0; j < band.keys; ++j) {
      const Index distance = j - (i + band.shift);
      if (-band.left <= distance && distance <= band.right) {
        blocks.insert({i / query_block, j / key_block});
      }
    }
  }
  return Blocks(blocks.begin(), blocks.end());
}

// The lower triangle of rows of 1, 2, 3... blocks.
std::vector<BlockRow> triangle(Index rows) {
  return needed_blocks({.queries = rows, .keys = rows, .left = rows, .right = 0, .shift = 0}, 1, 1);
}

// The n blocks of a row, of 1 score each.
Index one_each(const BlockRow& /*row*/, Index n) { return n; }

// The work of each worker, of rows whose work is their number and one.
struct Loads {
  Index longest = 0, shortest = std::numeric_limits<Index>::max(), all = 0;

  void add(Index load) {
    longest = std::max(longest, load);
    shortest = std::min(shortest, load);
    all += load;
  }
  double imbalance(Index workers) const {
    return static_cast<double>(longest * workers) / static_cast<double>(all);
  }
};

Loads contiguous_loads(Index rows, Index workers) {
  Loads loads;
  for (Index worker = 0; worker < workers; ++worker) {
    const Range share = contiguous_share(rows, workers, worker);
    Index load = 0;
    for (Index row = share.begin; row < share.end; ++row) load += row + 1;
    loads.add(load);
  }
  return loads;
}

Loads even_loads(const std::vector<BlockRow>& rows, Index workers) {
  Loads loads;
  for (const auto& share : even_shares(rows, workers, one_each)) {
    loads.add(static_cast<Index>(blocks_of(share).size()));
  }
  return loads;
}

// ---- What is needed ----------------------------------------------------------------------------

TEST(ScheduleTest, NeededAreExactlyTheBlocksWithAVisibleScore) {
  for (Index queries = 0; queries <= 7; ++queries) {
    for (Index keys = 0; keys <= 7; ++keys) {
      for (const Index query_block : {1, 2, 3, 8}) {
        for (const Index key_block : {1, 2, 3, 8}) {
          for (Index shift = -8; shift <= 8; ++shift) {
            for (const Index left : {0, 1, 3, 20}) {
              for (const Index right : {0, 1, 3, 20}) {
                const BandOfScores band = {queries, keys, left, right, shift};
                ASSERT_EQ(blocks_of(needed_blocks(band, query_block, key_block)),
                          blocks_with_scores(band, query_block, key_block))
                    << queries << " " << keys << " " << query_block << " " << key_block << " "
                    << shift << " " << left << " " << right;
              }
            }
          }
        }
      }
    }
  }
}

RC_GTEST_PROP(ScheduleTest, NeededAreTheRightBlocksOfLargerBandsToo, ()) {
  const BandOfScores band = {*rc::gen::inRange<Index>(0, 150), *rc::gen::inRange<Index>(0, 150),
                             *rc::gen::inRange<Index>(0, 200), *rc::gen::inRange<Index>(0, 200),
                             *rc::gen::inRange<Index>(-200, 200)};
  const Index query_block = *rc::gen::inRange<Index>(1, 70);
  const Index key_block = *rc::gen::inRange<Index>(1, 70);
  RC_ASSERT(blocks_of(needed_blocks(band, query_block, key_block)) ==
            blocks_with_scores(band, query_block, key_block));
}

TEST(ScheduleTest, BandsWithoutBoundNeedWhatTheirOtherSideLeaves) {
  constexpr Index kUnbounded = ATTEST_UNBOUNDED;
  EXPECT_THAT(needed_blocks({4, 4, kUnbounded, 0, 0}, 2, 2),
              ElementsAre(BlockRow{0, {0, 1}}, BlockRow{1, {0, 2}}));
  EXPECT_THAT(needed_blocks({4, 4, 0, kUnbounded, 0}, 2, 2),
              ElementsAre(BlockRow{0, {0, 2}}, BlockRow{1, {1, 2}}));
  EXPECT_THAT(needed_blocks({4, 3, kUnbounded, kUnbounded, 0}, 4, 2),
              ElementsAre(BlockRow{0, {0, 2}}));
}

// ---- Who computes it ---------------------------------------------------------------------------

TEST(ScheduleTest, ContiguousSharesPutTogetherAreAllAndDifferByOneAtMost) {
  for (Index units = 0; units <= 100; ++units) {
    for (Index workers = 1; workers <= 20; ++workers) {
      Index next = 0;
      for (Index worker = 0; worker < workers; ++worker) {
        const Range share = contiguous_share(units, workers, worker);
        ASSERT_EQ(share.begin, next);
        ASSERT_LE(std::abs(share.size() * workers - units), workers);
        next = share.end;
      }
      ASSERT_EQ(next, units);
    }
  }
}

TEST(ScheduleTest, ContiguousHalvesOfATriangleAreOneAndAHalfTimesTheMean) {
  EXPECT_NEAR(contiguous_loads(64, 2).imbalance(2), 1.5, 0.01);
  EXPECT_NEAR(even_loads(triangle(64), 2).imbalance(2), 1, 0.001);
}

TEST(ScheduleTest, EvenSharesPutTogetherAreAllBlocksInOrderAndDifferByOneAtMost) {
  for (Index rows = 0; rows <= 24; ++rows) {
    for (const Index columns : {Index(1), rows / 2, rows, rows + 7}) {
      for (const Index left : {Index(0), Index(2), Index(100)}) {
        const auto needed = needed_blocks({rows, columns, left, 0, columns - rows}, 1, 1);
        const Blocks all = blocks_of(needed);
        for (Index workers = 1; workers <= 20; ++workers) {
          Blocks dealt;
          Loads loads;
          std::pair<Index, Index> last = {-1, -1};
          for (const auto& share : even_shares(needed, workers, one_each)) {
            const Blocks mine = blocks_of(share);
            loads.add(static_cast<Index>(mine.size()));
            if (mine.empty()) continue;
            ASSERT_LT(last, *mine.begin());
            last = *mine.rbegin();
            dealt.insert(mine.begin(), mine.end());
          }
          ASSERT_EQ(dealt, all);
          ASSERT_LE(loads.longest - loads.shortest, 1);
        }
      }
    }
  }
}

BandOfScores any_band(Index size) {
  const auto width = [&] { return *rc::gen::element<Index>(0, 3, size / 2, ATTEST_UNBOUNDED); };
  return {*rc::gen::inRange<Index>(0, size), *rc::gen::inRange<Index>(0, size), width(), width(),
          *rc::gen::inRange<Index>(-size, size)};
}

RC_GTEST_PROP(ScheduleTest, EvenSharesOfAnyBandAreAllBlocksOnceAndDifferByOneAtMost, ()) {
  const BandOfScores band = any_band(150);
  const Index query_block = *rc::gen::inRange<Index>(1, 70);
  const Index key_block = *rc::gen::inRange<Index>(1, 70);
  const auto rows = needed_blocks(band, query_block, key_block);
  const auto scores = [&](const BlockRow& row, Index n) {
    return scores_in(band, query_block, key_block, row, n);
  };
  Index all = 0, largest = 0;
  for (const BlockRow& row : rows) {
    all += scores(row, row.keys.size());
    for (Index n = 0; n < row.keys.size(); ++n) {
      largest = std::max(largest, scores(row, n + 1) - scores(row, n));
    }
  }
  const Index workers = *rc::gen::inRange<Index>(1, 70);
  Blocks dealt;
  for (const auto& share : even_shares(rows, workers, scores)) {
    Index mine = 0;
    for (const BlockRow& row : share) mine += scores(row, row.keys.size());
    RC_ASSERT(std::abs(mine - all / workers) <= largest + 1);
    dealt.merge(blocks_of(share));
  }
  RC_ASSERT(dealt == blocks_of(rows));
}

RC_GTEST_PROP(ScheduleTest, ScoresOfBlocksAreThoseThatAreVisible, ()) {
  const BandOfScores band = any_band(40);
  const Index query_block = *rc::gen::inRange<Index>(1, 20);
  const Index key_block = *rc::gen::inRange<Index>(1, 20);
  for (const BlockRow& row : needed_blocks(band, query_block, key_block)) {
    for (Index n = 0; n <= row.keys.size(); ++n) {
      Index visible = 0;
      for (Index i = row.row * query_block; i < std::min((row.row + 1) * query_block, band.queries);
           ++i) {
        for (Index j = row.keys.begin * key_block;
             j < std::min((row.keys.begin + n) * key_block, band.keys); ++j) {
          const Index distance = j - (i + band.shift);
          visible += -band.left <= distance && distance <= band.right;
        }
      }
      RC_ASSERT(scores_in(band, query_block, key_block, row, n) == visible);
    }
  }
}

// Eight rows on nine cores: by rows the longest core has the eight blocks of the last row, and one
// core nothing.
TEST(ScheduleTest, ATriangleOfEightRowsIsFourBlocksForEachOfNineWorkers) {
  const auto rows = triangle(8);
  EXPECT_EQ(blocks_of(rows).size(), 36u);
  EXPECT_EQ(contiguous_loads(8, 9).longest, 8);
  const Loads loads = even_loads(rows, 9);
  EXPECT_EQ(loads.longest, 4);
  EXPECT_EQ(loads.shortest, 4);
}

// ---- Splits ------------------------------------------------------------------------------------

TEST(ScheduleTest, PartsPutTogetherAreAllKeysInOrderAndDifferByAChunkAtMost) {
  for (Index keys = 0; keys <= 90; ++keys) {
    for (const Index chunk : {1, 2, 3, 8, 64}) {
      for (Index splits = 1; splits <= 30; ++splits) {
        Index next = 0, longest = 0, shortest = keys;
        for (Index split = 0; split < splits; ++split) {
          const Range part = split_of_keys(keys, chunk, splits, split);
          ASSERT_EQ(part.begin, next) << keys << " " << chunk << " " << splits;
          ASSERT_GE(part.size(), 0);
          ASSERT_TRUE(part.end % chunk == 0 || part.end == keys);
          const Index chunks = (part.size() + chunk - 1) / chunk;
          longest = std::max(longest, chunks);
          shortest = std::min(shortest, chunks);
          next = part.end;
        }
        ASSERT_EQ(next, keys);
        ASSERT_LE(longest - shortest, 1);
      }
    }
  }
}

double busy(Index tasks, Index workers) {
  const Index waves = (tasks + workers - 1) / workers;
  return static_cast<double>(tasks) / static_cast<double>(waves * workers);
}

TEST(ScheduleTest, SplitsKeepWorkersNearlyAsBusyAsTheyCanBeAndNoFewerDo) {
  for (Index units = 1; units <= 130; ++units) {
    for (Index workers = 1; workers <= 128; workers += workers < 16 ? 1 : 9) {
      for (const Index most : {1, 2, 3, 8, 30}) {
        const Index splits = split_count(units, workers, most);
        ASSERT_TRUE(1 <= splits && splits <= most);
        double best = 0;
        for (Index n = 1; n <= most; ++n) best = std::max(best, busy(units * n, workers));
        ASSERT_GE(busy(units * splits, workers), 0.95 * best);
        for (Index n = 1; n < splits; ++n) ASSERT_LT(busy(units * n, workers), 0.95 * best);
      }
    }
  }
}

TEST(ScheduleTest, SplitsAreTakenOnlyWhereHeadsLeaveWorkersIdle) {
  EXPECT_EQ(split_count(48, 108, 8), 2);  // 96 tasks of 108; three splits would make 144 of 216
  EXPECT_EQ(split_count(108, 108, 30), 1);
  EXPECT_EQ(split_count(1, 8, 30), 8);
  EXPECT_EQ(split_count(1, 8, 3), 3);  // as many as there are keys to split
  EXPECT_EQ(split_count(2, 2, 30), 1);
  EXPECT_EQ(split_count(1000, 8, 30), 1);
  EXPECT_EQ(split_count(0, 8, 30), 1);
  EXPECT_EQ(split_count(5, 1, 30), 1);
}

}  // namespace
}  // namespace attest::impl
