#include "harness/command/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace attest {
namespace {

using testing::HasSubstr;
using testing::Not;

// What a run of `total` verdicts of which one fails writes to a terminal of so many columns, or, of
// none, to something else.
std::string written(std::size_t columns, std::size_t total, Loudness loudness = Loudness::usual,
                    bool coloured = false) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* out = open_memstream(&text, &size);
  Progress progress({out, columns > 0, coloured, columns}, loudness, total);
  for (std::size_t i = 0; i < total; ++i) {
    progress.add({.case_id = "mask/causal",
                  .testee = "mine",
                  .dtype = "f32",
                  .verdict = {.outcome = i == 0 ? Outcome::fail : Outcome::pass}});
  }
  progress.finish();
  std::fclose(out);
  std::string result(text, size);
  std::free(text);
  return result;
}

TEST(ProgressTest, TerminalGetsABarThatIsRemovedAtTheEnd) {
  const std::string text = written(100, 3);
  EXPECT_THAT(text, HasSubstr("[##############################] 3/3 verdicts, 1 not passed"));
  EXPECT_EQ(text.substr(text.size() - 4), "\r\x1b[K");
}

TEST(ProgressTest, WhatHasNoVerdictIsNeitherFailedNorUnsupported) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* out = open_memstream(&text, &size);
  Progress progress({out, false, false, 0}, Loudness::usual, 2, "mutants");
  progress.add_one();
  progress.add_one();
  progress.finish();
  std::fclose(out);
  EXPECT_EQ(std::string(text, size), "2/2 mutants, 0 s left\n");
  std::free(text);
}

TEST(ProgressTest, NoTerminalIsTooNarrow) {
  for (std::size_t columns = 1; columns <= 120; ++columns) {
    const std::string text = written(columns, 12938);
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find("\x1b[K", begin);
      ASSERT_NE(end, std::string::npos);
      ASSERT_EQ(text[begin], '\r');
      ASSERT_LT(end - begin - 1, columns) << text.substr(begin, end - begin);
      begin = end + 3;
    }
    EXPECT_THAT(text, Not(HasSubstr("\n")));
  }
  EXPECT_THAT(written(80, 12938),
              HasSubstr("] 12938/12938 verdicts, 1 not passed, 0 unsupported, 0 s left"));
  EXPECT_THAT(written(40, 12938), HasSubstr("\r12938/12938, 1 not passed, 0 s left"));
}

TEST(ProgressTest, ElsewhereItIsPlainLines) {
  const std::string text = written(0, 3);
  EXPECT_THAT(text, HasSubstr("3/3 verdicts, 1 not passed, 0 unsupported, 0 s left\n"));
  EXPECT_THAT(text, Not(HasSubstr("\r")));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(ProgressTest, QuietItIsNothingAndVerboseALineForEachVerdict) {
  EXPECT_EQ(written(80, 3, Loudness::quiet), "");
  EXPECT_EQ(written(0, 3, Loudness::quiet), "");
  EXPECT_THAT(written(0, 2, Loudness::verbose),
              HasSubstr("FAIL 0 s mine mask/causal\nPASS 0 s mine mask/causal\n"));
  EXPECT_THAT(written(80, 2, Loudness::verbose, true),
              HasSubstr("\x1b[31mFAIL\x1b[0m 0 s mine mask/causal\n"));
}

}  // namespace
}  // namespace attest
