// Dispatch tables, their classes and instances, and the rates that are told of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "cases/entry.h"
#include "harness/instances/dispatch_table.h"
#include "harness/instances/sweep.h"
#include "spec/json_reader.h"

namespace attest::instances {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A table of those points, in a file.
std::vector<DispatchTable> tables_of(const std::string& points,
                                     const std::string& passes = "forward") {
  const auto folder = std::filesystem::path(testing::TempDir()) / "attest_dispatch";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "table.json")
      << R"({"system": "a", "sources": ["b"], "about": "c", "passes": ")" << passes
      << R"(", "points": [)" << points << "]}";
  return load_dispatches(folder);
}

DispatchPoint point_of(const std::string& json) { return tables_of(json)[0].points[0]; }

Problem problem_with(const nlohmann::json& more) {
  nlohmann::json whole = {{"batch", 2},     {"query_heads", 4}, {"key_heads", 2}, {"query_len", 9},
                          {"key_len", 130}, {"head_dim", 64},   {"mask", "full"}};
  whole.update(more);
  return read_entry({{"name", "a"},
                     {"clauses", {"SOFTMAX-1"}},
                     {"because", "A test."},
                     {"problem", whole},
                     {"data", {"normal"}},
                     {"dtypes", {"f16"}},
                     {"bits", "instances"}},
                    "instances")
      .problem;
}

TEST(DispatchTest, SizesFallIntoTheClassThatEndsAtThemOrAfter) {
  const DispatchPoint closed = point_of(R"({"of": "head_dim", "up_to": [32, 64, 128]})"),
                      open = point_of(R"({"of": "key_len", "up_to": [64, 512], "open": true})"),
                      even = point_of(R"({"of": "key_len", "multiple_of": 65})");
  EXPECT_EQ(closed.classes(), 3u);
  EXPECT_EQ(closed.class_of(problem_with({{"head_dim", 32}})), 0u);
  EXPECT_EQ(closed.class_of(problem_with({{"head_dim", 33}})), 1u);
  EXPECT_EQ(closed.class_of(problem_with({{"head_dim", 129}})), std::nullopt);
  EXPECT_EQ(closed.text(1), "head_dim in (32,64]");
  EXPECT_EQ(open.classes(), 3u);
  EXPECT_EQ(open.class_of(problem_with({{"key_len", 513}})), 2u);
  EXPECT_EQ(open.class_of(problem_with({{"key_lens", {130, 20}}})), 1u);  // of the longest
  EXPECT_EQ(open.text(2), "key_len > 512");
  EXPECT_EQ(even.class_of(problem_with({{"key_len", 130}})), 0u);
  EXPECT_EQ(even.class_of(problem_with({{"key_len", 131}})), 1u);
}

TEST(DispatchTest, FeaturesFallIntoTheClassOfTheirName) {
  const auto in = [](const char* point, const nlohmann::json& more) {
    const DispatchPoint p = point_of(point);
    const auto found = p.class_of(problem_with(more));
    return found ? p.values[*found] : "none";
  };
  const char* const mask = R"({"of": "mask", "values": ["full", "causal", "window", "other"]})";
  EXPECT_EQ(in(mask, {{"mask", "full"}}), "full");
  EXPECT_EQ(in(mask, {{"mask", "causal bottom_right"}}), "causal");
  EXPECT_EQ(in(mask, {{"mask", "window -3..0"}}), "window");
  EXPECT_EQ(in(mask, {{"mask", {{"prefix", {3, 4}}}}}), "other");
  EXPECT_EQ(in(R"({"of": "mask", "values": ["full"]})", {{"mask", "causal"}}), "none");
  const char* const storage =
      R"({"of": "storage", "values": ["dense", "padded", "packed", "paged"]})";
  EXPECT_EQ(in(storage, {{"batch", 2}}), "dense");
  EXPECT_EQ(in(storage, {{"key_lens", {130, 1}}}), "padded");
  EXPECT_EQ(in(storage, {{"packed", true}, {"key_lens", {130, 1}}, {"query_lens", {9, 1}}}),
            "packed");
  EXPECT_EQ(in(storage, {{"key_lens", {130, 1}}, {"paging", {{"page_size", 16}}}}), "paged");
  const char* const group = R"({"of": "group", "values": [1, "some", "all"]})";
  EXPECT_EQ(in(group, {{"key_heads", 4}}), "1");
  EXPECT_EQ(in(group, {{"key_heads", 2}}), "some");
  EXPECT_EQ(in(group, {{"key_heads", 1}}), "all");
  EXPECT_EQ(in(R"({"of": "softcap", "values": [false, true]})", {{"softcap", 2}}), "true");
  EXPECT_EQ(in(R"({"of": "dtype", "values": ["bf16", "f16"]})", {{"batch", 1}}), "f16");
}

