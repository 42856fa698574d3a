#include "harness/judge/pictures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace attest {
namespace {

using Letters = std::vector<std::string>;

TEST(PicturesTest, LettersOfErrorsGrowWithTheRatio) {
  EXPECT_EQ(heat_letter(0), '0');
  EXPECT_EQ(heat_letter(0.39), '3');
  EXPECT_EQ(heat_letter(1), '9');
  EXPECT_EQ(heat_letter(std::nextafter(1.0, 2.0)), 'a');
  EXPECT_EQ(heat_letter(2), 'a');
  EXPECT_EQ(heat_letter(2.1), 'b');
  EXPECT_EQ(heat_letter(0x1p24 + 1), 'y');
  EXPECT_EQ(heat_letter(0x1p25), 'z');
  EXPECT_EQ(heat_letter(std::numeric_limits<double>::quiet_NaN()), 'z');
}

TEST(PicturesTest, ErrorsStandWhereTheyAre) {
  const Shape shape = {1, 2, 3, 2};  // two heads, three positions
  Expected expected;
  expected.value.assign(12, 0);
  expected.bound.assign(12, 1);
  std::vector<std::uint64_t> bits(12, encode(DType::f64, 0));
  bits[11] = encode(DType::f64, 3);    // head 1, position 2
  bits[2] = encode(DType::f64, 0.55);  // head 0, position 1
  bits[3] = encode(DType::f64, 0.25);  // the same, and less
  expected.value[6] = expected.value[7] = std::numeric_limits<double>::quiet_NaN();
  const Picture picture =
      heat_picture(TensorName::o, bits, DType::f64, shape, expected, Rounding::nearest);
  EXPECT_EQ(picture.letters, (Letters{"050", ".0b"}));
  EXPECT_EQ(picture.of, "O");
  EXPECT_EQ(picture.rows, 2);
  EXPECT_EQ(picture.columns, 3);
}

TEST(PicturesTest, LongTensorsTakeAsLittleRoom) {
  const Shape shape = {2, 20, 1000, 1};
  Expected expected;
  expected.value.assign(40000, 0);
  expected.bound.assign(40000, 1);
  std::vector<std::uint64_t> bits(40000, encode(DType::f32, 0));
  bits.back() = encode(DType::f32, 9);
  const Picture picture =
      heat_picture(TensorName::dk, bits, DType::f32, shape, expected, Rounding::nearest);
  ASSERT_LE(picture.letters.size(), 16u);
  for (const std::string& row : picture.letters) EXPECT_LE(row.size(), 48u);
  EXPECT_EQ(picture.letters.back().back(), 'd');
  EXPECT_EQ(picture.letters.front().find_first_not_of('0'), std::string::npos);
}

TEST(PicturesTest, MasksShowWhatIsSeen) {
  Problem problem = {.query_len = 3, .key_len = 5, .mask = Mask::causal(Anchor::bottom_right)};
  EXPECT_EQ(mask_picture(problem, 0, 0).letters, (Letters{"###..", "####.", "#####"}));
  problem.key_lens = SequenceLengths({4});
  EXPECT_EQ(mask_picture(problem, 0, 0).letters, (Letters{"##...", "###..", "####."}));
  const Problem large = {.query_len = 640, .key_len = 640, .mask = Mask::causal(Anchor::top_left)};
  const Picture picture = mask_picture(large, 0, 0);
  ASSERT_EQ(picture.letters.size(), 32u);
  EXPECT_EQ(picture.letters[0], "+" + std::string(31, '.'));
  EXPECT_EQ(picture.letters[31], std::string(31, '#') + "+");
}

TEST(PicturesTest, OnlyFaultsHaveAMaskOfTheWorstPlane) {
  const Problem problem = {.batch = 3, .query_heads = 4, .query_len = 2, .key_len = 2};
  Verdict verdict = {.outcome = Outcome::pass};
  add_mask_picture(problem, verdict);
  EXPECT_TRUE(verdict.pictures.empty());
  verdict.outcome = Outcome::fail;
  verdict.tensors[TensorName::o] = {.max_ratio = 5, .worst = {2, 3, 0, 0}};
  verdict.tensors[TensorName::dk] = {.max_ratio = 9, .worst = {1, 0, 0, 0}};
  add_mask_picture(problem, verdict);
  ASSERT_EQ(verdict.pictures.size(), 1u);
  EXPECT_EQ(verdict.pictures[0].of, "batch 2, head 3");
  Verdict other = {.outcome = Outcome::crash};
  add_mask_picture({.query_len = 0, .key_len = 2}, other);
  EXPECT_TRUE(other.pictures.empty()) << "there is nothing to see";
}

TEST(PicturesTest, BlocksShowTheirWorkers) {
  const Problem problem = {.query_heads = 2, .query_len = 2, .key_len = 4};
  const std::vector<Block> blocks = {
      {.worker = 0, .head = 0, .query_begin = 0, .query_end = 2, .key_begin = 0, .key_end = 2},
      {.worker = 11, .head = 1, .query_begin = 1, .query_end = 2, .key_begin = 2, .key_end = 4}};
  const Picture picture = blocks_picture(problem, blocks, {.pass = "forward", .threads = 12});
  EXPECT_EQ(picture.letters, (Letters{"00..", "00..", "....", "..bb"}));
  EXPECT_EQ(picture.of, "forward, 12 threads");
}

}  // namespace
}  // namespace attest
