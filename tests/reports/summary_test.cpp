#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "reports/reports.h"
#include "reports/text.h"
#include "tests/reports/samples.h"

namespace attest {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(SummaryTest, TableIsAligned) {
  const auto lines = lines_of(to_summary_text(realistic_record()));
  EXPECT_EQ(lines.at(0),
            "testee  PASS  WARN  FAIL  UNSUPPORTED  CRASH  TIMEOUT  max O  max LSE  max dQ  max dK"
            "  max dV");
  EXPECT_EQ(lines.at(1),
            "naive    159     1     0            5      0        0  0.218    0.109    0.24    0.24"
            "    0.24");
  EXPECT_EQ(lines.at(2),
            "fa2      155     0     3            5      1        1    inf    0.109    0.24    0.24"
            "    0.24");
}

TEST(SummaryTest, TellsProfilesFailuresAndLastTheConclusion) {
  const std::string text = to_summary_text(realistic_record());
  EXPECT_THAT(text,
              HasSubstr("fa2     masks          met                incomplete: 12 of 40  met\n"));
  EXPECT_THAT(text, HasSubstr("FAIL(bound) MASK-3 fa2 mask/causal/bottom_right/"));
  EXPECT_THAT(text, HasSubstr("\n    attest repro 'mask/causal/bottom_right/"));
  EXPECT_EQ(lines_of(text).back(), "Not conformant: fa2 does not pass 5 of 165 cases.");
}

TEST(SummaryTest, ProfileMetWithArithmeticBeyondTheDefaultIsNoPlainMet) {
  EXPECT_THAT(to_summary_text(declared_record(true)),
              HasSubstr("fa2     forward-core+declared  met  met  met, with exp of 736 units\n"));
  EXPECT_THAT(to_summary_text(declared_record(false)),
              HasSubstr("fa2     forward-core   met  met  not met: only with exp of 736 units\n"));
}

TEST(SummaryTest, ProfileMetWithinLimitsIsNoPlainMet) {
  const std::string text = to_summary_text(narrow_record());
  EXPECT_THAT(text, HasSubstr("forward-core/limits  met within limits  met within limits"));
  EXPECT_THAT(text, HasSubstr("(fa2 meets forward-core/limits within limits in f32, "));
}

// A verdict on what printed that much.
VerdictRecord printed(Outcome outcome, int lines) {
  VerdictRecord v{.case_id = "mask/a", .testee = "naive", .dtype = "f32", .verdict = {}};
  v.verdict.outcome = outcome;
  for (int i = 0; i < lines; ++i) v.verdict.captured += "line " + std::to_string(i) + "\n";
  return v;
}

TEST(SummaryTest, OfACrashItShowsTheLastLinesThatWerePrinted) {
  const Record crash = record_of({printed(Outcome::crash, 30)}, "not conformant");
  EXPECT_THAT(to_summary_text(crash), HasSubstr("    it printed:\n    | line 18\n"));
  EXPECT_THAT(to_summary_text(crash), HasSubstr("    | line 29\n"));
  EXPECT_THAT(to_summary_text(crash), Not(HasSubstr("| line 17\n")));
  EXPECT_THAT(to_summary_text(crash, Detail::whole), HasSubstr("    | line 0\n"));
  EXPECT_THAT(to_summary_text(record_of({printed(Outcome::fail, 3)}, "not conformant")),
              Not(HasSubstr("it printed")));
}

TEST(SummaryTest, MessagesOfManyKilobytesAreCutUnlessAllIsWanted) {
  VerdictRecord v = printed(Outcome::fail, 0);
  v.verdict.message = "begin" + std::string(20000, 'x') + "end";
  const Record record = record_of({v}, "not conformant");
  EXPECT_LT(to_summary_text(record).size(), 1500u);
  EXPECT_THAT(to_summary_text(record), HasSubstr("results.jsonl has them ...]"));
  EXPECT_THAT(to_summary_text(record, Detail::whole), HasSubstr(v.verdict.message));
  const std::string brief = to_summary_text(record, Detail::brief);
  EXPECT_EQ(brief, "Not conformant: naive does not pass 1 of 1 case.\n");
}

TEST(SummaryTest, ShowsOneFailureOfEachKindAndTheFirstKindsAlone) {
  std::vector<VerdictRecord> verdicts(
      25, {.case_id = "mask/a", .testee = "naive", .dtype = "f32", .verdict = {}});
  for (VerdictRecord& v : verdicts) v.verdict.outcome = Outcome::crash;
  const std::string alike = to_summary_text(record_of(verdicts, "not conformant"));
  EXPECT_THAT(alike, HasSubstr("CRASH naive mask/a\n    24 like it, in f32\n"));
  for (std::size_t i = 0; i < 12; ++i) verdicts[i].verdict.reason = std::to_string(i);
  const std::string text = to_summary_text(record_of(verdicts, "not conformant"));
  EXPECT_THAT(text, HasSubstr("... and 3 more of other kinds"));
}

TEST(SummaryTest, TesteesCannotSteerTheTerminal) {
  const std::string text = to_summary_text(hostile_record());
  EXPECT_EQ(clean(text), text);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(SummaryTest, EmptyAndTruncatedRunsSaySo) {
  EXPECT_EQ(to_summary_text(empty_record()), "Incomplete: no case was run.\n");
  EXPECT_THAT(lines_of(to_summary_text(truncated_record())).back(), StartsWith("Truncated"));
}

}  // namespace
}  // namespace attest
