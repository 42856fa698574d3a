// Did you mean, on results that are made of a mistake's own values: so it is known what is meant.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "cases/entry.h"
#include "harness/diagnosis/altered.h"
#include "harness/diagnosis/diagnose.h"
#include "harness/diagnosis/likeness.h"
#include "harness/diagnosis/mistake.h"
#include "harness/diagnosis/smaller.h"
#include "spec/clause.h"
#include "spec/diagnosis.h"
#include "spec/feature.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

const auto kNever = [] { return false; };

Case a_case() {
  return read_entry({{"name", "a"},
                     {"clauses", {"SOFTMAX-1"}},
                     {"because", "A test."},
                     {"problem",
                      {{"query_heads", 4},
                       {"key_heads", 2},
                       {"query_len", 9},
                       {"key_len", 13},
                       {"head_dim", 8},
                       {"mask", "causal bottom_right"}}},
                     {"data", {"normal"}},
                     {"dtypes", {"f32"}},
                     {"bits", "diagnosis"}},
                    "diagnosis");
}

const Mistake& named(const std::string& name) {
  for (const Mistake& each : mistakes()) {
    if (each.name == name) return each;
  }
  throw std::out_of_range(name);
}

// What a kernel returns that computes the setting.
Trial trial_of(const Setting& setting) {
  Trial trial;
  auto expected = expect_altered(setting, loosest(DType::f32));
  for (const auto& [tensor, shape] : {std::pair{TensorName::o, setting.problem.o_shape()},
                                      {TensorName::lse, setting.problem.lse_shape()}}) {
    Returned returned = {tensor, DType::f32, shape, {}, 0, {}};
    for (const double value : expected[tensor].value) {
      returned.bits.push_back(encode(DType::f32, value));
    }
    trial.returned.push_back(std::move(returned));
  }
  return trial;
}

std::vector<std::string> names_of(const Trial& trial) {
  PreparedCase prepared(a_case(), 1);
  std::vector<std::string> names;
  for (const Likeness& each : alike(prepared, {}, loosest(DType::f32), trial, kNever)) {
    names.push_back(each.name);
  }
  return names;
}

Setting the_case() {
  const PreparedCase prepared(a_case(), 1);
  return {prepared.problem(), prepared.inputs()};
}

TEST(DiagnosisTest, NamesWhatAMistakeGives) {
  for (const char* name : {"no scale", "a diagonal at the top left", "the diagonal one further",
                           "no mask", "V of the next key", "key head h mod Hkv for query head h"}) {
    Setting setting = the_case();
    ASSERT_TRUE(named(name).alter(setting)) << name;
    EXPECT_THAT(names_of(trial_of(setting)), testing::Contains(name)) << name;
  }
}

TEST(DiagnosisTest, NamesNothingWhereNothingIsWrong) {
  EXPECT_THAT(names_of(trial_of(the_case())), testing::IsEmpty());
}

TEST(DiagnosisTest, NamesNothingThatIsNoMistake) {
  Setting setting = the_case();
  ASSERT_TRUE(named("no scale").alter(setting));
  Trial trial = trial_of(setting);
  // One element that no mistake explains.
  trial.returned[0].bits[5] = encode(DType::f32, 7);
  EXPECT_THAT(names_of(trial), testing::IsEmpty());
}

TEST(DiagnosisTest, TellsOfRowsWhereSomeAreRight) {
  Setting setting = the_case();
  Trial trial = trial_of(setting);
  ASSERT_TRUE(named("no scale").alter(setting));
  const Trial other = trial_of(setting);
  for (std::size_t at = 80; at < 160; ++at) {
    trial.returned[0].bits[at] = other.returned[0].bits[at];
  }
  PreparedCase prepared(a_case(), 1);
  const auto all = best(alike(prepared, {}, loosest(DType::f32), trial, kNever));
  ASSERT_THAT(all, testing::SizeIs(1));
  EXPECT_FALSE(all[0].whole());
  EXPECT_THAT(headline(all), testing::AllOf(testing::StartsWith("O is exactly what no scale"),
                                            testing::HasSubstr("of 36 rows")));
}

std::set<std::string> features_in(const Problem& problem) {
  const std::vector<std::string> names = features_of(problem);
  return {names.begin(), names.end()};
}

