#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "reports/reports.h"
#include "spec/json_text.h"
#include "tests/reports/samples.h"

namespace attest {
namespace {

using nlohmann::json;

TEST(JsonReportTest, TellsHeaderConclusionAndCounts) {
  const json report = parse_json(to_report_json(realistic_record()));
  EXPECT_EQ(report["header"]["tier"], "standard");
  EXPECT_EQ(report["state"], "complete");
  EXPECT_EQ(report["conclusion"], "not conformant");
  EXPECT_EQ(report["exit_code"], 1);
  EXPECT_EQ(report["counts"]["FAIL"], 3);
  EXPECT_EQ(report["testees"][0]["name"], "naive");
  EXPECT_FALSE(report["testees"][0]["counts"].contains("FAIL"));
  EXPECT_EQ(report["testees"][1]["counts"]["CRASH"], 1);
  EXPECT_EQ(report["testees"][1]["clauses"]["MASK-3"]["broken"], 2);
  EXPECT_EQ(report["testees"][0]["clauses"]["MASK-3"]["broken"], 0);
  EXPECT_EQ(report["profiles"].size(), 18u);
}

TEST(JsonReportTest, ProfilesCarryTheWordsOfOtherPages) {
  const json report = parse_json(to_report_json(narrow_record()));
  for (const json& p : report["profiles"]) {
    const bool narrow = p["profile"] == "forward-core/limits";
    EXPECT_EQ(p["standing"], narrow ? "met within limits" : "met");
  }
}

TEST(JsonReportTest, FailuresCarryTheirEvidenceAsTheRecordDoes) {
  const Record record = realistic_record();
  const json report = parse_json(to_report_json(record));
  ASSERT_EQ(report["failures"].size(), 5u);
  std::size_t next = 0;
  for (const VerdictRecord& v : record.verdicts) {
    if (v.testee != "fa2" || conforms(v.verdict.outcome)) continue;
    if (v.verdict.outcome == Outcome::unsupported) continue;
    json line = parse_json(to_line(v));
    line.erase("kind");
    EXPECT_EQ(report["failures"][next++], line);
  }
}

TEST(JsonReportTest, TellsWhichFailuresAreKnown) {
  Record record = realistic_record();
  const auto first = std::find_if(record.verdicts.begin(), record.verdicts.end(),
                                  [](const auto& v) { return v.verdict.outcome == Outcome::fail; });
  record.header.known = {{.cases = first->case_id,
                          .testee = first->testee,
                          .reason = first->verdict.reason,
                          .link = "https://example.org/1"}};
  const json known = parse_json(to_report_json(record))["known"];
  ASSERT_EQ(known.size(), 1u);
  EXPECT_EQ(known[0]["case"], first->case_id);
  EXPECT_EQ(known[0]["testee"], first->testee);
  EXPECT_THAT(known[0]["why"].get<std::string>(), testing::HasSubstr("https://example.org/1"));
}

TEST(JsonReportTest, WorstRatiosNameTheirCase) {
  const json report = parse_json(to_report_json(realistic_record()));
  const json& worst = report["testees"][1]["worst"];
  ASSERT_EQ(worst.size(), 15u);  // five tensors in three formats
  EXPECT_EQ(worst[0]["tensor"], "O");
  EXPECT_EQ(worst[3]["tensor"], "LSE");
  bool infinite = false;
  for (const json& w : worst) {
    if (w["evidence"]["max_ratio"] != "inf") continue;
    infinite = true;
    EXPECT_EQ(w["evidence"]["actual"], "nan");
    EXPECT_EQ(w["outcome"], "FAIL");
    EXPECT_THAT(w["case"].get<std::string>(), testing::StartsWith("mask/causal/bottom_right"));
  }
  EXPECT_TRUE(infinite);
}

TEST(JsonReportTest, LongOutputIsCut) {
  EXPECT_LT(to_report_json(hostile_record()).size(), 200000u);
  EXPECT_TRUE(json::accept(to_report_json(hostile_record())));
}

TEST(JsonReportTest, TruncatedRecordConcludesNothing) {
  const json report = parse_json(to_report_json(truncated_record()));
  EXPECT_EQ(report["state"], "truncated");
  EXPECT_EQ(report["conclusion"], "incomplete");
  EXPECT_EQ(report["exit_code"], 3);
}

}  // namespace
}  // namespace attest
