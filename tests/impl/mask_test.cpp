#include "impl/mask.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>

#include "impl/whole_mask.h"
#include "spec/problem.h"
#include "tests/impl/any_mask.h"
#include "tests/impl/host.h"

namespace attest {
namespace {

using impl::Coverage;

// A table with a pattern of no regularity, all of one value in some rows.
Mask speckled(const Shape& shape) {
  DenseMask table{shape, {}};
  for (Index i = 0; i < element_count(shape); ++i) {
    table.allowed.push_back((static_cast<std::uint32_t>(i + 7) * 2654435761u >> 28) < 9);
  }
  return Mask::dense(table);
}

// A problem as kernels are called with it.
class MaskCall {
 public:
  explicit MaskCall(const Problem& p) : host_(p) {
    call.problem = *host_.get();
    call.mask.assign(host_.get()->mask, host_.get()->mask + host_.get()->mask_count);
    for (Index b = 0; b < p.batch; ++b) {
      call.lengths.push_back({p.lengths(b).query, p.lengths(b).key});
    }
  }

  impl::Call call;

 private:
  const HostProblem host_;
};

// What the mask is by definition, on one block.
struct Truth {
  Truth(const Problem& p, Index batch, Index head, const impl::Block& block) {
    Index seen = 0;
    for (Index i = block.query_begin; i < block.query_end; ++i) {
      for (Index j = block.key_begin; j < block.key_end; ++j) {
        visible.push_back(attest::visible(p, {.batch = batch, .head = head, .query = i, .key = j}));
        seen += visible.back();
      }
    }
    coverage = seen == 0                                ? Coverage::empty
               : seen == block.queries() * block.keys() ? Coverage::full
                                                        : Coverage::partial;
  }

  Coverage coverage;
  std::vector<std::uint8_t> visible;
};

std::string describe(const Problem& p, const impl::Block& block) {
  return to_string(p) + ": queries " + std::to_string(block.query_begin) + ".." +
         std::to_string(block.query_end) + ", keys " + std::to_string(block.key_begin) + ".." +
         std::to_string(block.key_end);
}

// Calls check(batch, head, block) for all blocks there are, until it answers other than "".
template <class Check>
std::string check_all_blocks(const Problem& p, const Check& check) {
  for (Index b = 0; b < p.batch; ++b) {
    const Lengths lengths = p.lengths(b);
    for (Index h = 0; h < p.query_heads; ++h) {
      for (Index q0 = 0; q0 < lengths.query; ++q0) {
        for (Index q1 = q0 + 1; q1 <= lengths.query; ++q1) {
          for (Index k0 = 0; k0 < lengths.key; ++k0) {
            for (Index k1 = k0 + 1; k1 <= lengths.key; ++k1) {
              const impl::Block block{q0, q1, k0, k1};
              const std::string found = check(b, h, block);
              if (!found.empty()) return found + " in " + describe(p, block);
            }
          }
        }
      }
    }
  }
  return "";
}

// What the classification of blocks owes, beside never being wrong.
enum class Classified {
  safely,   // partial may be said of blocks that are empty or full
  exactly,  // never
};

// Of each block: cover() gives what the definition demands, and classify() is not wrong.
std::string defect(const Problem& p, Classified classified) {
  const MaskCall host(p);
  impl::BlockMask mask(host.call);
  std::vector<std::uint8_t> seen(static_cast<std::size_t>(p.query_len * p.key_len));
  return check_all_blocks(p, [&](Index b, Index h, const impl::Block& block) -> std::string {
    const Truth truth(p, b, h, block);
    const Coverage covered = mask.cover(b, h, block, seen.data());
    if (covered != truth.coverage) return "the wrong coverage";
    if (covered == Coverage::partial &&
        !std::equal(truth.visible.begin(), truth.visible.end(), seen.begin())) {
      return "the wrong elements";
    }
    const Coverage answer = mask.classify(b, h, block);
    if (answer == truth.coverage) return "";
    if (answer != Coverage::partial) return "a wrong class";
    return classified == Classified::exactly ? "partial instead of empty or full" : "";
  });
}

void expect_exact(const Problem& p, Classified classified = Classified::exactly) {
  EXPECT_EQ(defect(p, classified), "");
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
    expect_exact(masked, Classified::safely);
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
        {.batch = 2, .query_len = 5, .key_len = 5, .mask = Mask::documents({queries, keys})},
        Classified::safely);
  }
}

TEST(BlockMaskTest, DocumentsOneAfterTheOtherAreClassifiedExactly) {
  const SegmentNumbers queries{2, 6, {0, 0, 1, 2, 2, 2, 3, 4, 4, 4, 5, -1}};
  for (const SegmentNumbers& keys :
       {queries, SegmentNumbers{1, 6, {0, 1, 1, 2, 3, 3}},
        SegmentNumbers{1, 6, {2, 3, 4, -1, -1, -1}}, SegmentNumbers{1, 6, {7, 7, 7, 8, 8, 9}}}) {
    expect_exact(
        {.batch = 2, .query_len = 6, .key_len = 6, .mask = Mask::documents({queries, keys})});
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
        expect_exact(p, Classified::safely);
      }
    }
  }
}

// A union or intersection of masks, and of such, down to `depth`.
Mask any_tree(const Problem& p, int depth) {
  if (depth == 0 || once_in(5)) return any_mask(p, 0);
  std::vector<Mask> parts;
  for (auto n = within<int>(2, 4); n > 0; --n) parts.push_back(any_tree(p, depth - 1));
  return *rc::gen::arbitrary<bool>() ? Mask::all_of(parts) : Mask::any_of(parts);
}

