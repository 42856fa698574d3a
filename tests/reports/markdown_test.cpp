#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reports/reports.h"
#include "reports/text.h"
#include "tests/reports/samples.h"

namespace attest {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(MarkdownTest, TellsConclusionCountsProfilesAndFailures) {
  const std::string text = to_summary_markdown(realistic_record());
  EXPECT_THAT(text, HasSubstr("**Not conformant: fa2 does not pass 5 of 165 cases.**"));
  EXPECT_THAT(text, HasSubstr("Attest 0.1.0, tier standard, seed 1, shard 1/1, 330 verdicts"));
  EXPECT_THAT(text, HasSubstr("| testee | PASS | WARN | FAIL | UNSUPPORTED | CRASH | TIMEOUT |"));
  EXPECT_THAT(text, HasSubstr("| `naive` | 159 | 1 | 0 | 5 | 0 | 0 |"));
  EXPECT_THAT(text, HasSubstr("| `fa2` | forward-core | not met: 38 of 40 |"));
  EXPECT_THAT(text, HasSubstr("| `naive` | masks | **met** | **met** | **met** |"));
  EXPECT_THAT(text, HasSubstr("## Failures: 5"));
  EXPECT_THAT(text, HasSubstr("`attest repro 'mask/causal/bottom_right/"));
}

TEST(MarkdownTest, ProfileMetWithArithmeticBeyondTheDefaultIsNoPlainMet) {
  EXPECT_THAT(
      to_summary_markdown(declared_record(true)),
      HasSubstr("| `fa2` | forward-core+declared | **met** | **met** | met, with exp of 736 "
                "units |"));
  EXPECT_THAT(
      to_summary_markdown(declared_record(false)),
      HasSubstr("| `fa2` | forward-core | **met** | **met** | not met: only with exp of 736 "
                "units |"));
}

TEST(MarkdownTest, ProfileMetWithinLimitsIsNoPlainMet) {
  EXPECT_THAT(
      to_summary_markdown(narrow_record()),
      HasSubstr("| `fa2` | forward-core/limits | met within limits | met within limits | met "
                "within limits |"));
}

TEST(MarkdownTest, TellsWhatIsDeclared) {
  const std::string text = to_summary_markdown(narrow_record());
  EXPECT_THAT(text, HasSubstr("## Declared\n\n- `naive`\n  - Formats: f32, f16, bf16\n"
                              "  - Not declared: dense-mask, prefix, "));
  EXPECT_THAT(text, HasSubstr("- `fa2`\n  - Formats: f32, f16, bf16\n"
                              "  - Limits: head\\_dim 64 or 128\n"
                              "  - Never: batch 1, window\n"
                              "  - Otherwise than the standard: LSE in base 2\n"
                              "  - Beyond the default: a maximum that lags by 8 in log2 in bf16\n"
                              "  - Not declared: dense-mask"));
  EXPECT_THAT(to_summary_markdown(declared_record(true)),
              HasSubstr("  - Beyond the default: exp of 736 units in bf16\n"));
  EXPECT_THAT(to_summary_markdown(conformant_record()), HasSubstr("- `naive`, `fa2`\n  - Formats"))
      << "what declares the same is told once";
}

TEST(MarkdownTest, SaysWhereCasesOfOthersCameFrom) {
  Record record = realistic_record();
  record.header.from = "/home/me/mine.json";
  EXPECT_THAT(to_summary_markdown(record),
              HasSubstr("Cases not of the suite, but from `/home/me/mine.json`."));
}

TEST(MarkdownTest, ShowsGradientsBesideDifferencesByFeature) {
  const std::string text = to_summary_markdown(realistic_record());
  EXPECT_THAT(text, HasSubstr("| feature | dQ | dK | dV |"));
  EXPECT_THAT(text, HasSubstr("| causal | 0."));
}

TEST(MarkdownTest, NothingThatATesteeSaysBecomesMarkup) {
  const std::string text = to_summary_markdown(hostile_record());
  EXPECT_EQ(clean(text), text);
  EXPECT_THAT(text, HasSubstr("\\<script\\>"));  // prose
  EXPECT_THAT(text, HasSubstr("```</code>"));    // code: a fence longer than the `` within
}

TEST(MarkdownTest, BarsDoNotSplitTables) {
  VerdictRecord v{.case_id = "a|b", .testee = "x|y", .dtype = "f32", .verdict = {}};
  v.verdict.outcome = Outcome::pass;
  v.verdict.tensors[TensorName::o] = {.max_ratio = 0.5, .compared = 1};
  const std::string text = to_summary_markdown(record_of({v}, "conformant"));
  EXPECT_THAT(text, HasSubstr("| `x\\|y` | `O` | f32 | `a\\|b` | 0.5 |"));
}

TEST(MarkdownTest, EmptyAndTruncatedRunsSaySo) {
  EXPECT_THAT(to_summary_markdown(empty_record()), HasSubstr("Incomplete: no case was run"));
  EXPECT_THAT(to_summary_markdown(truncated_record()), HasSubstr("Truncated: the run did not end"));
}

}  // namespace
}  // namespace attest