TEST(DiagnosisTest, SomeSmallerProblemLacksEachFeature) {
  // Without these it would be another question, of tensors of other shapes.
  const std::set<std::string> stay = {"backward", "packed", "paged", "zero-sizes"};
  std::set<std::string> waiting;
  for (const Feature& feature : features()) {
    const bool needed = feature.in_problem || feature.in_mask || feature.in_layout;
    const std::string name(feature.name);
    if (needed && feature.key == kOfFeatures && !stay.contains(name)) waiting.insert(name);
  }
  for (const CaseWithEntry& each : load_entries(ATTEST_CASES_DIR)) {
    const std::set<std::string> needed = features_in(each.test_case.problem);
    const bool new_here = std::any_of(needed.begin(), needed.end(),
                                      [&](const auto& name) { return waiting.contains(name); });
    if (!new_here) continue;
    for (const nlohmann::json& smaller : entries_smaller_than(each)) {
      std::set<std::string> left;
      try {
        left = features_in(read_entry(smaller, "smaller").problem);
      } catch (const InputError&) {
        continue;  // no case
      }
      for (const std::string& name : needed) {
        if (!left.contains(name)) waiting.erase(name);
      }
    }
  }
  EXPECT_THAT(waiting, testing::IsEmpty()) << "no field of harness/diagnosis/smaller.cpp has it";
}

TEST(DiagnosisTest, WhatIsWrittenIsReadAsReportsTellIt) {
  const std::vector<Group> groups = {
      {.testee = "mine",
       .outcome = Outcome::fail,
       .reason = "bound",
       .tensors = {"O"},
       .failures = 3,
       .case_id = "a",
       .features = {"sink"},
       .alike = {{.name = "no scale", .clause = "SCORE-1", .tensors = {TensorName::o}}},
       .reliefs = {{"a sink", {"SINK-1"}, true},
                   {"a bias", {"SCORE-3"}, false},
                   {"several keys", {}, true}},
       .blamed = "SCORE-1"}};
  std::istringstream file(to_json(groups).dump());
  const std::vector<Diagnosis> read = read_diagnoses(file);
  ASSERT_THAT(read, testing::SizeIs(1));
  EXPECT_EQ(read[0].testee, "mine");
  EXPECT_EQ(read[0].case_id, "a");
  EXPECT_EQ(diagnosis_text(read[0]), diagnosis_text(diagnoses_of(groups)[0]));
  EXPECT_EQ(diagnosis_text(read[0]),
            "O is exactly what no scale (SCORE-1) gives; passes without a sink; without several "
            "keys; blamed on SCORE-1");
  std::istringstream none("{}");
  EXPECT_THROW(read_diagnoses(none), InputError);
}

TEST(DiagnosisTest, PartsAndFewElementsTakeTwoCases) {
  const Likeness part = {
      .name = "part", .clause = "MASK-3", .tensors = {}, .rows = 2, .of = 4, .telling = 9};
  const Likeness few = {.name = "few", .clause = "SINK-2", .tensors = {}, .telling = 5};
  for (const Likeness& each : {part, few}) {
    Consensus consensus;
    consensus.add("a/dtype=f32", {each});
    consensus.add("a/dtype=f16", {each});
    EXPECT_THAT(consensus.meant(), testing::IsEmpty()) << each.name;
    consensus.add("b/dtype=f32", {each});
    EXPECT_THAT(consensus.meant(), testing::SizeIs(1)) << each.name;
    consensus.add("c/dtype=f32", {{.name = "another", .clause = "MASK-4", .tensors = {}}});
    EXPECT_THAT(consensus.meant(), testing::IsEmpty()) << each.name;
    EXPECT_TRUE(consensus.is_reached());
  }
}

TEST(DiagnosisTest, MistakesHaveNamesOfTheirOwnAndBreakAClause) {
  std::set<std::string> names;
  for (const Mistake& each : mistakes()) {
    EXPECT_TRUE(names.insert(each.name).second) << each.name;
    EXPECT_TRUE(find_clause(each.clause)) << each.name;
    EXPECT_TRUE(each.alter || each.settle) << each.name;
  }
}

}  // namespace
}  // namespace attest