Problem any_small_problem() {
  Problem p{.batch = within<Index>(1, 3),
            .query_heads = within<Index>(1, 3),
            .query_len = within<Index>(1, 7),
            .key_len = within<Index>(1, 7)};
  std::vector<Index> query_lens, key_lens;
  for (Index b = 0; b < p.batch; ++b) {
    query_lens.push_back(once_in(3) ? within<Index>(0, p.query_len + 1) : p.query_len);
    key_lens.push_back(once_in(3) ? within<Index>(0, p.key_len + 1) : p.key_len);
  }
  p.query_lens = std::move(query_lens);
  p.key_lens = std::move(key_lens);
  p.mask = any_tree(p, within<int>(0, 6));
  return p;
}

RC_GTEST_PROP(BlockMaskTest, TreesOfAnyDepthAreCoveredExactlyAndClassifiedSafely, ()) {
  RC_ASSERT(defect(any_small_problem(), Classified::safely) == "");
}

// What a tree may lose: only where both parts of a union or an intersection are partial.
RC_GTEST_PROP(BlockMaskTest, WhereOnePartIsNotPartialNothingIsLostInATree, ()) {
  Problem p = any_small_problem();
  const Mask a = any_tree(p, 2), b = any_tree(p, 2);
  const bool all_of = *rc::gen::arbitrary<bool>();
  Problem only_a = p, only_b = p;
  only_a.mask = a;
  only_b.mask = b;
  p.mask = all_of ? Mask::all_of({a, b}) : Mask::any_of({a, b});
  const MaskCall call_a(only_a), call_b(only_b), call(p);
  impl::BlockMask mask_a(call_a.call), mask_b(call_b.call), mask(call.call);
  const Coverage neutral = all_of ? Coverage::full : Coverage::empty;
  const Coverage deciding = all_of ? Coverage::empty : Coverage::full;
  RC_ASSERT(check_all_blocks(p, [&](Index batch, Index head, const impl::Block& block) {
              const Coverage of_a = mask_a.classify(batch, head, block);
              const Coverage of_b = mask_b.classify(batch, head, block);
              const Coverage both = mask.classify(batch, head, block);
              const bool right = of_a == deciding || of_b == deciding ? both == deciding
                                 : of_a == neutral                    ? both == of_b
                                 : of_b == neutral                    ? both == of_a
                                                                      : both == Coverage::partial;
              return std::string(right ? "" : "another class than its parts have");
            }) == "");
}

// ---- The mask in full --------------------------------------------------------------------------

// In memory that holds whatever was there before.
struct WholeMaskInMemory {
  WholeMaskInMemory(const impl::Call& call, Index query_block, Index key_block)
      : memory(impl::WholeMask(call, query_block, key_block, impl::Arena()).bytes(), 0xaa),
        mask(call, query_block, key_block, impl::Arena(memory.data())) {
    mask.make();
  }

  std::vector<std::uint8_t> memory;
  impl::WholeMask mask;
};

RC_GTEST_PROP(WholeMaskTest, EveryBlockOfTheGridIsCoveredExactlyWhoeverMakesIt, ()) {
  const Problem p = any_small_problem();
  const Index query_block = within<Index>(1, 5), key_block = within<Index>(1, 5);
  MaskCall host(p);
  host.call.workers = within<int>(1, 4);
  const WholeMaskInMemory whole(host.call, query_block, key_block);
  std::vector<std::uint8_t> seen(static_cast<std::size_t>(query_block * key_block));
  RC_ASSERT(check_all_blocks(p, [&](Index b, Index h, const impl::Block& block) -> std::string {
              const Lengths lengths = p.lengths(b);
              const auto of_grid = [](Index begin, Index end, Index size, Index length) {
                return begin % size == 0 && end == std::min(begin + size, length);
              };
              if (!of_grid(block.query_begin, block.query_end, query_block, lengths.query) ||
                  !of_grid(block.key_begin, block.key_end, key_block, lengths.key)) {
                return "";
              }
              const Truth truth(p, b, h, block);
              const Coverage covered = whole.mask.cover(b, h, block, seen.data());
              if (covered != truth.coverage) return "the wrong coverage";
              const bool right =
                  covered != Coverage::partial ||
                  std::equal(truth.visible.begin(), truth.visible.end(), seen.begin());
              return right ? "" : "the wrong elements";
            }) == "");
}

TEST(WholeMaskTest, WhoSeesTheSameSharesAPlane) {
  const auto planes_of = [](const Mask& mask, const std::vector<Index>& key_lens = {}) {
    const MaskCall host({.batch = 3,
                         .query_heads = 2,
                         .query_len = 64,
                         .key_len = 128,
                         .mask = mask,
                         .key_lens = key_lens});
    return impl::WholeMask(host.call, 16, 16, impl::Arena()).bytes() / (64 * 128 + 4 * 8);
  };
  const auto table = [](const Shape& shape) {
    return DenseMask{shape,
                     std::vector<std::uint8_t>(static_cast<std::size_t>(element_count(shape)))};
  };
  const Mask causal = Mask::causal(Anchor::bottom_right);
  EXPECT_EQ(planes_of(Mask::full()), 1u);
  EXPECT_EQ(planes_of(causal), 1u);
  EXPECT_EQ(planes_of(causal, {7, 7, 7}), 1u);
  EXPECT_EQ(planes_of(causal, {7, 7, 8}), 3u);
  EXPECT_EQ(planes_of(Mask::prefix({5})), 1u);
  EXPECT_EQ(planes_of(Mask::prefix({5, 6, 7})), 3u);
  EXPECT_EQ(planes_of(Mask::dense(table({1, 2, 64, 1}))), 2u);
  EXPECT_EQ(planes_of(Mask::all_of({causal, Mask::block_sparse(64, 128, table({3, 2, 1, 1}))})),
            6u);
}

}  // namespace
}  // namespace attest
