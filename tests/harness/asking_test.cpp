#include "harness/run/asking.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/contains.h"
#include "tests/cases/case_folder.h"

namespace attest {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// What a testee is asked in place of the cases of a file, by their names.
class AskingTest : public testing::Test {
 protected:
  AskingTest() {
    folder_.write("own.json", R"({
      "about": "Cases of our own.",
      "defaults": {"dtypes": ["f16"], "data": ["normal"]},
      "cases": [
        {"name": "narrow", "clauses": ["MASK-1"], "because": "Narrow.",
         "problem": {"query_len": 16, "key_len": 16, "head_dim": 16}},
        {"name": "wider", "clauses": ["MASK-1"], "because": "Wider.",
         "problem": {"query_len": 17, "key_len": 16, "head_dim": 16}},
        {"name": "alike", "clauses": ["MASK-1"], "because": "As the one before.",
         "problem": {"query_len": 18, "key_len": 16, "head_dim": 16}},
        {"name": "more_is_cited", "clauses": ["MASK-1", "SOFTMAX-1"], "because": "Likewise.",
         "problem": {"query_len": 19, "key_len": 16, "head_dim": 16}},
        {"name": "another_class", "clauses": ["MASK-1"], "because": "Likewise.",
         "data": ["std10"], "problem": {"query_len": 18, "key_len": 16, "head_dim": 16}},
        {"name": "prefix_of_7", "clauses": ["MASK-10"], "because": "A table of numbers.",
         "problem": {"query_len": 17, "key_len": 16, "head_dim": 16, "mask": "prefix 7"}},
        {"name": "prefix_of_9", "clauses": ["MASK-10"], "because": "Another one.",
         "problem": {"query_len": 18, "key_len": 16, "head_dim": 16, "mask": "prefix 9"}},
        {"name": "with_gaps", "clauses": ["LAYOUT-1"], "because": "They differ in layouts alone.",
         "problem": {"query_len": 17, "key_len": 16, "head_dim": 16},
         "for": {"layouts": ["bhsd gap=3", "bhsd gap=5", {"v": "bhsd gap=3"}]}},
        {"name": "of_lengths", "clauses": ["MASK-5"], "because": "In lengths alone.",
         "problem": {"query_len": 17, "key_len": 16, "head_dim": 16},
         "for": {"key_lens": [[7], [9]]}},
        {"name": "with_bias", "clauses": ["SCORE-3"], "because": "In a shape, or in what it holds.",
         "problem": {"query_len": 17, "key_len": 16, "head_dim": 16},
         "for": {"bias": [{"kind": "normal"}, {"kind": "ramp"}, {"kind": "normal", "axes": "k"}]}},
        {"name": "windowed", "clauses": ["MASK-4"], "because": "It needs more.",
         "problem": {"query_heads": 4, "key_heads": 2, "mask": "window -3..0"}},
        {"name": "long", "clauses": ["MASK-1"], "because": "It is long.",
         "problem": {"query_heads": 2, "key_heads": 1, "query_len": 1, "key_len": 16385,
                     "head_dim": 1}},
        {"name": "pinned", "clauses": ["MASK-1"], "because": "One query.", "pin": ["query_len"],
         "problem": {"query_len": 1, "key_len": 16, "head_dim": 16}},
        {"name": "groups", "clauses": ["HEAD-1"], "because": "Groups.",
         "problem": {"query_heads": 2, "query_len": 16, "key_len": 16, "head_dim": 16}},
        {"name": "groups_pinned", "clauses": ["HEAD-1"], "because": "One query.",
         "pin": ["query_len"],
         "problem": {"query_heads": 2, "query_len": 1, "key_len": 16, "head_dim": 16}},
        {"name": "single", "clauses": ["FORMAT-2"], "because": "Of another format.",
         "dtypes": ["f32"]}]})");
    testee_.name = "narrow";
    testee_.description.dtypes = {DType::f16};
    testee_.description.features = {"prefix", "strides", "lengths", "bias"};
    testee_.description.limits.always.emplace_back().sizes.emplace(Size::query_len,
                                                                   SizeSet::listed({16, 32}));
  }

