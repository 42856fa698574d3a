// The kernel with a fault of any size, and the search for the least that is seen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cases/entry.h"
#include "harness/judge/prepared.h"
#include "harness/limits/faulty.h"
#include "harness/limits/report.h"
#include "harness/limits/search.h"
#include "harness/run/examine.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest::limits {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Case limits_case(const nlohmann::json& problem, const std::string& dtype,
                 const std::string& name = "a") {
  nlohmann::json whole = {{"batch", 2},    {"query_heads", 4}, {"key_heads", 2}, {"query_len", 9},
                          {"key_len", 13}, {"head_dim", 8},    {"mask", "full"}};
  whole.update(problem);
  return read_entry({{"name", name},
                     {"clauses", {"SOFTMAX-1"}},
                     {"because", "A test."},
                     {"problem", whole},
                     {"data", {"normal"}},
                     {"dtypes", {dtype}},
                     {"bits", "limits"}},
                    "limits");
}

// With every feature, in a problem or another.
std::vector<nlohmann::json> problems_of_all_features() {
  return {
      {{"mask", "causal bottom_right"}, {"backward", true}, {"d_lse", true}},
      {{"mask", "window -3..2 bottom_right"}, {"softcap", 2}, {"backward", true}, {"sink", true}},
      {{"bias", {{"axes", "hqk"}}},
       {"alibi", {{"slopes", "standard"}}},
       {"backward", true},
       {"sink", true}},
      {{"dropout", {{"mode", "given"}, {"probability", 0.25}}}, {"backward", true}},
      {{"packed", true}, {"query_lens", {4, 9}}, {"key_lens", {13, 0}}, {"backward", true}},
      {{"paging", {{"page_size", 4}}}, {"key_lens", {13, 6}}, {"value_dim", 5}},
      {{"query_lens", {9, 3}}, {"key_lens", {13, 2}}, {"backward", true}},
      {{"key_len", 0}, {"backward", true}},
      {{"scale", 0.0}, {"backward", true}},
  };
}

Outcome judged(const Case& test_case, const Fault& fault, const Declaration& declaration) {
  PreparedCase prepared(test_case, 1);
  const Shared shared(prepared.problem(), prepared.inputs());
  FaultyKernel kernel(shared);
  kernel.set(fault);
  const Verdict v = examine(prepared, declaration.testee, "", kernel, 1).verdict;
  EXPECT_NE(v.outcome, Outcome::harness_error) << v.message;
  return v.outcome;
}

TEST(LimitsTest, WithoutAFaultTheKernelIsRightByAllDeclarations) {
  for (const nlohmann::json& problem : problems_of_all_features()) {
    for (const char* dtype : {"f64", "f32", "f16", "bf16"}) {
      const Case c = limits_case(problem, dtype);
      for (const Declaration& each : declarations()) {
        const bool has_it =
            std::count(each.testee.dtypes.begin(), each.testee.dtypes.end(), c.problem.dtype) > 0;
        EXPECT_EQ(judged(c, {}, each), has_it ? Outcome::pass : Outcome::unsupported)
            << each.name << " " << dtype << " " << problem;
      }
    }
  }
}

// In which every fault shows.
Case a_long_case(const char* dtype) {
  return limits_case({{"batch", 1},
                      {"query_heads", 1},
                      {"key_heads", 1},
                      {"query_len", 40},
                      {"key_len", 600},
                      {"mask", "window -280..0 bottom_right"},
                      {"softcap", 4},
                      {"scale", 2},
                      {"backward", true}},
                     dtype);
}

double a_large_size(const Kind& kind, const Problem& p) {
  return kind.measure == Measure::length ? 1 / static_cast<double>(longest_keys(p))
         : kind.site == Site::rescale    ? 64
                                         : 0.5;
}

