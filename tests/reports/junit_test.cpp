#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reports/reports.h"
#include "reports/text.h"
#include "tests/reports/samples.h"

namespace attest {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string xml_of(Outcome outcome, const std::string& conclusion = "not conformant") {
  VerdictRecord v{.case_id = "mask/a", .testee = "naive", .dtype = "f32", .verdict = {}};
  v.verdict = {.outcome = outcome,
               .reason = outcome == Outcome::fail ? "bound" : "",
               .message = "as it is",
               .clauses = {"MASK-2"},
               .repro = "attest repro mask/a",
               .captured = "printed"};
  return to_junit_xml(record_of({v}, conclusion));
}

TEST(JunitTest, PassesAndWarningsAreGreen) {
  EXPECT_THAT(xml_of(Outcome::pass, "conformant"),
              HasSubstr("tests=\"1\" failures=\"0\" errors=\"0\" skipped=\"0\""));
  const std::string warned = xml_of(Outcome::warn, "conformant");
  EXPECT_THAT(warned, HasSubstr("tests=\"1\" failures=\"0\" errors=\"0\" skipped=\"0\""));
  EXPECT_THAT(warned, HasSubstr("<system-out>WARN: as it is"));
}

TEST(JunitTest, RefusalsAreSkipped) {
  EXPECT_THAT(xml_of(Outcome::unsupported), HasSubstr("<skipped message=\"as it is\">"));
}

TEST(JunitTest, FailuresCarryMessageReproAndWhatWasPrinted) {
  const std::string xml = xml_of(Outcome::fail);
  EXPECT_THAT(xml, HasSubstr("<failure message=\"FAIL (bound): as it is\" type=\"bound\">"));
  EXPECT_THAT(xml, HasSubstr("repeat with: attest repro mask/a"));
  EXPECT_THAT(xml, HasSubstr("<system-err>printed</system-err>"));
  EXPECT_THAT(xml_of(Outcome::inconclusive),
              HasSubstr("<failure message=\"INCONCLUSIVE: as it is\""));
}

TEST(JunitTest, WhatCouldNotBeJudgedIsAnError) {
  for (const Outcome outcome : {Outcome::crash, Outcome::timeout, Outcome::protocol_error,
                                Outcome::harness_error, Outcome::not_run}) {
    const std::string type = "type=\"" + std::string(name(outcome)) + "\"";
    const std::string xml = xml_of(outcome);
    EXPECT_THAT(
        xml, HasSubstr("<error message=\"" + std::string(name(outcome)) + ": as it is\" " + type));
    EXPECT_THAT(xml, HasSubstr("tests=\"1\" failures=\"0\" errors=\"1\" skipped=\"0\""));
  }
}

TEST(JunitTest, RunThatIsNotConformantIsNeverGreen) {
  const std::string added = "<testcase classname=\"attest\" name=\"conclusion\">";
  EXPECT_THAT(to_junit_xml(conformant_record()), Not(HasSubstr(added)));
  EXPECT_THAT(to_junit_xml(realistic_record()), Not(HasSubstr(added)));
  EXPECT_THAT(to_junit_xml(truncated_record()), HasSubstr(added));
  EXPECT_THAT(to_junit_xml(empty_record()), HasSubstr(added));
  EXPECT_THAT(xml_of(Outcome::unsupported), HasSubstr(added));
  EXPECT_THAT(xml_of(Outcome::pass, ""), HasSubstr(added));
}

TEST(JunitTest, HoldsNothingThatXmlForbids) {
  const std::string xml = to_junit_xml(hostile_record());
  EXPECT_EQ(clean(xml), xml);
  EXPECT_THAT(xml, Not(HasSubstr("<script")));
  EXPECT_THAT(xml, Not(HasSubstr("]]>")));
}

TEST(JunitTest, ClassesFoldByTesteeAndTopic) {
  EXPECT_THAT(xml_of(Outcome::pass), HasSubstr("classname=\"naive.mask\" name=\"mask/a\""));
}

}  // namespace
}  // namespace attest