  // Null: the case itself.
  const Asking::Instead* instead(const std::string& name) {
    if (!asking_) asking_.emplace(folder_.load(), std::vector<Testee>{testee_}, folder_.path());
    for (const Case& c : folder_.load()) {
      if (c.id.starts_with("own/" + name + "/")) return asking_->instead("narrow", c.id);
    }
    throw std::runtime_error("no case " + name);
  }
  Verdict verdict(const std::string& name) { return instead(name)->verdict; }

  CaseFolder folder_;
  Testee testee_;
  std::optional<Asking> asking_;
};

TEST_F(AskingTest, WhatIsAdmittedIsAskedAsItIsAndWhatIsNotIsFitted) {
  EXPECT_EQ(instead("narrow"), nullptr);
  ASSERT_TRUE(instead("wider")->fitted);
  EXPECT_EQ(instead("wider")->fitted->problem.query_len, 32);
  EXPECT_TRUE(instead("wider")->fitted->id.ends_with("/s=1/fit=sq:32"));
}

TEST_F(AskingTest, WhatHasBecomeAlikeRunsOnceUnlessItCitesMore) {
  EXPECT_FALSE(instead("alike")->fitted);
  EXPECT_EQ(verdict("alike").reason, "alike");
  EXPECT_EQ(verdict("alike").message, instead("wider")->fitted->id);
  EXPECT_TRUE(instead("more_is_cited")->fitted);
  EXPECT_TRUE(instead("another_class")->fitted);
}

TEST_F(AskingTest, CasesWhoseMasksDifferInTheirTablesAloneAreNotAlike) {
  EXPECT_TRUE(instead("prefix_of_7")->fitted);
  EXPECT_TRUE(instead("prefix_of_9")->fitted);
}

TEST_F(AskingTest, CasesThatDifferInLayoutsLengthsOrBiasAloneAreNotAlike) {
  asking_.emplace(folder_.load(), std::vector<Testee>{testee_}, folder_.path());
  int fitted = 0;
  for (const Case& c : folder_.load()) {
    if (c.id.find("with_") == std::string::npos && c.id.find("of_lengths") == std::string::npos)
      continue;
    ASSERT_NE(asking_->instead("narrow", c.id), nullptr) << c.id;
    EXPECT_TRUE(asking_->instead("narrow", c.id)->fitted) << c.id;
    ++fitted;
  }
  EXPECT_EQ(fitted, 8);
}

TEST_F(AskingTest, WhatIsMissingAndCannotBeLeftOutIsNamed) {
  const Verdict v = verdict("windowed");
  EXPECT_EQ(v.outcome, Outcome::unsupported);
  EXPECT_EQ(v.reason, "undeclared");
  EXPECT_EQ(v.message, "window") << "it can be fitted to as many key heads";
  EXPECT_THAT(v.clauses, Contains("MASK-4"));
  EXPECT_EQ(verdict("single").message, "f32");
}

TEST_F(AskingTest, WhatIsTooLongAloneIsDemandedOfNobody) {
  const Verdict v = verdict("long");
  EXPECT_EQ(v.reason, "undeclared");
  EXPECT_EQ(v.message, "long");
  EXPECT_THAT(v.clauses, IsEmpty());
}

// The features that are absent here would not help.
TEST_F(AskingTest, ALimitIsNamedWhereItIsInTheWayOfAllThatIsAbsent) {
  EXPECT_EQ(verdict("groups_pinned").reason, "limits");
  EXPECT_THAT(verdict("groups_pinned").message, StartsWith("query_len 1: takes one of 16, 32"));
  EXPECT_EQ(verdict("groups").reason, "undeclared");
  EXPECT_EQ(verdict("groups").message, "gqa");
}

TEST_F(AskingTest, ALimitOfAFormatIsNoFeatureThatIsAbsent) {
  testee_.description.features = {"prefix", "window"};
  testee_.description.limits.formats[DType::f16].emplace_back().features =
      std::vector<std::string>{"prefix"};
  const Verdict v = verdict("windowed");
  EXPECT_EQ(v.reason, "limits");
  EXPECT_EQ(v.message, "window: not taken in f16");
}

TEST_F(AskingTest, ALimitIsNamed) {
  const Verdict v = verdict("pinned");
  EXPECT_EQ(v.reason, "limits");
  EXPECT_EQ(v.message,
            "query_len 1: takes one of 16, 32; with sq:16: the case is about its query_len of 1");
}

}  // namespace
}  // namespace attest
