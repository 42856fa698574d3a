#include "harness/process/wire.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "spec/json_reader.h"

namespace attest {
namespace {

class PipeTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(pipe(ends_.data()), 0); }
  void TearDown() override {
    close(ends_[0]);
    hang_up();
  }
  void hang_up() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }
  std::array<int, 2> ends_{};
};

TEST_F(PipeTest, FramesArriveOneByOne) {
  EXPECT_TRUE(write_frame(ends_[1], "first"));
  EXPECT_TRUE(write_frame(ends_[1], ""));
  hang_up();
  EXPECT_EQ(read_frame(ends_[0]), "first");
  EXPECT_EQ(read_frame(ends_[0]), "");
  EXPECT_EQ(read_frame(ends_[0]), std::nullopt);
}

TEST_F(PipeTest, FrameLargerThanThePipeArrivesWhole) {
  const std::string large(3'000'000, 'x');
  std::thread writer([&] { write_frame(ends_[1], large); });
  EXPECT_EQ(read_frame(ends_[0]), large);
  writer.join();
}

TEST_F(PipeTest, CutOffFrameIsAnError) {
  ASSERT_EQ(write(ends_[1],
                  "\x05\x00\x00\x00"
                  "ab",
                  6),
            6);
  hang_up();
  EXPECT_THROW(read_frame(ends_[0]), InputError);
}

TEST_F(PipeTest, FrameOfAbsurdLengthIsAnError) {
  ASSERT_EQ(write(ends_[1], "\xff\xff\xff\xff", 4), 4);
  EXPECT_THROW(read_frame(ends_[0]), InputError);
}

TEST(ProblemToJsonTest, NamesDenseTablesInTheOrderOfTheTree) {
  const DenseMask table = {.shape = {1, 1, 1, 1}, .allowed = {1}};
  const Problem problem = {
      .mask = Mask::all_of(
          {Mask::dense(table), Mask::causal(Anchor::bottom_right, 2), Mask::dense(table)})};
  const auto mask = problem_to_json(problem).at("mask");
  EXPECT_EQ(mask.at("kind"), "all_of");
  EXPECT_EQ(mask.at("parts").at(0).at("table"), "mask0");
  EXPECT_EQ(mask.at("parts").at(2).at("table"), "mask1");
  const auto& band = mask.at("parts").at(1);
  EXPECT_EQ(band.at("anchor"), "bottom_right");
  EXPECT_EQ(band.at("offset"), 2);
  EXPECT_TRUE(band.at("left").is_null());
  EXPECT_EQ(band.at("right"), 0);
}

TEST(ProblemToJsonTest, NumbersTablesThroughTheTreeWhereverTheyStand) {
  const DenseMask table = {.shape = {1, 1, 1, 1}, .allowed = {1}};
  const SegmentNumbers numbers = {.batches = 1, .length = 1, .number = {0}};
  const Problem problem = {
      .mask = Mask::any_of({Mask::all_of({Mask::prefix({1}), Mask::documents({numbers, numbers})}),
                            Mask::block_sparse(3, 5, table),
                            Mask::dilated(7, Anchor::bottom_right, -2)})};
  const auto parts = problem_to_json(problem).at("mask").at("parts");
  EXPECT_EQ(parts.at(0).at("parts").at(0),
            nlohmann::json({{"kind", "prefix"}, {"table", "mask0"}}));
  EXPECT_EQ(
      parts.at(0).at("parts").at(1),
      nlohmann::json({{"kind", "segments"}, {"query_table", "mask1"}, {"key_table", "mask2"}}));
  EXPECT_EQ(
      parts.at(1),
      nlohmann::json(
          {{"kind", "block_sparse"}, {"block_query", 3}, {"block_key", 5}, {"table", "mask3"}}));
  EXPECT_EQ(
      parts.at(2),
      nlohmann::json(
          {{"kind", "dilated"}, {"anchor", "bottom_right"}, {"offset", -2}, {"dilation", 7}}));
}

// How deep the objects and lists of a JSON text nest.
int levels_of(const nlohmann::json& json) {
  int most = 0;
  for (const nlohmann::json& part : json) {
    if (part.is_structured()) most = std::max(most, levels_of(part));
  }
  return most + 1;
}

TEST(ProblemToJsonTest, DeepestMaskFitsIntoAFrame) {
  Problem problem;
  for (int depth = 0; depth < kDeepestMask; ++depth) {
    problem.mask = Mask::any_of({problem.mask, Mask::prefix({1})});
  }
  ASSERT_FALSE(defect_of(problem));
  const nlohmann::json request = {{"op", "forward"}, {"problem", problem_to_json(problem)}};
  EXPECT_GT(levels_of(request), 2 * kDeepestMask);
  EXPECT_LE(levels_of(request), kMaxFrameLevels);
}

TEST(ProblemToJsonTest, SeedKeepsAllItsBits) {
  Problem problem;
  problem.dropout = {.mode = Dropout::Mode::given,
                     .probability = 0.5,
                     .seed = 0xffffffffffffffffu,
                     .offset = 0x8000000000000000u};
  const auto dropout = problem_to_json(problem).at("dropout");
  EXPECT_EQ(dropout.at("mode"), "given");
  EXPECT_EQ(dropout.at("probability"), 0.5);
  EXPECT_EQ(dropout.at("seed"), "18446744073709551615");
  EXPECT_EQ(dropout.at("offset"), "9223372036854775808");
}

TEST(ProblemToJsonTest, PlainProblemHasNoneOfTheRest) {
  const auto json = problem_to_json({});
  for (const char* flag : {"packed", "bias", "alibi", "sink", "dlse"}) {
    EXPECT_EQ(json.at(flag), false) << flag;
  }
  EXPECT_EQ(json.at("softcap"), 0);
  EXPECT_EQ(json.at("page_size"), 0);
  EXPECT_EQ(json.at("dropout").at("mode"), "none");
}

}  // namespace
}  // namespace attest