TEST(DispatchTest, InstancesAreDeclaredAsLimitsAndFeatures) {
  const auto tables = tables_of(R"({"of": "dtype", "values": ["f32", "bf16"]},
      {"of": "head_dim", "up_to": [64, 128]}, {"of": "mask", "values": ["full", "causal"]},
      {"of": "storage", "values": ["dense", "packed"]}, {"of": "softcap", "values": [false, true]})");
  const Description whole = parse_description(
      {{"name", "a"},
       {"version", "1"},
       {"vendor", "b"},
       {"profiles", nlohmann::json::array()},
       {"dtypes", {"f32", "bf16", "f16"}},
       {"features", {"causal", "window", "packed", "paged", "lengths", "softcap", "lse"}},
       {"arithmetic", nlohmann::json::object()}});
  const Instance instance = {.dispatch = &tables[0], .classes = {1, 1, 1, 0, 0}};
  const auto declared = declared_of(instance.classes, tables[0], whole);
  ASSERT_TRUE(declared);
  EXPECT_THAT(declared->dtypes, testing::ElementsAre(DType::bf16));
  EXPECT_THAT(declared->features, testing::ElementsAre("causal", "lse"));
  Problem p = problem_with({{"head_dim", 96}, {"mask", "causal"}});
  p.dtype = DType::bf16;
  EXPECT_TRUE(instance.has(p));
  EXPECT_EQ(beyond(declared->limits, p), "");
  p.head_dim = 64;
  EXPECT_FALSE(instance.has(p));
  EXPECT_THAT(beyond(declared->limits, p), HasSubstr("head_dim"));
  EXPECT_EQ(instance.text(),
            "table: dtype bf16, head_dim in (64,128], mask causal, storage dense, softcap false");
}

TEST(DispatchTest, TwoPointsOfOneSizeLimitItTogether) {
  const auto tables =
      tables_of(R"({"of": "head_dim", "up_to": [64, 128]}, {"of": "head_dim", "multiple_of": 32})");
  const Description whole = parse_description({{"name", "a"},
                                               {"version", "1"},
                                               {"vendor", "b"},
                                               {"profiles", nlohmann::json::array()},
                                               {"dtypes", {"f16"}},
                                               {"features", {"lse"}},
                                               {"arithmetic", nlohmann::json::object()}});
  const auto declared = declared_of({1, 0}, tables[0], whole);
  ASSERT_TRUE(declared);
  for (const Index d : {32, 64, 96, 112, 128, 160}) {
    Problem p = problem_with({{"head_dim", d}});
    EXPECT_EQ(beyond(declared->limits, p).empty(), d == 96 || d == 128) << d;
  }
}

TEST(DispatchTest, TheTablesThatThereAreNameTheirSources) {
  std::size_t held_out = 0;
  for (const DispatchTable& each : load_dispatches(ATTEST_DISPATCH)) {
    EXPECT_FALSE(each.sources.empty()) << each.name;
    for (const std::string& source : each.sources) {
      // Of one commit: what it says stays.
      EXPECT_THAT(source, testing::MatchesRegex("https://github.com/.*/[0-9a-f]+/.*")) << each.name;
    }
    EXPECT_GE(each.points.size(), 3u) << each.name;
    held_out += each.held_out;
  }
  EXPECT_GE(held_out, 15u);
}

