#include "spec/problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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
  for (const double scale : {std::numeric_limits<double>::infinity(), std::nan("")}) {
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
}

}  // namespace
}  // namespace attest