TEST(LimitsTest, EachFaultIsSeenWhenItIsLargeAndNotWhenItIsNothing) {
  const Case c = a_long_case("f32");
  const auto all = declarations();
  for (const Kind& kind : kinds()) {
    if (kind.site == Site::none) continue;
    ASSERT_TRUE(kind.concerns(c.problem)) << kind.name;
    for (const Declaration& each : {all[0], all[3]}) {
      EXPECT_EQ(judged(c, {kind.site, a_large_size(kind, c.problem)}, each), Outcome::fail)
          << kind.name << " under " << each.name;
    }
    if (kind.measure == Measure::length) continue;
    EXPECT_EQ(judged(c, {kind.site, 0x1p-200}, all[0]), Outcome::pass) << kind.name;
  }
}

TEST(LimitsTest, EachFaultChangesWhatItIsAbout) {
  const std::set<std::string> backward_alone = {"D", "dS", "gradients", "sums of gradients",
                                                "dQ in steps"};
  const std::map<std::string, std::set<std::string>> same = {{"D", {"dV"}},
                                                             {"dS", {"dV"}},
                                                             {"P", {"LSE", "dQ", "dK"}},
                                                             {"O", {"LSE", "dQ"}},
                                                             {"LSE", {"O"}},
                                                             {"dQ in steps", {"dK", "dV"}},
                                                             {"sums of PV", {"LSE", "dQ"}},
                                                             {"partitions", {"LSE", "dQ"}},
                                                             {"rescale", {"LSE", "dQ"}},
                                                             {"values swapped", {"LSE"}}};
  PreparedCase prepared(a_long_case("f32"), 1);
  const Shared shared(prepared.problem(), prepared.inputs());
  const Results right = compute(shared, {});
  for (const Kind& kind : kinds()) {
    const std::string name(kind.name);
    const Results wrong = compute(shared, {kind.site, a_large_size(kind, prepared.problem())});
    std::set<std::string> unchanged;
    for (const TensorName tensor : kReturnedTensors) {
      if (wrong[tensor] == right[tensor]) unchanged.insert(std::string(attest::name(tensor)));
    }
    EXPECT_EQ(unchanged.contains("O") && unchanged.contains("LSE"),
              kind.site == Site::none || backward_alone.contains(name))
        << name;
    EXPECT_EQ(unchanged.contains("dQ") && unchanged.contains("dK") && unchanged.contains("dV") &&
                  unchanged.contains("O") && unchanged.contains("LSE"),
              kind.site == Site::none)
        << name;
    const auto known = same.find(name);
    if (known == same.end()) continue;
    for (const std::string& tensor : known->second) EXPECT_TRUE(unchanged.contains(tensor)) << name;
  }
}

TEST(LimitsTest, FaultsByLengthLeaveShorterSequencesAlone) {
  PreparedCase prepared(limits_case({{"key_lens", {13, 12}}}, "f32"), 1);
  const Shared shared(prepared.problem(), prepared.inputs());
  const Results right = compute(shared, {}), wrong = compute(shared, {Site::key_lost, 1.0 / 13});
  const auto half = static_cast<std::ptrdiff_t>(right.forward.o.size() / 2);
  EXPECT_FALSE(
      std::equal(right.forward.o.begin(), right.forward.o.begin() + half, wrong.forward.o.begin()));
  EXPECT_TRUE(std::equal(right.forward.o.begin() + half, right.forward.o.end(),
                         wrong.forward.o.begin() + half));
}

std::vector<Case> cases_to_search() {
  return {limits_case({{"backward", false}}, "f32", "small"),
          limits_case({{"key_len", 100}, {"backward", true}}, "f32", "long"),
          limits_case({{"key_len", 40}, {"head_dim", 32}}, "f32", "wide"),
          limits_case({{"mask", "causal bottom_right"}}, "bf16", "narrow")};
}

Limits searched(const std::vector<Case>& cases, int jobs, const Limits* beside = nullptr) {
  return search(
      cases.size(), [&](std::size_t n) { return cases[n]; }, kinds(), declarations(), jobs, beside,
      [] {}, [] { return false; });
}

