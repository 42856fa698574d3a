#include "spec/problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace attest {
namespace {

using ::testing::HasSubstr;

// A problem in which nothing is wrong.
Problem sound() {
  return {.batch = 2,
          .query_heads = 4,
          .key_heads = 2,
          .query_len = 8,
          .key_len = 5,
          .head_dim = 16,
          .value_dim = 12,
          .mask = Mask::causal(Anchor::bottom_right),
          .key_lens = {5, 0},
          .query_lens = {8, 3}};
}

void expect_defect(const Problem& problem, const char* clause, const char* words) {
  const auto defect = defect_of(problem);
  ASSERT_TRUE(defect) << to_string(problem);
  EXPECT_EQ(defect->clause, clause);
  EXPECT_THAT(defect->what, HasSubstr(words));
}

TEST(SequenceLengthsTest, EachPositionIsOfTheElementWithinWhoseLengthItLies) {
  const SequenceLengths lengths = {0, 3, 0, 0, 1, 2, 0};
  std::vector<Index> elements;
  for (Index at = 0; at < lengths.sum(); ++at) elements.push_back(lengths.element_of(at));
  EXPECT_EQ(elements, (std::vector<Index>{1, 1, 1, 4, 5, 5}));
}

TEST(ProblemTest, SoundProblemsHaveNoDefect) {
  EXPECT_FALSE(defect_of(sound()));
  EXPECT_FALSE(defect_of(Problem{}));
}

TEST(ProblemTest, SizesOfZeroAreLegalAndNegativeOnesAreNot) {
  for (Index Problem::*size : {&Problem::batch, &Problem::query_len, &Problem::key_len,
                               &Problem::head_dim, &Problem::value_dim, &Problem::query_heads}) {
    Problem problem;
    problem.*size = 0;
    EXPECT_FALSE(defect_of(problem));
    problem.*size = -1;
    expect_defect(problem, "SHAPE-1", "negative");
  }
}

TEST(ProblemTest, KeyHeadsMustDivideQueryHeads) {
  Problem problem = sound();
  problem.key_heads = 3;
  expect_defect(problem, "HEAD-1", "3 key heads do not divide 4 query heads");
  problem.key_heads = 0;
  expect_defect(problem, "HEAD-1", "0 key heads");
  problem.key_heads = 8;
  expect_defect(problem, "HEAD-1", "8 key heads");
  problem.query_heads = 0;
  EXPECT_FALSE(defect_of(problem)) << "without query heads nobody reads them";
}

TEST(ProblemTest, TheScaleMustBeFinite) {
  for (const double scale : {std::numeric_limits<double>::infinity(), std::nan(""), 1e39}) {
    Problem problem = sound();
    problem.scale = scale;
    expect_defect(problem, "SCORE-1", "finite");
  }
}

TEST(ProblemTest, LengthsMustFitTheBatchAndTheTensors) {
  Problem problem = sound();
  problem.key_lens = {5};
  expect_defect(problem, "MASK-5", "1 key lengths for a batch of 2");
  problem.key_lens = {5, 6};
  expect_defect(problem, "MASK-5", "key length 6 is not within 0..5");
  problem = sound();
  problem.query_lens = {8, 3, 1};
  expect_defect(problem, "MASK-6", "3 query lengths for a batch of 2");
  problem.query_lens = {-1, 3};
  expect_defect(problem, "MASK-6", "query length -1 is not within 0..8");
}

TEST(ProblemTest, BandsMustNotBeNegativeNorFarAway) {
  Problem problem = sound();
  problem.mask = Mask::window(-1, 0, Anchor::top_left);
  expect_defect(problem, "MASK-4", "negative");
  problem.mask = Mask::window(0, -1, Anchor::top_left);
  expect_defect(problem, "MASK-4", "negative");
  for (const Index offset : {std::numeric_limits<Index>::min(), std::numeric_limits<Index>::max(),
                             (Index(1) << 40) + 1}) {
    problem.mask = Mask::causal(Anchor::top_left, offset);
    expect_defect(problem, "MASK-4", "2^40");
  }
}

TEST(ProblemTest, DenseMasksMustBroadcastAndBeWhole) {
  Problem problem = sound();
  problem.mask = Mask::dense({.shape = {1, 1, 1, 5}, .allowed = {1, 0, 1, 0, 1}});
  EXPECT_FALSE(defect_of(problem));
  problem.mask = Mask::dense({.shape = {1, 1, 1, 4}, .allowed = {1, 0, 1, 0}});
  expect_defect(problem, "MASK-7", "[1,1,1,4] does not broadcast to [2,4,8,5]");
  problem.mask = Mask::dense({.shape = {1, 1, 1, 5}, .allowed = {1, 0, 1, 0}});
  expect_defect(problem, "MASK-7", "4 values for a shape of 5");
  problem.mask = {.kind = Mask::Kind::dense};
  expect_defect(problem, "MASK-7", "no table");
}

TEST(ProblemTest, PartsOfMasksAreLookedAtToo) {
  Problem problem = sound();
  const Mask wrong = Mask::window(-1, 0, Anchor::top_left);
  problem.mask = Mask::all_of({Mask::full(), Mask::any_of({Mask::full(), wrong})});
  expect_defect(problem, "MASK-4", "negative");
}

TEST(ProblemTest, MasksNestSoDeepAndNoDeeper) {
  Problem problem = sound();
  for (int depth = 0; depth < kDeepestMask; ++depth) {
    problem.mask = depth % 2 == 0 ? Mask::any_of({Mask::full(), problem.mask})
                                  : Mask::all_of({problem.mask, Mask::full()});
  }
  EXPECT_FALSE(defect_of(problem));
  problem.mask = Mask::all_of({problem.mask});
  expect_defect(problem, "MASK-9", "deeper than 64");
}

TEST(ProblemTest, OutputsCannotBeExpandedButInputsCan) {
  for (Layout Layouts::*output : {&Layouts::o, &Layouts::dq, &Layouts::dk, &Layouts::dv}) {
    Problem problem = sound();
    problem.layouts.*output = Layout::parse("bhsd expand=s");
    expect_defect(problem, "LAYOUT-1", "an output cannot be expanded");
  }
  for (Layout Layouts::*input : {&Layouts::q, &Layouts::k, &Layouts::v, &Layouts::d_o}) {
    Problem problem = sound();
    problem.layouts.*input = Layout::parse("bhsd expand=h");
    EXPECT_FALSE(defect_of(problem));
  }
}

TEST(ProblemTest, SparseMasksMustFitTheProblem) {
  Problem problem = sound();
  problem.mask = Mask::prefix({5, 0});
  EXPECT_FALSE(defect_of(problem));
  problem.mask = Mask::prefix({});
  expect_defect(problem, "MASK-10", "0 prefix lengths for a batch of 2");
  for (const Index len : {-1, 6}) {
    problem.mask = Mask::prefix({len});
    expect_defect(problem, "MASK-10", "is not within 0..5");
  }
  const SegmentNumbers queries{.batches = 1, .length = 8, .number = std::vector<std::int32_t>(8)};
  const SegmentNumbers keys{.batches = 2, .length = 5, .number = std::vector<std::int32_t>(10)};
  problem.mask = Mask::documents({.query = queries, .key = keys});
  EXPECT_FALSE(defect_of(problem));
  problem.mask = Mask::documents({.query = keys, .key = keys});
  expect_defect(problem, "MASK-11", "query segment numbers of [2,5]");
  problem.mask = Mask::documents({.query = queries, .key = queries});
  expect_defect(problem, "MASK-11", "key segment numbers of [1,8]");
  problem.mask =
      Mask::documents({.query = queries, .key = {.batches = 2, .length = 5, .number = {0}}});
  expect_defect(problem, "MASK-11", "key segment numbers");
  problem.mask = {.kind = Mask::Kind::segments};
  expect_defect(problem, "MASK-11", "no numbers");
  problem.mask =
      Mask::block_sparse(3, 5, {.shape = {1, 4, 3, 1}, .allowed = std::vector<std::uint8_t>(12)});
  EXPECT_FALSE(defect_of(problem));
  problem.mask = Mask::block_sparse(3, 5, {.shape = {1, 1, 1, 1}, .allowed = {1}});
  expect_defect(problem, "MASK-12", "[1,1,1,1] does not broadcast to [2,4,3,1]");
  for (const auto& [rows, columns] : {std::pair{0, 1}, {1, -1}}) {
    problem.mask = Mask::block_sparse(rows, columns, {.shape = {1, 1, 1, 1}, .allowed = {1}});
    expect_defect(problem, "MASK-12", "at least 1");
  }
  problem.mask = Mask::dilated(0, Anchor::top_left);
  expect_defect(problem, "MASK-13", "at least 1");
  problem.mask = Mask::dilated(2, Anchor::top_left, -(Index(1) << 40) - 1);
  expect_defect(problem, "MASK-13", "2^40");
}

TEST(ProblemTest, ScoreFeaturesMustBeFiniteAndBroadcast) {
  Problem problem = sound();
  // 1e39 is no number of f32, in which the softmax of 16-bit formats is.
  for (const double cap : {-1.0, 1e39, std::numeric_limits<double>::infinity(), std::nan("")}) {
    problem.softcap = cap;
    expect_defect(problem, "SCORE-2", "softcap");
  }
  problem = sound();
  problem.bias_shape = Shape{1, 4, 8, 1};
  EXPECT_FALSE(defect_of(problem));
  problem.bias_shape = Shape{1, 2, 8, 5};
  expect_defect(problem, "SCORE-3", "[1,2,8,5] does not broadcast to [2,4,8,5]");
  problem = sound();
  problem.slopes_shape = Shape{2, 4, 1, 1};
  EXPECT_FALSE(defect_of(problem));
  problem.slopes_shape = Shape{1, 1, 1, 1};
  expect_defect(problem, "SCORE-4", "[1,1,1,1] for 4 heads");
  problem = sound();
  for (const double probability : {-0.1, 1.0, std::nan("")}) {
    problem.dropout = {.mode = Dropout::Mode::given, .probability = probability};
    expect_defect(problem, "DROP-1", "less than 1");
  }
  for (Index Problem::*size : {&Problem::batch, &Problem::query_len, &Problem::key_len}) {
    for (const auto mode : {Dropout::Mode::given, Dropout::Mode::generated}) {
      problem = {.batch = 1, .query_len = 1, .key_len = 1, .head_dim = 1, .value_dim = 1};
      problem.dropout = {.mode = mode, .probability = 0.5};
      problem.*size = (Index(1) << 32) - 1;
      EXPECT_FALSE(defect_of(problem));
      problem.*size = Index(1) << 32;
      expect_defect(problem, "DROP-1", "2^32");
      problem.dropout = {};
      EXPECT_FALSE(defect_of(problem));
    }
  }
  problem = sound();
  problem.d_lse = true;
  expect_defect(problem, "GRAD-5", "backward");
  problem.backward = true;
  EXPECT_FALSE(defect_of(problem));
}

// Three batch elements, the second without queries, the last without keys.
Problem packed() {
  return {.batch = 3,
          .query_heads = 2,
          .key_heads = 1,
          .query_len = 4,
          .key_len = 6,
          .head_dim = 16,
          .value_dim = 12,
          .key_lens = {6, 2, 0},
          .query_lens = {3, 0, 4},
          .packed = true};
}

TEST(ProblemTest, PackedTensorsHoldTheSumOfTheLengths) {
  const Problem problem = packed();
  EXPECT_FALSE(defect_of(problem));
  EXPECT_EQ(problem.q_shape(), (Shape{1, 2, 7, 16}));
  EXPECT_EQ(problem.k_shape(), (Shape{1, 1, 8, 16}));
  EXPECT_EQ(problem.v_shape(), (Shape{1, 1, 8, 12}));
  EXPECT_EQ(problem.o_shape(), (Shape{1, 2, 7, 12}));
  EXPECT_EQ(problem.lse_shape(), (Shape{1, 2, 7, 1}));
  EXPECT_EQ(problem.keep_shape(), (Shape{3, 2, 4, 6}));
}

// Every row and key that exists has a place of its own, in order, and none is left.
TEST(ProblemTest, PackedRowsFollowEachOther) {
  const Problem problem = packed();
  Index row = 0, key = 0;
  for (Index b = 0; b < problem.batch; ++b) {
    EXPECT_EQ(problem.stored_queries(b), problem.lengths(b).query);
    EXPECT_EQ(problem.stored_keys(b), problem.lengths(b).key);
    for (Index i = 0; i < problem.stored_queries(b); ++i, ++row) {
      EXPECT_EQ(problem.query_place(b, i).batch, 0);
      EXPECT_EQ(problem.query_place(b, i).position, row);
    }
    for (Index j = 0; j < problem.stored_keys(b); ++j, ++key) {
      EXPECT_EQ(problem.key_place(b, j).position, key);
    }
  }
  EXPECT_EQ(row, problem.q_shape()[kPosition]);
  EXPECT_EQ(key, problem.k_shape()[kPosition]);
}

TEST(ProblemTest, APaddedRowLiesWhereItsNumbersSay) {
  const Problem problem = sound();
  EXPECT_EQ(problem.query_place(1, 6).batch, 1);
  EXPECT_EQ(problem.query_place(1, 6).position, 6);
  EXPECT_EQ(problem.stored_queries(1), 8) << "padding included";
  EXPECT_EQ(problem.stored_keys(1), 5);
}

TEST(ProblemTest, PackedProblemsGiveAllLengthsAndTheLongestOnes) {
  Problem problem = packed();
  problem.key_lens = {};
  expect_defect(problem, "LAYOUT-5", "both lengths");
  problem = packed();
  problem.query_lens = {};
  expect_defect(problem, "LAYOUT-5", "both lengths");
  problem = packed();
  problem.query_len = 5;
  expect_defect(problem, "LAYOUT-5", "4 queries and 6 keys, not 5 and 6");
  problem = packed();
  problem.key_len = 7;
  expect_defect(problem, "LAYOUT-5", "not 4 and 7");
}

Problem paged() {
  return {.batch = 3,
          .query_heads = 2,
          .key_heads = 2,
          .query_len = 1,
          .key_len = 9,
          .head_dim = 16,
          .value_dim = 12,
          .key_lens = {9, 4, 0},
          .paging = {.page_size = 4, .pages = 6, .table = {{5, 0, 3}, {5, -1}, {}}}};
}

TEST(ProblemTest, PagesHoldTheKeysThatTheirTableNames) {
  const Problem problem = paged();
  EXPECT_FALSE(defect_of(problem));
  EXPECT_EQ(problem.k_shape(), (Shape{6, 2, 4, 16}));
  EXPECT_EQ(problem.v_shape(), (Shape{6, 2, 4, 12}));
  EXPECT_EQ(problem.q_shape(), (Shape{3, 2, 1, 16}));
  EXPECT_EQ(problem.paging.entries(), 3);
  EXPECT_EQ(problem.key_place(0, 6).batch, 0);
  EXPECT_EQ(problem.key_place(0, 6).position, 2);
  EXPECT_EQ(problem.key_place(0, 8).batch, 3);
  EXPECT_EQ(problem.key_place(0, 8).position, 0);
  EXPECT_EQ(problem.key_place(1, 3).batch, 5) << "shared with the first element";
  EXPECT_EQ(problem.stored_keys(0), 9);
  EXPECT_EQ(problem.stored_keys(2), 0);
}

TEST(ProblemTest, PageTablesMustReachAndStayWithinThePages) {
  const auto with = [](auto change) {
    Problem problem = paged();
    change(problem);
    return problem;
  };
  const auto wrong = [&](auto change, const char* words) {
    expect_defect(with(change), "PAGE-1", words);
  };
  wrong([](Problem& p) { p.paging.page_size = -1; }, "negative");
  wrong([](Problem& p) { p.paging.pages = -1; }, "negative");
  wrong([](Problem& p) { p.backward = true; }, "no backward pass");
  wrong([](Problem& p) { p.key_lens = {}; }, "a key length");
  wrong([](Problem& p) { p.paging.table.pop_back(); }, "a row of the page table");
  wrong([](Problem& p) { p.paging.table[0].pop_back(); }, "element 0 has 2 pages for 9 keys");
  wrong([](Problem& p) { p.paging.table[0][1] = 6; }, "entry 1 of batch element 0 is page 6 of 6");
  wrong([](Problem& p) { p.paging.table[0][2] = -1; }, "is page -1");
  wrong([](Problem& p) { p.paging.table[1][1] = 0; }, "entry 1 of batch element 1 is page 0");
}

TEST(ProblemTest, PackedQueriesAndPagesGoTogether) {
  Problem problem = paged();
  problem.packed = true;
  problem.query_lens = {1, 0, 1};
  EXPECT_FALSE(defect_of(problem));
  EXPECT_EQ(problem.q_shape(), (Shape{1, 2, 2, 16}));
  EXPECT_EQ(problem.k_shape(), (Shape{6, 2, 4, 16}));
  EXPECT_EQ(problem.query_place(2, 0).position, 1);
}

TEST(ProblemTest, ShapesFollowTheSizes) {
  const Problem problem = sound();
  EXPECT_EQ(problem.q_shape(), (Shape{2, 4, 8, 16}));
  EXPECT_EQ(problem.k_shape(), (Shape{2, 2, 5, 16}));
  EXPECT_EQ(problem.v_shape(), (Shape{2, 2, 5, 12}));
  EXPECT_EQ(problem.o_shape(), (Shape{2, 4, 8, 12}));
  EXPECT_EQ(problem.lse_shape(), (Shape{2, 4, 8, 1}));
  EXPECT_EQ(problem.group_size(), 2);
  EXPECT_EQ(problem.lengths(1).query, 3);
  EXPECT_EQ(problem.lengths(1).key, 0);
  EXPECT_EQ(Problem{}.lengths(0).key, 1);
}

TEST(ProblemTest, LseIsWiderThanTheNarrowFormats) {
  for (const DType dtype : kDTypes) {
    EXPECT_EQ(Problem{.dtype = dtype}.lse_dtype(), dtype == DType::f64 ? DType::f64 : DType::f32);
  }
}

TEST(ProblemTest, IsNamedInOneLine) {
  Problem problem = sound();
  problem.dtype = DType::bf16;
  problem.scale = 0.25;
  problem.backward = true;
  EXPECT_EQ(
      to_string(problem),
      "bf16 b2 h4/2 q8 k5 d16/12 scale=0.25 causal bottom_right key_lens=[5,0] query_lens=[8,3] "
      "backward");
  problem.softcap = 15;
  problem.bias_shape = Shape{1, 4, 8, 5};
  problem.slopes_shape = Shape{1, 4, 1, 1};
  problem.sink = true;
  problem.dropout = {.mode = Dropout::Mode::generated, .probability = 0.5};
  problem.d_lse = true;
  problem.mask = Mask::full();
  EXPECT_EQ(to_string(problem),
            "bf16 b2 h4/2 q8 k5 d16/12 scale=0.25 softcap=15 full key_lens=[5,0] query_lens=[8,3] "
            "bias=[1,4,8,5] alibi sink dropout=0.5 generated backward dlse");
  EXPECT_THAT(to_string(packed()), HasSubstr(" packed"));
  EXPECT_THAT(to_string(paged()), HasSubstr(" pages=6x4"));
}

}  // namespace
}  // namespace attest
