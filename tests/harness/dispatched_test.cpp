// A testee's own dispatch: which cases are fitted to meet its instances.
#include "harness/run/dispatched.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "harness/run/asking.h"
#include "spec/json_text.h"
#include "tests/cases/case_folder.h"

namespace attest {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class DispatchedTest : public testing::Test {
 protected:
  DispatchedTest() {
    folder_.write("own.json", R"({
      "about": "Cases of our own.",
      "defaults": {"dtypes": ["f16"], "data": ["normal"]},
      "cases": [
        {"name": "plain", "clauses": ["SOFTMAX-1"], "because": "Of any sizes.",
         "problem": {"query_len": 16, "key_len": 16},
         "for": {"head_dim": [8, 9, 10, 11, 12, 13, 14, 15], "mask": ["full", "causal"]}},
        {"name": "gradients", "clauses": ["GRAD-1"], "because": "Likewise.",
         "problem": {"query_len": 16, "key_len": 16, "backward": true},
         "for": {"head_dim": [8, 9]}},
        {"name": "groups", "clauses": ["HEAD-1"], "because": "What needs groups.",
         "problem": {"query_heads": 4, "query_len": 16, "key_len": 16, "head_dim": 8},
         "for": {"key_heads": [1, 2]}}]})");
    testee_.name = "k";
    testee_.description.dtypes = {DType::f16};
    testee_.description.features = {"backward", "causal", "gqa", "lse"};
  }

  void declare(const std::string& tables) {
    testee_.description.dispatch = parse_dispatches(parse_json(tables), "/dispatch");
    asking_.emplace(folder_.load(), std::vector<Testee>{testee_}, folder_.path());
  }
  std::vector<Case> asked() const { return asking_->asked("k", folder_.load()); }
  // How many of them are in each instance of the only table.
  std::map<DispatchClasses, int> by_instance() const {
    std::map<DispatchClasses, int> counts;
    for (const Case& c : asked()) {
      const auto instance = testee_.description.dispatch[0].instance_of(c.problem);
      if (instance) ++counts[*instance];
    }
    return counts;
  }
  DispatchMet met() const { return asking_->dispatch_met("k").at(0); }

  CaseFolder folder_;
  Testee testee_;
  std::optional<Asking> asking_;
};

TEST_F(DispatchedTest, EachInstanceIsMetByNearlyAsManyCases) {
  declare(R"([{"name": "a", "passes": "forward",
               "points": [{"of": "head_dim", "up_to": [64, 96, 128]},
                          {"of": "mask", "values": ["full", "causal"]}]}])");
  const auto counts = by_instance();
  ASSERT_THAT(counts, SizeIs(6));
  for (const auto& [instance, count] : counts) EXPECT_GE(count, 2);
  EXPECT_THAT(asked(), SizeIs(20)) << "none was added, and none lost";
  EXPECT_EQ(met().met, 6u);
  EXPECT_EQ(met().fewest, 2u);
  EXPECT_THAT(met().beyond, IsEmpty());
}

// Those in it that differ in nothing else would run once.
TEST_F(DispatchedTest, NumbersAreTheSmallestAndTheLargestOfAClassInTurn) {
  declare(R"([{"name": "a", "passes": "forward", "points":
               [{"of": "head_dim", "up_to": [64, 96]}, {"of": "key_len", "up_to": [16]}]}])");
  std::map<Index, int> dims;
  for (const Case& c : asked()) ++dims[c.problem.head_dim];
  EXPECT_GE(dims[65], 2);
  EXPECT_GE(dims[96], 2);
}

TEST_F(DispatchedTest, WhatIsFittedSaysSoInItsIdAndCitesAllThatItDid) {
  declare(R"([{"name": "a", "passes": "forward",
               "points": [{"of": "head_dim", "up_to": [64, 96]},
                          {"of": "group", "values": [1, "some", "all"]}]}])");
  int fitted = 0;
  for (const Case& c : asked()) {
    const bool is_fitted = c.id.find("/fit=") != std::string::npos;
    fitted += is_fitted;
    EXPECT_EQ(is_fitted, c.problem.head_dim > 64) << c.id;
    EXPECT_THAT(c.clauses, Not(IsEmpty())) << c.id;
  }
  EXPECT_GT(fitted, 0);
  // Cases of groups are two: each is needed where it is, and would cite nothing without them.
  EXPECT_THAT(met().beyond, ElementsAre(ElementsAre("head_dim in (64,96]", "group some"),
                                        ElementsAre("head_dim in (64,96]", "group all")));
}

TEST_F(DispatchedTest, ABackwardTableIsMetByGradientsAndSeveralTablesAreTogether) {
  declare(R"([{"name": "f", "passes": "forward", "points": [{"of": "key_len", "up_to": [16, 64]}]},
              {"name": "b", "passes": "backward",
               "points": [{"of": "head_dim", "up_to": [8, 9, 32]}]}])");
  const auto met = asking_->dispatch_met("k");
  EXPECT_EQ(met[0].met, 2u);
  EXPECT_EQ(met[1].met, 2u) << "there are two cases of gradients";
  EXPECT_THAT(met[1].beyond, ElementsAre(ElementsAre("head_dim in (9,32]")));
}

TEST_F(DispatchedTest, WhatTheDeclarationLeavesNoProblemForIsNoInstance) {
  declare(R"([{"name": "a", "passes": "forward",
               "points": [{"of": "mask", "values": ["full", "causal", "window"]},
                          {"of": "sink", "values": [false, true]},
                          {"of": "dtype", "values": ["f16", "f32"]}]}])");
  EXPECT_EQ(met().met, 2u);
  EXPECT_THAT(met().beyond, IsEmpty());
}

TEST_F(DispatchedTest, WhatIsLongStaysAsItIs) {
  folder_.write("long.json", R"({
    "about": "Long.", "defaults": {"dtypes": ["f16"], "data": ["normal"]},
    "cases": [{"name": "long", "clauses": ["SOFTMAX-1"], "because": "Of many keys.",
               "problem": {"query_len": 1, "key_len": 1025},
               "for": {"head_dim": [8, 9, 10, 11, 12, 13, 14, 15]}}]})");
  declare(R"([{"name": "a", "passes": "forward", "points":
               [{"of": "key_len", "up_to": [20, 1100]}, {"of": "head_dim", "up_to": [15, 16]}]}])");
  for (const Case& c : folder_.load()) {
    if (c.problem.key_len <= 1024) continue;
    EXPECT_EQ(asking_->instead("k", c.id), nullptr) << c.id;
  }
  EXPECT_EQ(met().met, 4u);
}

TEST_F(DispatchedTest, WithoutATableNothingIsFitted) {
  declare("[]");
  for (const Case& c : folder_.load()) EXPECT_EQ(asking_->instead("k", c.id), nullptr);
  EXPECT_THAT(asking_->dispatch_met("k"), IsEmpty());
}

}  // namespace
}  // namespace attest
