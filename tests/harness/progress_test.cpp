#include "harness/command/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace attest {
namespace {

using testing::HasSubstr;
using testing::Not;

// What a run of `total` verdicts of which one fails writes.
std::string written(bool terminal, std::size_t total) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* out = open_memstream(&text, &size);
  Progress progress(out, terminal, total);
  for (std::size_t i = 0; i < total; ++i) {
    Verdict verdict;
    verdict.outcome = i == 0 ? Outcome::fail : Outcome::pass;
    progress.add(verdict);
  }
  progress.finish();
  std::fclose(out);
  std::string result(text, size);
  std::free(text);
  return result;
}

TEST(ProgressTest, TerminalGetsABarThatIsRemovedAtTheEnd) {
  const std::string text = written(true, 3);
  EXPECT_THAT(text, HasSubstr("[##############################] 3/3 verdicts, 1 not passed"));
  EXPECT_EQ(text.substr(text.size() - 4), "\r\x1b[K");
}

TEST(ProgressTest, ElsewhereItIsPlainLines) {
  const std::string text = written(false, 3);
  EXPECT_THAT(text, HasSubstr("3/3 verdicts, 1 not passed, 0 unsupported, 0 s left\n"));
  EXPECT_THAT(text, Not(HasSubstr("\r")));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace attest
