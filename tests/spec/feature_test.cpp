#include "spec/feature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "spec/clause.h"
#include "spec/contains.h"
#include "spec/limits.h"

namespace attest {
namespace {

using ::testing::ElementsAre;

const DenseMask kOne = {.shape = {1, 1, 1, 1}, .allowed = {1}};

TEST(FeatureTest, NamesAreUniqueAndFound) {
  std::set<std::string_view> names;
  for (const Feature& feature : features()) {
    EXPECT_TRUE(names.insert(feature.name).second) << feature.name;
    EXPECT_EQ(find_feature(feature.name), &feature);
  }
  EXPECT_EQ(find_feature(""), nullptr);
  EXPECT_EQ(find_feature("mask"), nullptr);
}

TEST(FeatureTest, EveryFeatureIsNeededByOnePartOfAProblemOrIsOfTheTestee) {
  std::vector<std::string_view> of_testee;
  for (const Feature& feature : features()) {
    const int parts = !!feature.in_problem + !!feature.in_mask + !!feature.in_layout;
    EXPECT_EQ(parts, is_of_testee(feature) ? 0 : 1) << feature.name;
    if (is_of_testee(feature)) of_testee.push_back(feature.name);
  }
  EXPECT_THAT(of_testee, ElementsAre("lse", "stream", "two-streams", "graph", "new-shapes"));
}

TEST(FeatureTest, EveryClauseOfAFeatureExists) {
  for (const Feature& feature : features()) {
    for (const auto& demand : feature.demands()) {
      EXPECT_NE(find_clause(demand.clause), nullptr) << feature.name << " " << demand.clause;
    }
    EXPECT_EQ(feature.demands().empty(), feature.name == "long") << feature.name;
  }
}

TEST(FeatureTest, EveryMaskKindButFullIsAFeature) {
  const std::vector<Mask> masks = {Mask::causal(Anchor::top_left),
                                   Mask::window(1, 0, Anchor::top_left),
                                   Mask::dense(kOne),
                                   Mask::prefix({1}),
                                   Mask::documents({}),
                                   Mask::block_sparse(1, 1, kOne),
                                   Mask::dilated(2, {}),
                                   Mask::all_of({Mask::full()}),
                                   Mask::any_of({Mask::full()})};
  std::set<std::string> names;
  for (const Mask& mask : masks) {
    const auto features = features_of({.mask = mask});
    ASSERT_EQ(features.size(), 1u) << to_string(mask);
    EXPECT_TRUE(names.insert(features[0]).second) << to_string(mask);
    EXPECT_EQ(clauses_needed_by({.mask = mask}).empty(), features[0] == "causal");
  }
  for (const Feature& feature : features()) {
    EXPECT_EQ(names.contains(std::string(feature.name)), feature.in_mask != nullptr)
        << feature.name;
  }
  EXPECT_EQ(features_of({}), std::vector<std::string>());
}

TEST(FeatureTest, EveryFormatIsDeclaredAsOneAndIsNoWordOfFeatures) {
  const std::vector<std::string> words = known_features();
  for (const DType dtype : kDTypes) {
    const Feature* const feature = find_feature(name(dtype));
    ASSERT_NE(feature, nullptr) << name(dtype);
    EXPECT_EQ(feature->key, kOfFormats);
    EXPECT_THAT(words, ::testing::Not(::testing::Contains(feature->name)));
    const auto needed = needed_by({.dtype = dtype});
    EXPECT_EQ(needed, std::vector{feature});
  }
}

// Of each part of a mask and of each layout, so some twice; the pass first.
TEST(FeatureTest, IsNamedForEachPartThatNeedsIt) {
  Problem p = {.dtype = DType::f64,
               .mask = Mask::any_of({Mask::causal(Anchor::top_left), Mask::dense(kOne),
                                     Mask::all_of({Mask::causal(Anchor::bottom_right)})}),
               .sink = true,
               .backward = true};
  p.layouts.k = Layout::parse("bhsd expand=h");
  p.layouts.o = Layout::parse("bhds");
  EXPECT_THAT(features_of(p),
              ElementsAre("backward", "mask-or", "causal", "dense-mask", "mask-and", "causal",
                          "sink", "strides", "expanded", "strides", "transposed"));
}

// But for those of forward-core, which every testee has.
TEST(FeatureTest, CasesCiteTheClausesOfTheFeaturesThatTheyNeed) {
  Problem p = {.dtype = DType::f64, .query_heads = 2, .mask = Mask::prefix({1}), .sink = true};
  EXPECT_THAT(clauses_needed_by(p), ElementsAre("MASK-10", "FORMAT-1", "SINK-1"));
  p.backward = true;
  EXPECT_THAT(clauses_needed_by(p),
              ElementsAre("MASK-10", "GRAD-1", "GRAD-2", "GRAD-3", "FORMAT-1", "SINK-1", "SINK-2"));
  EXPECT_THAT(clauses_needed_by({.query_len = 0, .mask = Mask::causal(Anchor::top_left)}),
              ElementsAre());
  EXPECT_THAT(clauses_needed_by({.layouts = {.q = Layout::parse("sbhd")}}),
              ElementsAre("LAYOUT-4"));
  EXPECT_THAT(clauses_needed_by({.layouts = {.q = Layout::parse("bhsd gap=1")}}), ElementsAre());
  EXPECT_THAT(clauses_needed_by({.key_lens = {1}, .query_lens = {1}}),
              ElementsAre("MASK-5", "MASK-6"));
  EXPECT_THAT(clauses_needed_by({.bias_shape = Shape{1, 1, 1, 1}}), ElementsAre("SCORE-3"))
      << "whether it hides keys, its numbers tell";
}

TEST(FeatureTest, IsFoundByItsClauses) {
  const auto names_with = [](std::string_view clause) {
    std::vector<std::string_view> names;
    for (const Feature* feature : features_with(clause)) names.push_back(feature->name);
    return names;
  };
  EXPECT_THAT(names_with("MASK-5"), ElementsAre("lengths"));
  EXPECT_THAT(names_with("DROP-2"), ElementsAre("dropout"));
  EXPECT_THAT(names_with("LAYOUT-3"), ElementsAre("strides", "transposed", "expanded"));
  EXPECT_THAT(names_with("SAFE-1"), ElementsAre());
  EXPECT_THAT(names_with(""), ElementsAre());
}

TEST(FeatureTest, TheSchemaOfDescriptionsKnowsAll) {
  std::ifstream file(ATTEST_SOURCE_DIR "/spec/description.schema.json");
  const auto schema = nlohmann::json::parse(file);
  EXPECT_EQ(schema["$defs"]["feature"]["enum"].get<std::vector<std::string>>(), known_features());
  for (const Size size : kLimitedSizes) {
    EXPECT_TRUE(schema["$defs"]["terms"]["properties"].contains(std::string(name(size))))
        << name(size);
  }
}

TEST(FeatureTest, WhatIsTakenOutIsNeededNoLonger) {
  Problem problem = {.query_len = 4,
                     .key_len = 4,
                     .softcap = 2,
                     .key_lens = std::vector<Index>{3},
                     .sink = true,
                     .dropout = {.mode = Dropout::Mode::given, .probability = 0.5},
                     .backward = true,
                     .d_lse = true};
  int taken = 0;
  for (const Feature& feature : features()) {
    if (!feature.take_out || !contains(features_of(problem), feature.name)) continue;
    feature.take_out(problem);
    ++taken;
    EXPECT_FALSE(contains(features_of(problem), feature.name)) << feature.name;
  }
  EXPECT_EQ(taken, 5) << "lengths, softcap, sink, dlse, dropout";
}

}  // namespace
}  // namespace attest
