// Did you mean, on results that are made of a neighbour's own values: so it is known what is meant.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "cases/entry.h"
#include "harness/diagnosis/altered.h"
#include "harness/diagnosis/likeness.h"
#include "harness/diagnosis/neighbour.h"
#include "spec/clause.h"

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

const Neighbour& named(const std::string& name) {
  for (const Neighbour& each : neighbours()) {
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

TEST(DiagnosisTest, NamesWhatANeighbourGives) {
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

TEST(DiagnosisTest, NamesNothingThatIsNoNeighbour) {
  Setting setting = the_case();
  ASSERT_TRUE(named("no scale").alter(setting));
  Trial trial = trial_of(setting);
  // One element that no neighbour explains.
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

TEST(DiagnosisTest, NeighboursHaveNamesOfTheirOwnAndBreakAClause) {
  std::set<std::string> names;
  for (const Neighbour& each : neighbours()) {
    EXPECT_TRUE(names.insert(each.name).second) << each.name;
    EXPECT_TRUE(find_clause(each.clause)) << each.name;
    EXPECT_TRUE(each.alter || each.settle) << each.name;
  }
}

}  // namespace
}  // namespace attest
