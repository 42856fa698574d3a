// A testee's own dispatch: which forms of cases are asked to meet its instances.
#include "harness/run/dispatched.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "cases/fit.h"
#include "harness/run/asking.h"
#include "spec/json_text.h"
#include "tests/cases/case_folder.h"

namespace attest {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
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

TEST_F(DispatchedTest, EachInstanceIsMetBySeveralCasesAndWhatWasAskedStaysAsItIs) {
  declare(R"([{"name": "a", "passes": "forward",
               "points": [{"of": "head_dim", "up_to": [64, 96, 128]},
                          {"of": "mask", "values": ["full", "causal"]}]}])");
  const auto counts = by_instance();
  ASSERT_THAT(counts, SizeIs(6));
  for (const auto& [instance, count] : counts) EXPECT_GE(count, 2);
  EXPECT_EQ(met().met, 6u);
  EXPECT_EQ(met().fewest, 2u) << "the smallest and the largest of a class: more would be alike";
  EXPECT_THAT(met().beyond, IsEmpty());
  for (const Case& c : folder_.load()) EXPECT_EQ(asking_->instead("k", c.id), nullptr) << c.id;
}

TEST_F(DispatchedTest, NumbersAreTheSmallestAndTheLargestOfAClass) {
  declare(R"([{"name": "a", "passes": "forward", "points":
               [{"of": "head_dim", "up_to": [64, 96]}, {"of": "key_len", "up_to": [16]}]}])");
  std::map<Index, int> dims;
  for (const Case& c : asked()) ++dims[c.problem.head_dim];
  EXPECT_GE(dims[65], 1);
  EXPECT_GE(dims[96], 1);
}

TEST_F(DispatchedTest, FormsSayWhatWasFittedAndAreAskedBesideTheirCase) {
  declare(R"([{"name": "a", "passes": "forward",
               "points": [{"of": "head_dim", "up_to": [64, 96]},
                          {"of": "group", "values": [1, "some", "all"]}]}])");
  std::size_t forms = 0;
  for (const Case& c : folder_.load()) {
    for (const Case* const form : asking_->besides("k", c.id)) {
      EXPECT_EQ(base_id(form->id), c.id);
      EXPECT_FALSE(fit_of(form->id).empty());
      ++forms;
    }
  }
  EXPECT_GE(forms, 3u);
  EXPECT_THAT(asked(), SizeIs(folder_.load().size() + forms));
  EXPECT_EQ(met().met, 6u);
}

TEST_F(DispatchedTest, ABackwardTableIsMetByGradientsAndSeveralTablesAreTogether) {
  declare(R"([{"name": "f", "passes": "forward", "points": [{"of": "key_len", "up_to": [16, 64]}]},
              {"name": "b", "passes": "backward",
               "points": [{"of": "head_dim", "up_to": [8, 9, 32]}]}])");
  const auto met = asking_->dispatch_met("k");
  EXPECT_EQ(met[0].met, 2u);
  EXPECT_EQ(met[1].met, 3u);
}

TEST_F(DispatchedTest, WhatTheDeclarationLeavesNoProblemForIsNoInstance) {
  declare(R"([{"name": "a", "passes": "forward",
               "points": [{"of": "mask", "values": ["full", "causal", "window"]},
                          {"of": "sink", "values": [false, true]},
                          {"of": "dtype", "values": ["f16", "f32"]}]}])");
  EXPECT_EQ(met().met, 2u);
  EXPECT_THAT(met().beyond, IsEmpty());
}

