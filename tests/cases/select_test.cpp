#include <gmock/gmock.h>

#include "cases/case.h"
#include "spec/json_reader.h"
#include "spec/pattern.h"

namespace attest {
namespace {

using testing::HasSubstr;

std::vector<Case> some_cases() {
  std::vector<Case> cases;
  for (const char* id : {"mask/causal/square/dtype=f32/data=normal/s=1",
                         "mask/causal/square/dtype=bf16/data=normal/s=1",
                         "mask/window/wide/left=3/dtype=f32/data=normal/s=1"}) {
    cases.push_back({.id = id, .clauses = {}, .because = "", .problem = {}, .data = "normal"});
  }
  return cases;
}

TEST(FindCaseTest, TakesAnySeed) {
  const Case found = find_case(some_cases(), "mask/causal/square/dtype=bf16/data=normal/s=42");
  EXPECT_EQ(found.id, "mask/causal/square/dtype=bf16/data=normal/s=42");
  EXPECT_EQ(found.seed, 42u);
}

TEST(FindCaseTest, KeepsTheSeedOfTheCaseIfNoneIsGiven) {
  EXPECT_EQ(find_case(some_cases(), "mask/causal/square/dtype=f32/data=normal").id,
            "mask/causal/square/dtype=f32/data=normal/s=1");
}

TEST(FindCaseTest, NamesTheNearestCases) {
  try {
    find_case(some_cases(), "mask/causal/sqare/dtype=bf16/data=normal/s=1");
    FAIL() << "no such case";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("the nearest:\n  mask/causal/square/dtype=bf16/data=normal"));
  }
}

TEST(FindCaseTest, RefusesASeedThatIsNoNumber) {
  EXPECT_THROW(find_case(some_cases(), "mask/causal/square/dtype=f32/data=normal/s=x"), InputError);
  EXPECT_THROW(find_case(some_cases(), "mask/causal/square/dtype=f32/data=normal/s="), InputError);
}

TEST(MatchesTest, PlainPatternMatchesItselfAndAllBelow) {
  EXPECT_TRUE(matches("mask/causal/square/s=1", "mask"));
  EXPECT_TRUE(matches("mask/causal/square/s=1", "mask/causal/"));
  EXPECT_TRUE(matches("mask/causal/square/s=1", "mask/causal/square/s=1"));
  EXPECT_FALSE(matches("mask/causal/square/s=1", "mask/caus"));
  EXPECT_FALSE(matches("mask/causal/square/s=1", "causal"));
  EXPECT_FALSE(matches("mask/causal", "mask/causal/square"));
}

TEST(MatchesTest, StarStaysWithinAnElement) {
  EXPECT_TRUE(matches("mask/causal/square", "mask/*/square"));
  EXPECT_TRUE(matches("mask/causal/square", "mask/c*l/*"));
  EXPECT_FALSE(matches("mask/causal/square", "mask/*"));
  EXPECT_FALSE(matches("mask/causal/square", "*square"));
}

TEST(MatchesTest, TwoStarsCrossElements) {
  EXPECT_TRUE(matches("mask/causal/square/dtype=bf16/s=1", "mask/**"));
  EXPECT_TRUE(matches("mask/causal/square/dtype=bf16/s=1", "**/dtype=bf16/**"));
  EXPECT_TRUE(matches("mask/causal/square/dtype=bf16/s=1", "**"));
  EXPECT_FALSE(matches("mask/causal/square/dtype=f16/s=1", "**/dtype=bf16/**"));
}

}  // namespace
}  // namespace attest
