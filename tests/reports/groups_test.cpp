#include "reports/groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reports/reports.h"
#include "tests/reports/samples.h"

namespace attest {
namespace {

using testing::HasSubstr;
using testing::Not;

VerdictRecord failure(const std::string& problem, const std::string& blamed,
                      const std::string& dtype = "f32", TensorName tensor = TensorName::o) {
  VerdictRecord record{.case_id = "a/" + problem + "/dtype=" + dtype,
                       .testee = "mine",
                       .dtype = dtype,
                       .problem = problem,
                       .verdict = {}};
  record.verdict.outcome = Outcome::fail;
  record.verdict.reason = "bound";
  record.verdict.blamed = blamed;
  record.verdict.tensors[tensor] = {.max_ratio = 7};
  return record;
}

TEST(GroupsTest, AlikeFailuresOfAllFormatsAreOneGroupBehindTheSimplest) {
  Record record;
  record.verdicts = {failure("b1 h2/1 q8 k8 causal sink", "MASK-3"),
                     failure("b1 q8 k8 causal", "MASK-3", "bf16"),
                     failure("b1 q8 k8 causal", "MASK-3", "f16"),
                     failure("b1 q8", "LSE-1", "f32", TensorName::lse)};
  const Digest d = digest(record);
  const std::vector<FailureGroup> groups = failure_groups(d);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(headline_clause(groups[0].simplest().verdict), "LSE-1");
  EXPECT_EQ(others_text(groups[0]), "");
  EXPECT_EQ(&groups[1].simplest(), &record.verdicts[1]);
  EXPECT_EQ(others_text(groups[1]), "2 like it, in f32, bf16, f16");
}

TEST(GroupsTest, OtherTensorsClausesAndTesteesAreOtherGroups) {
  Record record;
  record.verdicts = {failure("p", "MASK-3"), failure("p", "MASK-3", "f32", TensorName::dq),
                     failure("p", "MASK-2"), failure("p", "MASK-3")};
  record.verdicts.back().testee = "another";
  EXPECT_EQ(failure_groups(digest(record)).size(), 4u);
}

TEST(GroupsTest, DiagnosisOfAnyFailureIsThatOfItsGroup) {
  Record record;
  record.verdicts = {failure("b1 q8", "MASK-3"), failure("b1 q8 k8", "MASK-3"),
                     failure("b1 q8", "LSE-1", "f32", TensorName::lse)};
  record.diagnoses = {{.testee = "mine",
                       .case_id = record.verdicts[1].case_id,
                       .headline = "O is exactly what no mask (MASK-1) gives",
                       .passes_without = {"a sink", "a bias"}},
                      {.testee = "another", .case_id = record.verdicts[2].case_id, .headline = "x"},
                      {.testee = "mine", .case_id = record.verdicts[2].case_id}};
  const Digest d = digest(record);
  const std::vector<FailureGroup> groups = failure_groups(d);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(diagnosis_line(d, groups[0]),
            "diagnosis: O is exactly what no mask (MASK-1) gives; passes without a sink; without a "
            "bias");
  EXPECT_EQ(diagnosis_line(d, groups[1]), "") << "of another testee, or nothing known";
}

TEST(GroupsTest, AllReportsThatShowGroupsShowTheirDiagnosis) {
  Record record = record_of({failure("b1 q8", "MASK-3")}, "not conformant");
  record.verdicts[0].testee = "naive";
  EXPECT_THAT(to_summary_markdown(record), Not(HasSubstr("diagnosis")));
  record.diagnoses = {
      {.testee = "naive", .case_id = record.verdicts[0].case_id, .passes_without = {"a sink"}}};
  EXPECT_THAT(to_summary_text(record), HasSubstr("\n    diagnosis: passes without a sink\n"));
  EXPECT_THAT(to_summary_markdown(record), HasSubstr("\n  - diagnosis: passes without a sink\n"));
  EXPECT_THAT(shown_of(to_html(record)),
              HasSubstr("<dt>Did you mean</dt><dd>passes without a sink</dd>"));
}

TEST(GroupsTest, HeadlineIsWhatIsBlamedOrElseWhatIsCitedFirst) {
  Verdict v;
  EXPECT_EQ(headline_clause(v), "");
  v.clauses = {"MASK-3", "NUM-1"};
  EXPECT_EQ(headline_clause(v), "MASK-3");
  v.blamed = "LSE-1";
  EXPECT_EQ(headline_clause(v), "LSE-1");
  EXPECT_EQ(clause_with_title("LSE-2"), "LSE-2 — LSE is f32, and f64 for f64");
  EXPECT_EQ(clause_with_title("MINE-1"), "MINE-1");
}

}  // namespace
}  // namespace attest
