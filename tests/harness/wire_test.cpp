#include "harness/wire.h"

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

}  // namespace
}  // namespace attest
