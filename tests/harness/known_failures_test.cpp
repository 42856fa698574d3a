#include "harness/run/known_failures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "spec/json_reader.h"

namespace attest {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::vector<KnownFailure> known_in(const std::string& text) {
  const fs::path file = fs::path(testing::TempDir()) / "known.json";
  std::ofstream(file) << text;
  return read_known_failures(file);
}

std::string mistake_in(const std::string& text) {
  try {
    known_in(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(KnownFailuresFileTest, IsAListOrAnObjectWithOne) {
  const std::string list =
      R"([{"case": "mask/**", "testee": "fa2", "outcome": "FAIL", "reason": "bound", "link": "x"},
          {"case": "a", "outcome": "CRASH"}])";
  for (const std::string& text : {list, R"({"about": "x", "known": )" + list + "}"}) {
    const auto known = known_in(text);
    ASSERT_EQ(known.size(), 2u);
    EXPECT_EQ(known[0].cases, "mask/**");
    EXPECT_EQ(known[0].reason, "bound");
    EXPECT_EQ(known[1].outcome, Outcome::crash);
    EXPECT_EQ(known[1].testee, "");
  }
}

TEST(KnownFailuresFileTest, IsReadStrictlyWithFileAndLine) {
  EXPECT_THAT(mistake_in("[\n{\"case\": \"a\", \"outcome\": \"FAIL\",\n\"raeson\": \"bound\"}]"),
              HasSubstr("known.json:"));
  EXPECT_THAT(mistake_in("[\n\n{\"case\": \"a\", \"outcome\": \"FAILED\"}]"),
              HasSubstr("known.json:3: \"outcome\" is one of FAIL, CRASH, TIMEOUT, PROTOCOL_ERROR, "
                        "not \"FAILED\""));
  EXPECT_THAT(mistake_in(R"([{"case": "a", "outcome": "PASS"}])"),
              HasSubstr("\"outcome\" is one of"));
  EXPECT_THAT(mistake_in(R"([{"case": "a", "outcome": "FAIL"}])"), HasSubstr("\"reason\""));
  EXPECT_THAT(mistake_in(R"([{"case": "", "outcome": "CRASH"}])"), HasSubstr("\"case\" is empty"));
  EXPECT_THAT(mistake_in(R"({"knwon": []})"), HasSubstr("knwon"));
  EXPECT_THAT(mistake_in("{}"), HasSubstr("\"known\" is missing"));
  EXPECT_THAT(mistake_in("7"), HasSubstr("a list of known failures is needed"));
}

TEST(KnownFailuresFileTest, WrittenOfARecordItIsReadAsWhatFailed) {
  Record record;
  record.header.known = {{.cases = "b", .outcome = Outcome::crash, .link = "https://a.b"}};
  for (const auto& [id, outcome] : {std::pair{"a", Outcome::fail}, std::pair{"b", Outcome::crash},
                                    std::pair{"c", Outcome::pass}}) {
    VerdictRecord v{.case_id = id, .testee = "fa2", .dtype = "f32", .verdict = {}};
    v.verdict.outcome = outcome;
    if (outcome == Outcome::fail) v.verdict.reason = "bound";
    record.verdicts.push_back(v);
  }
  const auto known = known_in(known_failures_of(record));
  ASSERT_EQ(known.size(), 2u);
  EXPECT_EQ(known[0].cases, "a");
  EXPECT_EQ(known[0].testee, "fa2");
  EXPECT_EQ(known[0].reason, "bound");
  EXPECT_EQ(known[1].link, "https://a.b") << "what was known of it is kept";
}

}  // namespace
}  // namespace attest