TEST(LimitsTest, EachLimitIsSeenFromBothSides) {
  const auto cases = cases_to_search();
  const auto all = declarations();
  const Limits found = searched(cases, 1);
  EXPECT_THAT(found.false_alarms, IsEmpty());
  EXPECT_EQ(found.cases, cases.size());
  int both = 0;
  for (const Limit& limit : found.limits) {
    if (!limit.seen) continue;
    for (const Case& c : cases) {
      if (c.problem.dtype != limit.dtype || !limit.kind->concerns(c.problem)) continue;
      const Declaration& under = all[limit.declaration];
      const bool by_length = limit.kind->measure == Measure::length;
      if (c.id == limit.seen->case_id) {
        EXPECT_EQ(judged(c, {limit.kind->site, limit.seen->size}, under), Outcome::fail)
            << limit.kind->name << " " << under.name;
      }
      if (by_length) continue;
      EXPECT_NE(judged(c, {limit.kind->site, limit.missed}, under), Outcome::fail)
          << limit.kind->name << " " << under.name << " " << c.id;
      ++both;
    }
  }
  EXPECT_GT(both, 100);
}

std::string told(const Limits& limits) {
  return to_json({.suite_version = "1",
                  .command = "",
                  .declarations = declarations(),
                  .columns = {{"a", "b", limits}}});
}

TEST(LimitsTest, NeitherJobsNorTheOrderOfCasesChangeTheLimits) {
  auto cases = cases_to_search();
  const Limits found = searched(cases, 1);
  EXPECT_EQ(told(searched(cases, 3)), told(found));
  std::reverse(cases.begin(), cases.end());
  const Limits reversed = searched(cases, 1);
  ASSERT_EQ(reversed.limits.size(), found.limits.size());
  for (std::size_t n = 0; n < found.limits.size(); ++n) {
    const auto &here = found.limits[n].seen, &there = reversed.limits[n].seen;
    ASSERT_EQ(here.has_value(), there.has_value()) << found.limits[n].kind->name;
    if (!here) continue;
    EXPECT_EQ(here->size, there->size) << found.limits[n].kind->name;
  }
}

TEST(LimitsTest, MoreCasesBesideMakeNoLimitLarger) {
  const auto cases = cases_to_search();
  const Limits all = searched(cases, 1), few = searched({cases[0], cases[1]}, 1),
               rest = searched({cases[2], cases[3]}, 2, &few);
  for (std::size_t n = 0; n < all.limits.size(); ++n) {
    ASSERT_EQ(all.limits[n].seen.has_value(), rest.limits[n].seen.has_value());
    if (!all.limits[n].seen) continue;
    EXPECT_EQ(all.limits[n].seen->size, rest.limits[n].seen->size) << all.limits[n].kind->name;
    EXPECT_EQ(all.limits[n].seen->case_id, rest.limits[n].seen->case_id);
  }
}

TEST(LimitsTest, ReportsNameTheSizeTheCaseAndWhatIsAdmitted) {
  const auto cases = cases_to_search();
  Limits limits = searched(cases, 1);
  limits.left_out = {"value/long/one"};
  limits.false_alarms = {"mask/full under \"nothing\": O"};
  const Table table = {.suite_version = "1",
                       .command = "attest limits",
                       .declarations = declarations(),
                       .columns = {{"a", "Some cases", limits}}};
  const std::string text = to_text(table), page = to_markdown(table);
  for (const std::string& each : {text, page}) {
    EXPECT_THAT(each, HasSubstr("Some cases (4 cases)"));
    EXPECT_THAT(each, HasSubstr("1 of 100"));
    EXPECT_THAT(each, HasSubstr("Not tried, as they take long: 1 case, such as value/long/one"));
    EXPECT_THAT(each, HasSubstr("FALSE ALARM: without a fault, fails mask/full under"));
  }
  const nlohmann::json json = parse_json(to_json(table));
  const nlohmann::json& first = json["columns"][0]["limits"][3];  // after those of f64
  EXPECT_EQ(first["fault"], "exp");
  EXPECT_EQ(first["format"], "f32");
  EXPECT_EQ(first["admitted"], 0x1p-24);
  EXPECT_GT(first["seen"]["size"], 0x1p-24);
  EXPECT_LT(first["missed"], first["seen"]["size"]);
  EXPECT_THAT(first["seen"]["message"].get<std::string>(), HasSubstr("times the bound"));
}

}  // namespace
}  // namespace attest::limits