TEST_F(DispatchedTest, WhatLimitsOrOtherPointsExcludeIsNoInstance) {
  testee_.description.limits =
      parse_limits(parse_json(R"({"head_dim": {"min": 64, "max": 128}})"), "",
                   testee_.description.dtypes, testee_.description.features);
  declare(R"([{"name": "limits", "passes": "forward",
               "points": [{"of": "head_dim", "up_to": [32, 64, 128, 256]}]},
              {"name": "twice", "passes": "forward",
               "points": [{"of": "key_len", "up_to": [16, 64]},
                          {"of": "key_len", "values": [16, 32]}]}])");
  const auto met = asking_->dispatch_met("k");
  EXPECT_EQ(met[0].met, 2u);
  EXPECT_THAT(met[0].beyond, IsEmpty());
  EXPECT_EQ(met[1].met, 2u);
  EXPECT_THAT(met[1].beyond, IsEmpty());
}

TEST_F(DispatchedTest, APageSizeOf0IsOfProblemsWithoutPages) {
  declare(R"([{"name": "a", "passes": "forward",
               "points": [{"of": "page_size", "up_to": [16, 256]}]},
              {"name": "b", "passes": "forward",
               "points": [{"of": "page_size", "values": [0, 16]}]}])");
  for (const DispatchMet& met : asking_->dispatch_met("k")) {
    EXPECT_EQ(met.met, 1u) << met.table;
    EXPECT_THAT(met.beyond, IsEmpty()) << met.table;
  }
}

TEST_F(DispatchedTest, WithoutABackwardPassItsTableHasNoInstance) {
  std::erase(testee_.description.features, "backward");
  declare(R"([{"name": "b", "passes": "backward",
               "points": [{"of": "head_dim", "up_to": [8, 32]}]}])");
  EXPECT_EQ(met().met, 0u);
  EXPECT_THAT(met().beyond, IsEmpty());
}

// What a testee doesn't promise, or a law that can't be tried, leaves them UNSUPPORTED.
TEST_F(DispatchedTest, CasesOfLawsAndPromisesMeetNoInstance) {
  folder_.write("own.json", R"({
    "about": "No numbers alone.", "defaults": {"dtypes": ["f16"], "data": ["normal"]},
    "cases": [{"name": "law", "clauses": ["LAW-1"], "because": "A law.", "laws": ["ones"],
               "problem": {"query_len": 16, "key_len": 16, "head_dim": 8}},
              {"name": "promise", "clauses": ["DET-1"], "because": "A promise.",
               "check": "threads",
               "problem": {"query_len": 16, "key_len": 16, "head_dim": 8}}]})");
  declare(R"([{"name": "a", "passes": "forward", "points":
               [{"of": "head_dim", "up_to": [8, 16]}]}])");
  EXPECT_EQ(met().met, 0u);
  EXPECT_THAT(met().beyond, SizeIs(2));
}

TEST_F(DispatchedTest, AnInstanceThatNoCaseCanBeFittedToIsNamed) {
  testee_.description.features.emplace_back("sink");
  declare(R"([{"name": "a", "passes": "forward",
               "points": [{"of": "sink", "values": [false, true]}]}])");
  EXPECT_THAT(met().beyond, ElementsAre(ElementsAre("sink true"))) << "no case has one";
}

TEST_F(DispatchedTest, NoFormIsMadeOfWhatIsLong) {
  folder_.write("own.json", R"({
    "about": "Long.", "defaults": {"dtypes": ["f16"], "data": ["normal"]},
    "cases": [{"name": "long", "clauses": ["SOFTMAX-1"], "because": "Of many keys.",
               "problem": {"query_len": 1, "key_len": 1025, "head_dim": 8}}]})");
  declare(R"([{"name": "a", "passes": "forward", "points":
               [{"of": "head_dim", "up_to": [8, 16]}]}])");
  EXPECT_THAT(met().beyond, ElementsAre(ElementsAre("head_dim in (8,16]")));
}

TEST_F(DispatchedTest, WithoutATableNothingIsAskedBesides) {
  declare("[]");
  EXPECT_THAT(asked(), SizeIs(folder_.load().size()));
  EXPECT_THAT(asking_->dispatch_met("k"), IsEmpty());
}

}  // namespace
}  // namespace attest
