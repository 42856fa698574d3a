#include "harness/diagnosis/culprit.h"

#include <gtest/gtest.h>

namespace attest {
namespace {

Verdict blaming(const std::string& clause) {
  return {.outcome = Outcome::fail, .reason = "bound", .blamed = clause};
}

Case citing(std::vector<std::string> clauses) {
  return {.id = "test", .clauses = std::move(clauses), .because = "", .problem = {}, .data = ""};
}

TEST(CulpritTest, WhatItPassesWithoutIsBlamed) {
  const Case test_case = citing({"SOFTMAX-1", "SCORE-2", "SCORE-3"});
  EXPECT_EQ(culprit(blaming("SCORE-2"), test_case, {},
                    {{"a bias", {"SCORE-3"}, true}, {"a softcap", {"SCORE-2"}, false}}),
            "SCORE-3");
}

TEST(CulpritTest, WhatItFailsWithoutIsNotBlamed) {
  const Case test_case = citing({"SCORE-2", "SOFTMAX-1"});
  const std::vector<Relief> reliefs = {{"a softcap", {"SCORE-2"}, false}};
  EXPECT_EQ(culprit(blaming("SCORE-2"), test_case, {}, reliefs), "SOFTMAX-1");
  EXPECT_EQ(culprit(blaming("SCORE-2"), citing({"SCORE-2"}), {}, reliefs), "SCORE-2");
}

TEST(CulpritTest, VerdictIsBelievedWhereItPassesWithoutThat) {
  const Case test_case = citing({"SCORE-2", "SCORE-3"});
  EXPECT_EQ(culprit(blaming("SCORE-3"), test_case, {},
                    {{"a softcap", {"SCORE-2"}, true}, {"a bias", {"SCORE-3"}, true}}),
            "SCORE-3");
}

TEST(CulpritTest, MistakeThatMatchesIsBlamedBeforeAll) {
  const Case test_case = citing({"PAGE-1", "SCORE-1"});
  const Likeness twice = {.name = "the scale twice", .clause = "SCORE-1", .tensors = {}};
  EXPECT_EQ(culprit(blaming("PAGE-1"), test_case, {twice}, {{"pages", {"PAGE-1"}, true}}),
            "SCORE-1");
}

TEST(CulpritTest, OneOfTheMistakesThatCannotBeToldApartIsBlamed) {
  const Likeness mask = {.name = "no mask", .clause = "MASK-1", .tensors = {}};
  const Likeness diagonal = {.name = "no diagonal", .clause = "MASK-2", .tensors = {}};
  const Likeness twice = {.name = "the scale twice", .clause = "SCORE-1", .tensors = {}};
  const std::vector<Likeness> all = {mask, diagonal, twice};
  EXPECT_EQ(culprit(blaming("MASK-3"), citing({"MASK-3"}), all, {}), "MASK-1");
  EXPECT_EQ(culprit(blaming("MASK-2"), citing({"MASK-3"}), all, {}), "MASK-2");
  EXPECT_EQ(culprit(blaming("MASK-3"), citing({"MASK-3"}), all, {{"a scale", {"SCORE-1"}, true}}),
            "SCORE-1");
  EXPECT_EQ(culprit(blaming("MASK-1"), citing({"MASK-2"}), all, {}), "MASK-2") << "it is cited";
}

TEST(CulpritTest, PartOfAMaskIsBlamedIfItAloneMatters) {
  const Case test_case = citing({"MASK-7", "MASK-11", "MASK-9"});
  const Relief whole = {kAMask, {"MASK-9"}, true};
  const Relief table = {"part 1", {"MASK-7"}, false, true};
  const Relief segments = {"part 2", {"MASK-11"}, true, true};
  EXPECT_EQ(culprit(blaming("MASK-7"), test_case, {}, {whole, table, segments}), "MASK-11");
}

TEST(CulpritTest, MistakesWhoseClauseIsBlamedAreToldFirst) {
  std::vector<Likeness> all = {{.name = "a", .clause = "MASK-1", .tensors = {}},
                               {.name = "b", .clause = "MASK-2", .tensors = {}},
                               {.name = "c", .clause = "LSE-1", .tensors = {}},
                               {.name = "d", .clause = "MASK-2", .tensors = {}}};
  put_first(all, "MASK-2");
  std::string names;
  for (const Likeness& each : all) names += each.name;
  EXPECT_EQ(names, "bdac");
}

TEST(CulpritTest, WhatIsNamedIsBlamedThoughTheCaseDoesNotCiteItOrRowsTellOfAnother) {
  const Likeness base = {.name = "LSE in base 2", .clause = "LSE-1", .tensors = {}};
  for (const char* blamed : {"SHAPE-1", "FINITE-1", "HIDE-1", "MASK-2", "SOFTMAX-2", "EMPTY-2"}) {
    EXPECT_EQ(culprit(blaming(blamed), citing({blamed}), {base}, {}), "LSE-1") << blamed;
  }
}

TEST(CulpritTest, NameThatIsDoubtedIsBlamedIfItIsCitedOrCuredAndRowsTellOfNothingElse) {
  const Likeness lost = {.name = "a key left out", .clause = "SOFTMAX-1", .tensors = {}};
  const auto doubted = [&](const char* blamed, const Case& cites,
                           const std::vector<Relief>& without) {
    return culprit(blaming(blamed), cites, {lost}, without, Names::doubted);
  };
  EXPECT_EQ(doubted("LSE-1", citing({"SOFTMAX-1"}), {}), "LSE-1");
  EXPECT_EQ(doubted("MASK-2", citing({"MASK-2"}), {}), "MASK-2");
  EXPECT_EQ(doubted("MASK-2", citing({"MASK-2", "SOFTMAX-1"}), {}), "SOFTMAX-1");
  EXPECT_EQ(doubted("MASK-2", citing({"MASK-2"}), {{"keys", {"SOFTMAX-1"}, true}}), "SOFTMAX-1");
}

TEST(CulpritTest, WhatIsNotOfNumbersStays) {
  Verdict guard = blaming("SAFE-1");
  guard.reason = "guard";
  EXPECT_EQ(culprit(guard, citing({"PAGE-1"}), {}, {{"pages", {"PAGE-1"}, true}}), "SAFE-1");
  EXPECT_EQ(culprit(blaming("EMPTY-1"), citing({"MASK-3"}), {}, {{"a mask", {"MASK-3"}, true}}),
            "EMPTY-1");
}

}  // namespace
}  // namespace attest