TEST(DispatchTest, ABackwardInstanceHasProblemsWithABackwardPassAlone) {
  const auto tables = tables_of(R"({"of": "dtype", "values": ["f16"]})", "backward");
  const Instance instance = {.dispatch = &tables[0], .classes = {0}};
  EXPECT_FALSE(instance.has(problem_with({{"batch", 1}})));
  EXPECT_TRUE(instance.has(problem_with({{"backward", true}})));
}

TEST(DispatchTest, WhatIsNotUnderstoodIsToldWithItsFileAndPlace) {
  const auto complaint = [](const std::string& points) -> std::string {
    try {
      tables_of(points);
    } catch (const InputError& error) {
      return error.what();
    }
    return "none";
  };
  for (const char* each :
       {R"({"of": "colour", "values": ["red"]})", R"({"of": "head_dim"})",
        R"({"of": "head_dim", "up_to": [64, 32]})", R"({"of": "mask", "up_to": [1]})",
        R"({"of": "head_dim", "up_to": [64], "multiple_of": 2})",
        R"({"of": "head_dim", "values": [64], "size": 1})"}) {
    EXPECT_THAT(complaint(each), AllOf(HasSubstr("table.json: "), HasSubstr("/points/0"))) << each;
  }
  EXPECT_THROW(load_dispatches("/nowhere"), InputError);
}

TEST(DispatchTest, RatesHaveTheIntervalOfWilson) {
  const Rate rate = {.seen = 9, .of = 10};
  EXPECT_NEAR(rate.low(), 0.5958, 1e-4);  // as tables of it have it
  EXPECT_NEAR(rate.high(), 0.9821, 1e-4);
  EXPECT_EQ(Rate().low(), 0);
  EXPECT_EQ(Rate().high(), 1);
}

TEST(DispatchTest, WhatShowsNowhereIsCountedApart) {
  const auto tables = tables_of(R"({"of": "dtype", "values": ["f16"]})");
  const Instance instance = {.dispatch = &tables[0], .classes = {0}};
  Sweep sweep;
  for (const Seen seen :
       {Seen::by_a_case, Seen::by_a_random_problem, Seen::by_a_drawn_one, Seen::by_nothing}) {
    sweep.swept.push_back({.instance = instance, .mutant = "wrong", .cases = 5, .seen = seen});
  }
  EXPECT_EQ(by_cases(sweep).seen, 1u);
  EXPECT_EQ(by_cases(sweep).of, 3u);
  EXPECT_EQ(by_random_problems_too(sweep).seen, 2u);
  const std::string text = to_text(sweep);
  EXPECT_THAT(text, HasSubstr("Of 4 mutants that are wrong in one instance, made of 1 others"));
  EXPECT_THAT(text, HasSubstr("1 show in no problem"));
  EXPECT_THAT(text, HasSubstr("wrong in table: dtype f16: not seen by 5 cases, seen by a random"));
  EXPECT_THAT(text, Not(HasSubstr("seen by nothing")));
  EXPECT_THAT(to_json(sweep), HasSubstr("\"seen_by\": \"nothing\""));
}

TEST(DispatchTest, TablesThatWereHeldOutAreCountedAlone) {
  std::vector<DispatchTable> tables(2);
  tables[0].name = "known", tables[1].name = "strange";
  tables[1].held_out = true;
  Sweep sweep;
  for (const DispatchTable& table : tables) {
    const Instance instance = {.dispatch = &table, .classes = {}};
    const Seen seen = table.held_out ? Seen::by_a_random_problem : Seen::by_a_case;
    sweep.swept.push_back({.instance = instance, .mutant = "wrong", .seen = seen});
  }
  EXPECT_EQ(by_cases(sweep).seen, 0u);
  EXPECT_EQ(by_cases(sweep).of, 1u);
  EXPECT_EQ(by_random_problems_too(sweep).seen, 1u);
  EXPECT_THAT(to_text(sweep), HasSubstr("cases were made with         1 of 1"));
  EXPECT_THAT(to_text(sweep), HasSubstr("held out                     0 of 1"));
}

}  // namespace
}  // namespace attest::instances
