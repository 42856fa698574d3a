#include "spec/spelling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attest {
namespace {

using testing::ElementsAre;

TEST(SpellingTest, DistanceCountsASwapOfNeighboursOnce) {
  EXPECT_EQ(edit_distance("run", "run"), 0u);
  EXPECT_EQ(edit_distance("rnu", "run"), 1u);
  EXPECT_EQ(edit_distance("", "run"), 3u);
  EXPECT_EQ(edit_distance("testees", "testee"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(SpellingTest, RanksNamesByEdits) {
  EXPECT_THAT(nearest_names("casual", {"window", "causal", "full", "causal"}, 2),
              ElementsAre("causal", "full"));
  EXPECT_THAT(nearest_names("x", {}), ElementsAre());
  EXPECT_THAT(nearest_names("ab", {"ba", "ab", "abc"}), ElementsAre("ab", "abc", "ba"));
}

TEST(SpellingTest, NamesTheNearestAloneWhereOneIsNear) {
  const std::vector<std::string> names = {"list", "run", "fuzz", "report", "repro"};
  EXPECT_EQ(did_you_mean("rnu", names), "did you mean run?");
  EXPECT_EQ(did_you_mean("reprot", names), "did you mean report or repro?");
  EXPECT_EQ(did_you_mean("fu", names), "there are list, run, fuzz, report, repro");
  EXPECT_EQ(did_you_mean("rep", names), "did you mean repro or report?");
  EXPECT_EQ(did_you_mean("compile", names), "there are list, run, fuzz, report, repro");
}

TEST(SpellingTest, CapitalsAreNoMistake) {
  const std::vector<std::string> names = {"DET-3", "MASK-3", "MASK-31"};
  EXPECT_EQ(did_you_mean("mask-3", names), "did you mean MASK-3?");
  EXPECT_EQ(did_you_mean("MASK", {"causal", "mask-and"}), "did you mean mask-and?");
}

TEST(SpellingTest, OfManyNamesThatAreAllFarItNamesTheNearestFew) {
  const std::vector<std::string> many(31, "a_kernel");
  EXPECT_EQ(did_you_mean("something_else", many), "of 31, the nearest are a_kernel");
}

}  // namespace
}  // namespace attest
