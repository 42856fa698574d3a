#include "impl/mask.h"

#include <gtest/gtest.h>

#include "spec/problem.h"
#include "tests/impl/host.h"

namespace attest {
namespace {

// A table with a pattern of no regularity, all of one value in some rows.
Mask speckled(const Shape& shape) {
  DenseMask table{shape, {}};
  for (Index i = 0; i < element_count(shape); ++i) {
    table.allowed.push_back((static_cast<std::uint32_t>(i + 7) * 2654435761u >> 28) < 9);
  }
  return Mask::dense(table);
}

// Every block of the problem is classified as its elements, by definition, demand.
void expect_exact(const Problem& p) {
  const HostProblem host(p);
  impl::Call call;
  call.mask.assign(host.get()->mask, host.get()->mask + host.get()->mask_count);
  for (Index b = 0; b < p.batch; ++b) {
    call.lengths.push_back({p.lengths(b).query, p.lengths(b).key});
  }
  impl::BlockMask mask(call);
  std::vector<std::uint8_t> seen(static_cast<std::size_t>(p.query_len * p.key_len));
  for (Index b = 0; b < p.batch; ++b) {
    const Lengths lengths = p.lengths(b);
    for (Index h = 0; h < p.query_heads; ++h) {
      for (Index q0 = 0; q0 < lengths.query; ++q0) {
        for (Index q1 = q0 + 1; q1 <= lengths.query; ++q1) {
          for (Index k0 = 0; k0 < lengths.key; ++k0) {
            for (Index k1 = k0 + 1; k1 <= lengths.key; ++k1) {
              const impl::Block block{q0, q1, k0, k1};
              std::vector<std::uint8_t> demanded;
              Index count = 0;
              for (Index i = q0; i < q1; ++i) {
                for (Index j = k0; j < k1; ++j) {
                  demanded.push_back(visible(p, {.batch = b, .head = h, .query = i, .key = j}));
                  count += demanded.back();
                }
              }
              const auto whole = static_cast<Index>(demanded.size());
              const auto expected = count == 0       ? impl::Coverage::empty
                                    : count == whole ? impl::Coverage::full
                                                     : impl::Coverage::partial;
              ASSERT_EQ(mask.cover(b, h, block, seen.data()), expected) << to_string(p);
              if (expected != impl::Coverage::partial) continue;
              for (std::size_t n = 0; n < demanded.size(); ++n) {
                ASSERT_EQ(seen[n], demanded[n]) << to_string(p);
              }
            }
          }
        }
      }
    }
  }
}

void expect_exact_for_small_shapes(const Mask& mask, const Problem& base = {}) {
  for (Index queries = 1; queries <= 5; ++queries) {
    for (Index keys = 1; keys <= 5; ++keys) {
      Problem p = base;
      p.query_len = queries;
      p.key_len = keys;
      p.mask = mask;
      expect_exact(p);
    }
  }
}

constexpr Anchor kAnchors[] = {Anchor::top_left, Anchor::bottom_right};

TEST(BlockMaskTest, FullIsFullEverywhere) { expect_exact_for_small_shapes(Mask::full()); }

TEST(BlockMaskTest, BandsAreExactForAllWidthsAndOffsets) {
  for (const Anchor anchor : kAnchors) {
    for (const Index left : {Index(0), Index(1), Index(3), kUnbounded - 1, kUnbounded}) {
      for (const Index right : {Index(0), Index(2), kUnbounded - 1, kUnbounded}) {
        for (const Index offset : {Index(-6), Index(-2), Index(0), Index(1), Index(7),
                                   Index(1) << 40, -(Index(1) << 40)}) {
          expect_exact_for_small_shapes(Mask::window(left, right, anchor, offset));
        }
      }
    }
  }
}

TEST(BlockMaskTest, TheBottomRightIsThatOfTheLengths) {
  for (Index queries = 0; queries <= 4; ++queries) {
    for (Index keys = 0; keys <= 4; ++keys) {
      expect_exact({.batch = 2,
                    .query_len = 4,
                    .key_len = 4,
                    .mask = Mask::window(1, 0, Anchor::bottom_right),
                    .key_lens = {keys, 3},
                    .query_lens = {queries, 4}});
    }
  }
}

TEST(BlockMaskTest, TablesBroadcastOverEveryAxis) {
  for (int axes = 0; axes < 16; ++axes) {
    const Problem p{.batch = 2, .query_heads = 3, .key_heads = 1, .query_len = 4, .key_len = 5};
    const Shape whole{p.batch, p.query_heads, p.query_len, p.key_len};
    Shape shape{};
    for (std::size_t axis = 0; axis < 4; ++axis) shape[axis] = axes >> axis & 1 ? 1 : whole[axis];
    Problem masked = p;
    masked.mask = speckled(shape);
    expect_exact(masked);
  }
}

TEST(BlockMaskTest, PrefixesAreExactForEachBatchElement) {
  for (Index first = 0; first <= 5; ++first) {
    for (const std::vector<Index>& lens : {std::vector<Index>{first}, {first, 3}}) {
      expect_exact({.batch = 2, .query_len = 3, .key_len = 5, .mask = Mask::prefix(lens)});
    }
  }
}

TEST(BlockMaskTest, SegmentsAreExactInAnyOrderAndNegativeNumbersSeeNothing) {
  const SegmentNumbers queries{2, 5, {0, 0, -1, 2, 0, 1, 1, 1, -2, 7}};
  for (const SegmentNumbers& keys :
       {queries, SegmentNumbers{1, 5, {0, 0, 0, 0, 0}}, SegmentNumbers{1, 5, {-1, -1, 2, -1, -2}},
        SegmentNumbers{2, 5, {2, 1, 0, 1, 2, 1, 1, 7, 7, 7}}}) {
    expect_exact(
        {.batch = 2, .query_len = 5, .key_len = 5, .mask = Mask::documents({queries, keys})});
  }
}

TEST(BlockMaskTest, BlockSparseMasksAreExactForAllSizesOfTheirBlocks) {
  for (Index rows = 1; rows <= 6; ++rows) {
    for (Index columns = 1; columns <= 6; ++columns) {
      for (const Index batch : {1, 2}) {
        const Shape shape{batch, 3 - batch, (5 + rows - 1) / rows, (4 + columns - 1) / columns};
        const Mask table = speckled(shape);
        expect_exact({.batch = 2,
                      .query_heads = 2,
                      .query_len = 5,
                      .key_len = 4,
                      .mask = Mask::block_sparse(rows, columns, *table.table),
                      .key_lens = {4, 3}});
      }
    }
  }
}

TEST(BlockMaskTest, DilationsAreExactOnBothSidesOfTheDiagonal) {
  for (const Anchor anchor : kAnchors) {
    for (const Index dilation : {Index(1), Index(2), Index(3), Index(4), kUnbounded}) {
      for (const Index offset : {Index(-7), Index(-1), Index(0), Index(2), -(Index(1) << 40)}) {
        expect_exact_for_small_shapes(Mask::dilated(dilation, anchor, offset));
      }
    }
  }
}

TEST(BlockMaskTest, IntersectionsAndUnionsAreExactWhereTheirPartsArePartial) {
  const Mask causal = Mask::causal(Anchor::bottom_right);
  const Mask ahead = Mask::window(0, 3, Anchor::top_left, 1);
  const Mask wide = Mask::window(2, 2, Anchor::top_left);
  const Mask table = speckled({1, 1, 5, 5});
  const Mask documents = Mask::documents({{1, 5, {0, 0, 1, 1, -1}}, {1, 5, {0, 1, 1, 0, -1}}});
  const Mask blocks = Mask::block_sparse(2, 3, {{1, 1, 3, 2}, {1, 0, 0, 1, 1, 1}});
  const Mask dilated = Mask::dilated(2, Anchor::bottom_right, 1);
  const Mask never = Mask::dense({{1, 1, 1, 1}, {0}});
  const Mask always = Mask::dense({{1, 1, 1, 1}, {1}});
  Problem p{.query_len = 5, .key_len = 5};
  for (const Mask& a :
       {causal, ahead, wide, table, documents, blocks, dilated, never, always, Mask::full()}) {
    for (const Mask& b :
         {causal, ahead, wide, table, documents, blocks, dilated, never, always, Mask::full()}) {
      for (const Mask& mask :
           {Mask::all_of({a, b}), Mask::any_of({a, b}), Mask::all_of({Mask::any_of({a, b}), wide}),
            Mask::any_of({ahead, Mask::all_of({a, b}), never})}) {
        p.mask = mask;
        expect_exact(p);
      }
    }
  }
}

}  // namespace
}  // namespace attest
