#include "spec/mask.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <variant>
#include <vector>

#include "spec/problem.h"

namespace attest {
namespace {

// One line a query, 'x' where it sees the key.
std::string draw(const Mask& mask, const Lengths& lengths, Index batch = 0, Index head = 0) {
  std::string picture;
  for (Index query = 0; query < lengths.query; ++query) {
    for (Index key = 0; key < lengths.key; ++key) {
      const Position position{.batch = batch, .head = head, .query = query, .key = key};
      picture += mask.allows(position, lengths) ? 'x' : '.';
    }
    picture += '\n';
  }
  return picture;
}

constexpr Anchor kTopLeft = Anchor::top_left;
constexpr Anchor kBottomRight = Anchor::bottom_right;

TEST(MaskTest, FullSeesEveryKey) {
  EXPECT_EQ(draw(Mask::full(), {.query = 2, .key = 3}), "xxx\nxxx\n");
}

TEST(MaskTest, CausalTopLeftStartsAtTheFirstKey) {
  EXPECT_EQ(draw(Mask::causal(kTopLeft), {.query = 3, .key = 5}), "x....\nxx...\nxxx..\n");
  EXPECT_EQ(draw(Mask::causal(kTopLeft), {.query = 5, .key = 3}), "x..\nxx.\nxxx\nxxx\nxxx\n");
}

TEST(MaskTest, CausalBottomRightPutsTheLastQueryOntoTheLastKey) {
  EXPECT_EQ(draw(Mask::causal(kBottomRight), {.query = 3, .key = 5}), "xxx..\nxxxx.\nxxxxx\n");
}

TEST(MaskTest, CausalLeavesFirstRowsEmptyWhenQueriesOutnumberKeys) {
  EXPECT_EQ(draw(Mask::causal(kBottomRight), {.query = 5, .key = 3}), "...\n...\nx..\nxx.\nxxx\n");
}

TEST(MaskTest, OffsetMovesTheDiagonalTowardsLaterKeys) {
  EXPECT_EQ(draw(Mask::causal(kTopLeft, 1), {.query = 3, .key = 3}), "xx.\nxxx\nxxx\n");
  EXPECT_EQ(draw(Mask::causal(kTopLeft, -2), {.query = 3, .key = 3}), "...\n...\nx..\n");
  EXPECT_EQ(draw(Mask::causal(kBottomRight, -1), {.query = 3, .key = 3}), "...\nx..\nxx.\n");
}

TEST(MaskTest, WindowIncludesBothOfItsEnds) {
  EXPECT_EQ(draw(Mask::window(1, 0, kTopLeft), {.query = 4, .key = 4}), "x...\nxx..\n.xx.\n..xx\n");
  EXPECT_EQ(draw(Mask::window(0, 2, kTopLeft), {.query = 3, .key = 4}), "xxx.\n.xxx\n..xx\n");
  EXPECT_EQ(draw(Mask::window(0, 0, kBottomRight), {.query = 2, .key = 4}), "..x.\n...x\n");
  EXPECT_EQ(draw(Mask::window(kUnbounded, kUnbounded, kTopLeft), {.query = 1, .key = 3}), "xxx\n");
}

TEST(MaskTest, EveryRowOfABandIsTheRangeBetweenItsEnds) {
  const std::vector<Index> widths = {0, 1, 2, kUnbounded};
  for (Index queries = 0; queries <= 5; ++queries)
    for (Index keys = 0; keys <= 5; ++keys)
      for (const Anchor anchor : {kTopLeft, kBottomRight})
        for (Index offset = -6; offset <= 6; ++offset)
          for (const Index left : widths)
            for (const Index right : widths) {
              const Mask mask = Mask::window(left, right, anchor, offset);
              std::string expected;
              for (Index query = 0; query < queries; ++query) {
                // On the diagonal sits key query + offset, counted from the chosen corner.
                const Index diagonal =
                    anchor == kTopLeft ? query + offset : keys - (queries - query) + offset;
                const Index begin =
                    left == kUnbounded ? 0 : std::clamp<Index>(diagonal - left, 0, keys);
                const Index end =
                    right == kUnbounded ? keys : std::clamp<Index>(diagonal + right + 1, 0, keys);
                std::string row(static_cast<std::size_t>(keys), '.');
                for (Index key = begin; key < end; ++key) row[static_cast<std::size_t>(key)] = 'x';
                expected += row + '\n';
              }
              ASSERT_EQ(draw(mask, {.query = queries, .key = keys}), expected)
                  << to_string(mask) << " q" << queries << " k" << keys;
            }
}

TEST(MaskTest, CausalIsTheWindowWithoutALeftEnd) {
  for (const Anchor anchor : {kTopLeft, kBottomRight}) {
    EXPECT_EQ(draw(Mask::causal(anchor, 2), {.query = 7, .key = 4}),
              draw(Mask::window(kUnbounded, 0, anchor, 2), {.query = 7, .key = 4}));
  }
}

TEST(MaskTest, AxesOfSizeOneOfADenseMaskHoldForAllPositions) {
  const Shape whole = {2, 3, 2, 4};
  for (unsigned broadcast = 0; broadcast < 16; ++broadcast) {
    DenseMask table;
    for (std::size_t axis = 0; axis < 4; ++axis) {
      table.shape[axis] = broadcast >> axis & 1 ? 1 : whole[axis];
    }
    for (Index element = 0; element < element_count(table.shape); ++element) {
      table.allowed.push_back(static_cast<std::uint8_t>(element * 7 % 3 == 0));
    }
    const Mask mask = Mask::dense(table);
    for (Index b = 0; b < whole[0]; ++b)
      for (Index h = 0; h < whole[1]; ++h)
        for (Index i = 0; i < whole[2]; ++i)
          for (Index j = 0; j < whole[3]; ++j) {
            Index element = 0;  // in the table, row by row
            const Index place[] = {b, h, i, j};
            for (std::size_t axis = 0; axis < 4; ++axis) {
              element = element * table.shape[axis] + (broadcast >> axis & 1 ? 0 : place[axis]);
            }
            ASSERT_EQ(
                mask.allows({.batch = b, .head = h, .query = i, .key = j}, {.query = 2, .key = 4}),
                element * 7 % 3 == 0)
                << broadcast;
          }
  }
}

TEST(MaskTest, PrefixIsSeenByAllQueriesOfItsBatchElement) {
  const Mask own = Mask::prefix({3, 0});
  EXPECT_EQ(draw(own, {.query = 2, .key = 4}, 0), "xxx.\nxxx.\n");
  EXPECT_EQ(draw(own, {.query = 2, .key = 4}, 1), "....\n....\n");
  EXPECT_EQ(draw(Mask::prefix({1}), {.query = 1, .key = 3}, 5), "x..\n") << "one for all";
}

TEST(MaskTest, SegmentsSeeEqualNumbersAndNegativeOnesSeeNothing) {
  const Mask own =
      Mask::documents({.query = {.batches = 1, .length = 3, .number = {7, -1, 0}},
                       .key = {.batches = 2, .length = 4, .number = {7, 0, 7, -1, 0, 0, -7, 7}}});
  EXPECT_EQ(draw(own, {.query = 3, .key = 4}, 0), "x.x.\n....\n.x..\n");
  EXPECT_EQ(draw(own, {.query = 3, .key = 4}, 1), "...x\n....\nxx..\n");
}

TEST(MaskTest, BlocksCountFromTheFirstQueryAndKeyAndTheLastOnesAreCut) {
  const Mask mask =
      Mask::block_sparse(2, 3, {.shape = {1, 2, 2, 2}, .allowed = {1, 0, 0, 1, 0, 1, 1, 0}});
  EXPECT_EQ(draw(mask, {.query = 3, .key = 5}, 0, 0), "xxx..\nxxx..\n...xx\n");
  EXPECT_EQ(draw(mask, {.query = 3, .key = 5}, 4, 1), "...xx\n...xx\nxxx..\n");
}

TEST(MaskTest, ABlockOfOneElementIsADenseMask) {
  const DenseMask table{.shape = {1, 1, 3, 4}, .allowed = {1, 0, 0, 1, 0, 1, 1, 0, 1, 1, 0, 1}};
  EXPECT_EQ(draw(Mask::block_sparse(1, 1, table), {.query = 3, .key = 4}),
            draw(Mask::dense(table), {.query = 3, .key = 4}));
}

TEST(MaskTest, DilationStepsFromTheDiagonalToEitherSide) {
  EXPECT_EQ(draw(Mask::dilated(2, kTopLeft), {.query = 3, .key = 5}), "x.x.x\n.x.x.\nx.x.x\n");
  EXPECT_EQ(draw(Mask::dilated(3, kTopLeft, 1), {.query = 3, .key = 5}), ".x..x\n..x..\nx..x.\n");
  EXPECT_EQ(draw(Mask::dilated(3, kBottomRight), {.query = 2, .key = 5}), "x..x.\n.x..x\n");
  EXPECT_EQ(draw(Mask::dilated(1, kTopLeft), {.query = 1, .key = 3}), "xxx\n");
}

// The remainder of a negative number is where a dilation breaks: here it is counted instead.
TEST(MaskTest, EveryKeyOfADilationIsAMultipleAwayFromTheDiagonal) {
  for (Index dilation = 1; dilation <= 4; ++dilation)
    for (const Anchor anchor : {kTopLeft, kBottomRight})
      for (Index offset = -9; offset <= 9; ++offset) {
        const Lengths lengths{.query = 4, .key = 6};
        std::string expected;
        for (Index query = 0; query < lengths.query; ++query) {
          const Index diagonal = query + offset + (anchor == kBottomRight ? 2 : 0);
          std::string row(6, '.');
          for (Index step = -30; step <= 30; ++step) {
            const Index key = diagonal + step * dilation;
            if (key >= 0 && key < 6) row[static_cast<std::size_t>(key)] = 'x';
          }
          expected += row + '\n';
        }
        ASSERT_EQ(draw(Mask::dilated(dilation, anchor, offset), lengths), expected)
            << dilation << " offset " << offset;
      }
}

TEST(MaskTest, PrefixOrCausalSeesThePrefixAndThePast) {
  const Mask mask = Mask::any_of({Mask::prefix({2}), Mask::causal(kTopLeft)});
  EXPECT_EQ(draw(mask, {.query = 4, .key = 4}), "xx..\nxx..\nxxx.\nxxxx\n");
}

TEST(MaskTest, TrueAttends) {
  const Mask mask = Mask::dense({.shape = {1, 1, 2, 2}, .allowed = {1, 0, 0, 1}});
  EXPECT_EQ(draw(mask, {.query = 2, .key = 2}), "x.\n.x\n");
}

// Masks enough to tell the laws of sets from others.
std::vector<Mask> samples() {
  return {Mask::full(),
          Mask::causal(kTopLeft),
          Mask::causal(kBottomRight),
          Mask::window(1, 1, kTopLeft, 1),
          Mask::prefix({2}),
          Mask::dilated(2, kBottomRight),
          Mask::documents({.query = {.batches = 1, .length = 3, .number = {0, 1, -1}},
                           .key = {.batches = 1, .length = 4, .number = {1, 0, 1, -1}}}),
          Mask::block_sparse(2, 3, {.shape = {1, 1, 2, 2}, .allowed = {1, 0, 0, 1}}),
          Mask::dense({.shape = {1, 1, 1, 4}, .allowed = {0, 1, 1, 0}})};
}

TEST(MaskTest, IntersectionAndUnionObeyTheLawsOfSets) {
  const Lengths lengths{.query = 3, .key = 4};
  const auto equal = [&](const Mask& a, const Mask& b) {
    return draw(a, lengths) == draw(b, lengths);
  };
  const Mask none = Mask::any_of({});
  EXPECT_EQ(draw(none, lengths), "....\n....\n....\n");
  EXPECT_TRUE(equal(Mask::all_of({}), Mask::full()));
  for (const Mask& a : samples()) {
    EXPECT_TRUE(equal(Mask::all_of({a, a}), a));
    EXPECT_TRUE(equal(Mask::any_of({a, a}), a));
    EXPECT_TRUE(equal(Mask::all_of({a, Mask::full()}), a));
    EXPECT_TRUE(equal(Mask::any_of({a, none}), a));
    EXPECT_TRUE(equal(Mask::any_of({a, Mask::full()}), Mask::full()));
    EXPECT_TRUE(equal(Mask::all_of({a, none}), none));
    for (const Mask& b : samples()) {
      EXPECT_TRUE(equal(Mask::all_of({a, b}), Mask::all_of({b, a})));
      EXPECT_TRUE(equal(Mask::any_of({a, b}), Mask::any_of({b, a})));
      EXPECT_TRUE(equal(Mask::all_of({a, Mask::any_of({a, b})}), a));
      for (const Mask& c : samples()) {
        EXPECT_TRUE(equal(Mask::all_of({a, b, c}), Mask::all_of({a, Mask::all_of({b, c})})));
        EXPECT_TRUE(equal(Mask::all_of({a, Mask::any_of({b, c})}),
                          Mask::any_of({Mask::all_of({a, b}), Mask::all_of({a, c})})));
      }
    }
  }
}

TEST(MaskTest, IntersectionIsNotUnion) {
  const Mask past = Mask::causal(kTopLeft), future = Mask::window(0, kUnbounded, kTopLeft);
  EXPECT_EQ(draw(Mask::all_of({past, future}), {.query = 3, .key = 3}), "x..\n.x.\n..x\n");
  EXPECT_EQ(draw(Mask::any_of({past, future}), {.query = 3, .key = 3}), "xxx\nxxx\nxxx\n");
}

// The picture of what takes part of one batch element.
std::string draw_visible(const Problem& problem, Index batch) {
  std::string picture;
  for (Index query = 0; query < problem.query_len; ++query) {
    for (Index key = 0; key < problem.key_len; ++key) {
      picture += visible(problem, {.batch = batch, .query = query, .key = key}) ? 'x' : '.';
    }
    picture += '\n';
  }
  return picture;
}

TEST(MaskTest, LengthsHideWhatLiesBeyondThemAndMoveTheBottomRightCorner) {
  Problem problem{.batch = 3,
                  .query_len = 3,
                  .key_len = 4,
                  .mask = Mask::causal(kBottomRight),
                  .key_lens = {4, 2, 0},
                  .query_lens = {3, 2, 3}};
  EXPECT_EQ(draw_visible(problem, 0), "xx..\nxxx.\nxxxx\n");
  EXPECT_EQ(draw_visible(problem, 1), "x...\nxx..\n....\n") << "klen 2 - qlen 2 = 0";
  EXPECT_EQ(draw_visible(problem, 2), "....\n....\n....\n");
  problem.mask = Mask::causal(kTopLeft);
  EXPECT_EQ(draw_visible(problem, 1), "x...\nxx..\n....\n");
  problem.query_lens = {};
  EXPECT_EQ(draw_visible(problem, 1), "x...\nxx..\nxx..\n");
  problem.mask = Mask::causal(kBottomRight);
  EXPECT_EQ(draw_visible(problem, 1), "....\nx...\nxx..\n") << "qlen is Sq unless given";
  problem.mask = Mask::full();
  EXPECT_EQ(draw_visible(problem, 1), "xx..\nxx..\nxx..\n");
}

TEST(MaskTest, TablesStandInTheOrderOfTheTree) {
  const Mask blocks = Mask::block_sparse(2, 2, {.shape = {1, 1, 1, 2}, .allowed = {1, 0}});
  const Mask documents = Mask::documents({.query = {.batches = 1, .length = 2, .number = {0, 1}},
                                          .key = {.batches = 1, .length = 3, .number = {0, 1, 1}}});
  const Mask mask = Mask::all_of({Mask::causal(kTopLeft), Mask::any_of({documents, blocks}),
                                  Mask::prefix({3, 5}), Mask::dilated(3, kTopLeft)});
  std::vector<Shape> shapes;
  for (const MaskTable& table : tables_of(mask)) shapes.push_back(table.shape);
  EXPECT_EQ(shapes, (std::vector<Shape>{{1, 1, 2, 1}, {1, 1, 3, 1}, {1, 1, 1, 2}, {2, 1, 1, 1}}));
  const auto* prefixes = std::get<const std::vector<Index>*>(tables_of(mask).back().elements);
  EXPECT_EQ(*prefixes, (std::vector<Index>{3, 5}));
  EXPECT_TRUE(tables_of(Mask::full()).empty());
}

TEST(MaskTest, IsNamedInOneLine) {
  EXPECT_EQ(to_string(Mask::full()), "full");
  EXPECT_EQ(to_string(Mask::causal(kBottomRight)), "causal bottom_right");
  EXPECT_EQ(to_string(Mask::window(16, 0, kTopLeft, 3)), "window -16..0 top_left offset=3");
  EXPECT_EQ(to_string(Mask::window(kUnbounded, 2, kTopLeft)), "window *..2 top_left");
  EXPECT_EQ(to_string(Mask::dense({.shape = {1, 2, 8, 8}, .allowed = {}})), "dense [1,2,8,8]");
  EXPECT_EQ(to_string(Mask::prefix({3, 5})), "prefix [3,5]");
  EXPECT_EQ(to_string(Mask::documents({})), "segments");
  EXPECT_EQ(to_string(Mask::block_sparse(16, 32, {.shape = {1, 1, 4, 2}, .allowed = {}})),
            "block_sparse 16x32 [1,1,4,2]");
  EXPECT_EQ(to_string(Mask::dilated(3, kBottomRight, -1)), "dilated 3 bottom_right offset=-1");
  EXPECT_EQ(
      to_string(Mask::any_of({Mask::full(), Mask::all_of({Mask::causal(kTopLeft), Mask::full()})})),
      "(full or (causal top_left and full))");
}

}  // namespace
}  // namespace attest
