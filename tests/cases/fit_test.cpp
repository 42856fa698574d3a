#include "cases/fit.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "cases/generate.h"
#include "cases/laws.h"
#include "spec/contains.h"
#include "spec/description.h"
#include "spec/feature.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

const std::vector<CaseWithEntry>& suite() {
  static const std::vector<CaseWithEntry> kSuite = load_entries(ATTEST_CASES_DIR);
  return kSuite;
}

// A case of its own, of f16.
CaseWithEntry case_of(const json& problem, const std::vector<std::string>& clauses = {"MASK-1"},
                      const json& more = json::object()) {
  json entry = {{"name", "own"},      {"clauses", clauses}, {"because", "It may be wrong."},
                {"bits", "own/bits"}, {"problem", problem}, {"dtypes", {"f16"}},
                {"data", {"normal"}}};
  entry.update(more);
  return {.test_case = read_entry(entry, "test"), .entry = entry};
}

Description testee_of(const json& limits, const std::vector<std::string>& features,
                      const std::vector<std::string>& dtypes = {"f16"}) {
  return parse_description({{"name", "k"},
                            {"version", "1"},
                            {"vendor", "v"},
                            {"profiles", json::array()},
                            {"dtypes", dtypes},
                            {"features", features},
                            {"limits", limits}});
}

Fitted fitted_to(const CaseWithEntry& base, const Description& testee) {
  return fitted(base, testee.limits, testee.features);
}
Fitted fitted_to(const CaseWithEntry& base, const char* limits,
                 const std::vector<std::string>& features = {"causal", "strides"}) {
  return fitted_to(base, testee_of(json::parse(limits), features));
}

// "sq:128,sk:128", or why nothing is asked.
std::string fit_or_why(const Fitted& fit) {
  return fit.asked ? std::string(fit_of(fit.asked->id)) : fit.why;
}

// ---- Which sizes it takes -----------------------------------------------------------------------

const json kProblem = {{"batch", 2},      {"query_heads", 4}, {"key_heads", 4},
                       {"query_len", 65}, {"key_len", 80},    {"head_dim", 40}};

json with(json problem, const json& more) {
  problem.update(more);
  return problem;
}

TEST(FitTest, WhatLiesWithinIsTheCaseItself) {
  const CaseWithEntry base = case_of(kProblem);
  const Fitted fit = fitted_to(base, R"({"head_dim": {"max": 40}, "batch": [2, 3]})");
  ASSERT_TRUE(fit.asked);
  EXPECT_EQ(fit.asked->id, base.test_case.id);
}

TEST(FitTest, SizesBecomeTheSmallestAboveElseTheLargestBelow) {
  const CaseWithEntry base = case_of(kProblem);
  const std::pair<const char*, const char*> kFits[] = {
      {R"({"key_len": {"multiple": 64}})", "sk:128"},
      {R"({"key_len": [16, 64]})", "sk:64"},
      {R"({"head_dim": [16, 64, 128]})", "d:64,dv:64"},
      {R"({"batch": {"min": 3}})", "b:3"},
      {R"({"batch": 1})", "b:1"},
      {R"({"query_heads": [2, 6]})", "h:6,kv:6"},
      {R"({"square": true})", "sq:80"},
      {R"({"square": true, "query_len": {"multiple": 64}})", "sq:128,sk:128"},
      {R"({"keys_at_least_queries": true, "key_len": {"max": 60}})", "sq:60,sk:60"},
      {R"({"pairs": {"max": 4225}, "key_len": [65, 128]})", "sk:65"},
      {R"({"pairs": {"max": 5199}})", "sk:79"},
      {R"({"pairs": {"max": 5199}, "key_len": {"multiple": 16}})", "sk:64"},
      {R"({"pairs": {"min": 5201}})", "sk:81"},
      {R"({"pairs": {"multiple": 64}})", "sk:128"},
      {R"({"pairs": {"max": 1024}, "key_len": {"min": 64}})", "sq:12"},
      {R"({"pairs": {"max": 1024}, "key_len": {"min": 20}, "query_len": {"min": 20}})",
       "sq:32,sk:32"},
      {R"({"pairs": {"max": 1024}, "square": true})", "sq:32,sk:32"},
      {R"({"pairs": {"max": 4096}, "keys_at_least_queries": true})", "sq:51"},
      {R"({"head_dim": [[64, 64], [32, 32]]})", "d:64,dv:64"},
      {R"({"head_dim": [[16, 16], [32, 32]]})", "d:32,dv:32"},
      {R"({"never": [{"key_len": 80}]})", "sk:81"},
      {R"({"never": [{"head_dim": 40, "key_len": {"min": 65}}]})", "sk:64"},
      {R"({"never": [{"head_dim": 40, "key_len": {"min": 65}}, {"key_len": 64}]})", "sk:63"},
      {R"({"never": [{"head_dim": 40, "square": true}], "square": true})", "sq:80,d:41,dv:41"}};
  for (const auto& [limits, fit] : kFits) {
    EXPECT_EQ(fit_or_why(fitted_to(base, limits)), fit) << limits;
  }
}

TEST(FitTest, FeaturesThatAreAbsentAreFittedToOrLeftOut) {
  const CaseWithEntry grouped = case_of(with(kProblem, {{"key_heads", 2}, {"value_dim", 24}}));
  EXPECT_EQ(fit_or_why(fitted_to(grouped, "{}")), "kv:4,d:40,dv:40");
  const CaseWithEntry capped =
      case_of(with(kProblem, {{"softcap", 5}, {"sink", true}, {"key_lens", {80, 3}}, {"batch", 2}}),
              {"MASK-1", "SCORE-2"});
  EXPECT_EQ(fit_or_why(fitted_to(capped, "{}")), "without:lengths+softcap+sink");
  EXPECT_EQ(fit_or_why(fitted_to(capped, "{}", {"softcap", "lengths"})), "without:sink");
  EXPECT_THAT(fitted_to(capped, "{}").asked->clauses, ElementsAre("MASK-1"));
  const CaseWithEntry windowed = case_of(with(kProblem, {{"mask", "window -3..0"}}));
  const Fitted fit = fitted_to(windowed, "{}");
  EXPECT_FALSE(fit.asked);
  EXPECT_EQ(fit.why, "needs window");
  EXPECT_THAT(fit.missing, ElementsAre("window"));
}

TEST(FitTest, WhatCanBeTakenOutOfAProblemCanBeLeftOut) {
  std::set<std::string_view> taken_out;
  for (const Feature& feature : features()) {
    if (feature.take_out) taken_out.insert(feature.name);
  }
  EXPECT_EQ(taken_out, std::set<std::string_view>(features_to_leave_out().begin(),
                                                  features_to_leave_out().end()));
}

TEST(FitTest, FeaturesThatAFormatLacksAreAbsentInIt) {
  const CaseWithEntry base =
      case_of(with(kProblem, {{"softcap", 5}, {"key_heads", 2}}), {"MASK-1", "SCORE-2"});
  const std::vector<std::string> features = {"softcap", "gqa", "causal"};
  EXPECT_EQ(
      fit_or_why(fitted_to(base, R"({"dtypes": {"f16": {"features": ["causal"]}}})", features)),
      "kv:4,without:softcap");
  EXPECT_EQ(fit_or_why(fitted_to(base, R"({"never": [{"features": ["softcap"]}]})", features)),
            "without:softcap");
  EXPECT_EQ(fit_or_why(fitted_to(base, "{}", features)), "") << "the case itself";
}

TEST(FitTest, NothingBecomesLongThatIsNot) {
  const CaseWithEntry base = case_of(with(
      kProblem,
      {{"batch", 1}, {"query_heads", 1}, {"key_heads", 1}, {"query_len", 1}, {"key_len", 9000}}));
  const char* limits = R"({"pairs": {"multiple": 32768}, "keys_at_least_queries": true})";
  EXPECT_EQ(fit_or_why(fitted_to(base, limits, {"long"})), "sk:32768");
  EXPECT_EQ(fit_or_why(fitted_to(base, limits, {})), "pairs 9000: takes a multiple of 32768");
}

TEST(FitTest, CornersAndOrdersAreThoseThatAreTaken) {
  const CaseWithEntry base = case_of(
      with(kProblem, {{"mask", "causal bottom_right"}, {"layouts", "sbhd"}}), {"SOFTMAX-1"});
  EXPECT_EQ(fit_or_why(fitted_to(base, R"({"masks": ["causal top_left"], "layouts": ["bshd"]})")),
            "corner:top_left,order:bshd");
  EXPECT_EQ(fit_or_why(fitted_to(base, "{}", {"causal"})), "order:bhsd");
  const CaseWithEntry dense = case_of(kProblem, {"SOFTMAX-1"});
  EXPECT_EQ(fit_or_why(fitted_to(dense, R"({"layouts": ["hbsd", "dhsb"]})")), "order:hbsd");
}

TEST(FitTest, ACausalKernelIsAskedWithACausalMaskWhatHasAFullOne) {
  const std::vector<std::string> clauses = {"MASK-1", "SOFTMAX-1"};
  const CaseWithEntry base = case_of(kProblem, clauses);
  const Fitted both = fitted_to(base, R"({"masks": ["causal"]})");
  EXPECT_EQ(fit_or_why(both), "causal:bottom_right") << "each query sees a key";
  EXPECT_THAT(both.asked->clauses, ElementsAre("SOFTMAX-1"));
  EXPECT_EQ(to_string(both.asked->problem.mask), to_string(Mask::causal(Anchor::bottom_right)));
  const CaseWithEntry fewer = case_of(with(kProblem, {{"query_len", 90}}), clauses);
  EXPECT_EQ(fit_or_why(fitted_to(fewer, R"({"masks": ["causal"]})")), "causal:top_left");
  EXPECT_EQ(fit_or_why(fitted_to(base, R"({"masks": ["causal top_left", "dense-mask"]})",
                                 {"causal", "dense-mask", "strides"})),
            "causal:top_left");
  EXPECT_EQ(fit_or_why(fitted_to(base, R"({"never": [{"masks": ["full"], "dtypes": ["f16"]}]})")),
            "causal:bottom_right");
  EXPECT_EQ(fit_or_why(fitted_to(base, R"({"never": [{"lacks": ["causal"]}]})")),
            "causal:bottom_right");
  EXPECT_THAT(fit_or_why(fitted_to(case_of(kProblem), R"({"masks": ["causal"]})")),
              HasSubstr("nothing is left of what it tries"));
  EXPECT_EQ(fit_or_why(fitted_to(base, R"({"masks": ["dense-mask"]})", {"dense-mask", "strides"})),
            "mask full: takes dense-mask");
}

TEST(FitTest, AKernelOfStoredKeysAloneIsAskedWithThemWhatHasOthers) {
  const char* const never = R"({"never": [{"lacks": ["stored-kv"]}, {"lacks": ["causal"]}]})";
  const std::vector<std::string> features = {"causal", "strides", "stored-kv", "int8"};
  const CaseWithEntry base = case_of(kProblem, {"MASK-1", "SOFTMAX-1"});
  const Fitted both = fitted_to(base, never, features);
  EXPECT_EQ(fit_or_why(both), "causal:bottom_right,stored:kv_int8");
  EXPECT_THAT(both.asked->clauses, UnorderedElementsAre("SOFTMAX-1", "FORMAT-7"));
  EXPECT_EQ(both.asked->problem.stored.k->dtype, DType::int8);
  EXPECT_FALSE(both.asked->problem.stored.q);
  const Case again = with_fit(base, Fit::parse("causal:bottom_right,stored:kv_int8"));
  EXPECT_EQ(again.id, both.asked->id);
  EXPECT_EQ(to_string(again.problem), to_string(both.asked->problem));

  const CaseWithEntry stored = case_of(with(kProblem, {{"stored", "kv int8 h"}}), {"SOFTMAX-1"});
  EXPECT_EQ(fit_or_why(fitted_to(stored, never, features)), "needs scales-of-heads");
  const CaseWithEntry backward = case_of(with(kProblem, {{"backward", true}}), {"GRAD-1"});
  EXPECT_THAT(fit_or_why(fitted_to(backward, never, {"backward", "causal", "stored-kv", "int8"})),
              testing::StartsWith("never {\"lacks\":[\"stored-kv\"]}"));
  const std::vector<std::string> tokens = {
      "causal", "strides", "stored-kv",       "stored-qkv",
      "int8",   "e4m3",    "scales-of-heads", "scales-of-positions"};
  EXPECT_EQ(fit_or_why(fitted_to(base, R"({"never": [{"lacks": ["int8"]},
                                  {"lacks": ["scales-of-positions"]}]})",
                                 tokens)),
            "stored:qkv_int8_s");
  EXPECT_EQ(fit_or_why(fitted_to(base, R"({"never": [{"lacks": ["stored-kv"]},
                                  {"lacks": ["scales-of-heads"]}]})",
                                 tokens)),
            "stored:kv_e4m3_h");
  EXPECT_EQ(
      fit_or_why(fitted_to(base, R"({"never": [{"lacks": ["stored-kv"]}, {"lacks": ["bfp8"]}]})",
                           {"causal", "stored-kv", "bfp8"})),
      "stored:kv_int8_c");
  EXPECT_EQ(fit_or_why(fitted_to(base, R"({"never": [{"lacks": ["mxfp8"]}]})",
                                 {"causal", "stored-qkv", "int8", "e5m2", "mxfp8"})),
            "stored:qkv_e5m2_c");
  for (const char* any :
       {R"(["scales-of-heads", "stored-kv"])", R"(["stored-kv", "scales-of-heads"])"}) {
    const std::string one_suffices = fmt::format(R"({{"never": [{{"lacks": {}}}]}})", any);
    EXPECT_EQ(fit_or_why(fitted_to(base, one_suffices.c_str(), tokens)), "stored:kv_e4m3") << any;
  }
  const CaseWithEntry of_nan = case_of(kProblem, {"FINITE-1", "SOFTMAX-1"});
  EXPECT_THAT(fit_or_why(fitted_to(of_nan, never, features)), testing::StartsWith("never"));
  for (const char* wrong : {"stored:kv", "stored:kv_f16", "stored:v_int8", "stored:kv_int8_b"}) {
    EXPECT_THROW(Fit::parse(wrong), InputError) << wrong;
  }
  EXPECT_THROW(with_fit(stored, Fit::parse("stored:kv_int8")), InputError);
}

TEST(FitTest, NoFitTakesMoreThanEightTimesTheWork) {
  const CaseWithEntry base =
      case_of(with(kProblem, {{"query_len", 128}, {"key_len", 128}, {"head_dim", 16}}));
  EXPECT_EQ(fit_or_why(fitted_to(base, R"({"head_dim": 128})")), "d:128,dv:128");
  EXPECT_THAT(fit_or_why(fitted_to(base, R"({"head_dim": 129})")),
              AllOf(HasSubstr("head_dim 16: takes 129"), HasSubstr("more than 8 times")));
  EXPECT_EQ(fit_or_why(fitted_to(base, R"({"key_len": {"min": 1024}})")), "sk:1024");
  EXPECT_THAT(fit_or_why(fitted_to(base, R"({"key_len": {"min": 1025}})")),
              HasSubstr("key_len 128: takes at least 1025"));
  const CaseWithEntry small = case_of({{"query_len", 1}, {"key_len", 1}, {"head_dim", 1}});
  EXPECT_EQ(fit_or_why(fitted_to(small, R"({"key_len": 1024, "query_len": 64, "head_dim": 32})")),
            "sq:64,sk:1024,d:32,dv:32")
      << "as much as 8 times 64 by 64 by 64 costs what a call costs";
}

// What is little in one head is much in 132,810 of them.
TEST(FitTest, LittleWorkIsThatOfAllHeads) {
  const char* const tiles = R"({"square": true, "query_len": {"multiple": 64}})";
  const auto fit = [&](Index batch, Index heads, const char* limits) {
    const json problem = {
        {"batch", batch}, {"query_heads", heads}, {"key_heads", heads}, {"head_dim", 4}};
    return fit_or_why(fitted_to(case_of(problem), limits));
  };
  EXPECT_EQ(fit(128, 2, tiles), "sq:64,sk:64");
  EXPECT_THAT(fit(132'810, 1, tiles), HasSubstr("more than 8 times"));
  EXPECT_THAT(fit(1, 132'810, tiles), HasSubstr("more than 8 times"));
  EXPECT_EQ(fit(132'810, 1, R"({"square": true, "query_len": {"multiple": 64}, "batch": 2})"),
            "b:2,sq:64,sk:64")
      << "as they are fitted";
  const json many = {{"packed", true},
                     {"batch", 132'810},
                     {"head_dim", 4},
                     {"query_lens", {{"repeat", {1}}, {"times", 132'810}}},
                     {"key_lens", {{"repeat", {1}}, {"times", 132'810}}}};
  EXPECT_THAT(fit_or_why(fitted_to(case_of(many), tiles)), HasSubstr("more than 8 times"));
}

TEST(FitTest, WhatCannotBeAskedNamesTheLimit) {
  struct InVain {
    CaseWithEntry base;
    const char *limits, *why, *stopped_by;
    std::vector<std::string> features = {"causal", "strides", "dense-mask"};
  };
  const InVain kInVain[] = {
      {case_of(with(kProblem, {{"mask", "causal bottom_right"}}), {"MASK-3"}),
       R"({"masks": ["causal top_left"]})",
       "mask causal bottom_right: takes causal top_left; with corner:top_left: nothing is left of "
       "what it tries",
       "corner"},
      {case_of(kProblem), R"({"masks": ["causal"]})", "mask full: takes causal", "full mask"},
      {case_of(kProblem),
       R"({"never": [{"masks": ["full"]}]})",
       "never {\"masks\":[\"full\"]}",
       "never",
       {"strides"}},
      {case_of({{"batch", 2},
                {"query_heads", 1},
                {"packed", true},
                {"query_lens", {0, 4}},
                {"key_lens", {0, 9}}},
               {"LAYOUT-5", "NUM-1"}),
       R"({"batch": 1})",
       "batch 2: takes 1; with b:1: query_len 0: takes at least 1",
       "query_len",
       {"packed"}},
      {case_of(kProblem), R"({"layouts": ["bhds"]})", "layout bhsd: takes bhds", "layout"},
      {case_of(with(kProblem, {{"mask", "causal"}})),
       R"({"dtypes": {"f16": {"features": ["strides"]}}})", "causal: not taken in f16", "causal"},
      {case_of(with(kProblem, {{"mask", "causal"}})),
       R"({"never": [{"features": ["causal"], "dtypes": ["f16"]}]})",
       "never {\"dtypes\":[\"f16\"],\"features\":[\"causal\"]}", "never"},
      {case_of(kProblem), R"({"never": [{"lacks": ["causal"]}]})",
       "never {\"lacks\":[\"causal\"]}; with causal:bottom_right: nothing is left", "full mask"},
      {case_of(kProblem), R"({"key_len": 64, "never": [{"key_len": 64, "lacks": ["causal"]}]})",
       "key_len 80: takes 64; with sk:64: never {\"key_len\":64,\"lacks\":[\"causal\"]}", "never"},
      {case_of(with(kProblem, {{"key_heads", 2}}), {"HEAD-1"}), "{}",
       "group 2: takes 1; with kv:4: nothing is left of what it tries", "groups"},
      {case_of(kProblem, {"MASK-1"}, {{"pin", {"key_len"}}}), R"({"key_len": {"multiple": 64}})",
       "key_len 80: takes a multiple of 64; with sk:128: the case is about its key_len of 80",
       "what it is about"},
      {case_of(with(kProblem, {{"mask", {{"dense", {{"rows", {"x.", "xx"}}}}}},
                               {"query_len", 2},
                               {"key_len", 2}}),
               {"MASK-7"}),
       R"({"key_len": 3})", "key_len 2: takes 3; with sk:3: ", "what it is about"}};
  for (const InVain& each : kInVain) {
    const Fitted fit = fitted_to(each.base, each.limits, each.features);
    EXPECT_FALSE(fit.asked) << fit_or_why(fit);
    EXPECT_THAT(fit.why, testing::StartsWith(each.why));
    EXPECT_EQ(fit.stopped_by, each.stopped_by) << fit.why;
  }
}

TEST(FitTest, NothingThatIsThereBecomesEmpty) {
  const CaseWithEntry base = case_of(kProblem);
  for (const char* limits : {R"({"query_heads": [0, 3]})", R"({"batch": {"max": 1}})",
                             R"({"query_len": [0, 70]})", R"({"key_len": {"max": 3}})"}) {
    const Fitted fit = fitted_to(base, limits, {"causal", "zero-sizes"});
    ASSERT_TRUE(fit.asked) << limits << fit.why;
    EXPECT_GT(element_count(fit.asked->problem.keep_shape()), 0) << limits;
  }
  EXPECT_THAT(fit_or_why(fitted_to(base, R"({"never": [{"key_len": {"min": 1}}]})",
                                   {"causal", "zero-sizes"})),
              HasSubstr("never"));
}

TEST(FitTest, RowsWithoutKeysAreClaimedWhereThereAreSome) {
  const CaseWithEntry base =
      case_of(with(kProblem, {{"query_lens", {65, 40}}}), {"EMPTY-1", "SOFTMAX-1"});
  const auto clauses = [&](const std::vector<std::string>& features) {
    return fitted_to(base, R"({"head_dim": 64})", features).asked->clauses;
  };
  EXPECT_THAT(clauses({"lengths"}), Contains("EMPTY-1"));
  EXPECT_THAT(clauses({"causal"}), Not(Contains("EMPTY-1"))) << "no lengths are left";
}

TEST(FitTest, PinnedSizesStay) {
  const CaseWithEntry base = case_of(kProblem, {"MASK-1"}, {{"pin", {"key_len", "batch"}}});
  EXPECT_EQ(fit_or_why(fitted_to(base, R"({"head_dim": 64})")), "d:64,dv:64");
  EXPECT_THAT(fit_or_why(fitted_to(base, R"({"batch": 1})")), HasSubstr("about its batch of 2"));
  EXPECT_THAT(fit_or_why(fitted_to(case_of(kProblem), R"({"batch": 1})")), "b:1");
}

// ---- Ids ----------------------------------------------------------------------------------------

TEST(FitTest, OneTextIsOneFit) {
  const char* const whole =
      "b:1,h:8,kv:4,sq:128,sk:256,d:64,dv:32,page:16,packed:keys,corner:bottom_right,order:bshd,"
      "without:lengths+sink";
  EXPECT_EQ(Fit::parse(whole).to_string(), whole);
  EXPECT_EQ(Fit::parse("sq:128,causal:top_left").to_string(), "sq:128,causal:top_left");
  for (const char* wrong :
       {"", "sq", "sq:", "sq:x", "sq:-1", "sq:1,", "sk:1,sq:1", "sq:1,sq:1", "sq:01", "corner:left",
        "causal:", "packed:all", "order:bhs", "without:causal", "without:sink+packed",
        "colour:blue", "sq:99999999999999999999", "sq:1 "}) {
    EXPECT_THROW(Fit::parse(wrong), InputError) << wrong;
  }
}

TEST(FitTest, ACaseIsFoundByTheIdOfAFit) {
  const std::vector<Case> cases = load_cases(ATTEST_CASES_DIR);
  const auto named = [&](const std::string& stem) {
    return std::find_if(cases.begin(), cases.end(),
                        [&](const Case& c) {
                          return c.id.starts_with(stem) && c.problem.dtype == DType::f16;
                        })
        ->id;
  };
  const std::string id = named("mask/causal/");
  const Case found = find_case(cases, id + "/fit=d:64,dv:64");
  EXPECT_EQ(found.problem.head_dim, 64);
  EXPECT_EQ(found.bits, id);
  EXPECT_EQ(find_case(cases, id.substr(0, id.size() - 1) + "7/fit=d:64,dv:64").seed, 7u);
  for (const char* wrong : {"/fit=", "/fit=sq", "/fit=page:16", "/fit=packed:square",
                            "/fit=kv:3,d:64", "/fit=sq:4611686018427387904"}) {
    EXPECT_THROW(find_case(cases, id + wrong), InputError) << wrong;
  }
}

TEST(FitTest, AnIdOfAFitSaysWhatIsWrongWithIt) {
  const std::vector<Case> cases = load_cases(ATTEST_CASES_DIR);
  const std::string id = "mask/causal/bottom_right_more_keys/dtype=f32/data=normal/s=1/fit=";
  const std::pair<const char*, const char*> kWrong[] = {
      {"h:3,kv:2", "ill-formed (HEAD-1): 2 key heads do not divide 3 query heads"},
      {"sq:17", "sq:17 changes nothing"},
      {"sq:18,d:16,dv:16", "d:16 changes nothing"},
      {"corner:bottom_right", "the corner changes nothing"},
      {"causal:top_left", "the case's mask is not full"},
      {"order:bhsd", "the order changes nothing"},
      {"without:softcap", "without:softcap changes nothing"},
      {"sq:50", "nothing is left of what the case tries"}};
  for (const auto& [fit, told] : kWrong) {
    try {
      find_case(cases, id + fit);
      ADD_FAILURE() << fit << " is taken";
    } catch (const InputError& error) {
      EXPECT_EQ(error.what(), fmt::format("{}{}: {}", id, fit, told));
    }
  }
}

// ---- Any kernel, any case -----------------------------------------------------------------------

// Draws declarations, term by term; a term that would leave nothing is left out.
class AnyDeclaration {
 public:
  json draw() {
    json features = json::array(), dtypes = json::array();
    const int rarity = *rc::gen::inRange(1, 5);
    for (const std::string& feature : known_features()) {
      if (*rc::gen::inRange(0, 5) < rarity) features.push_back(feature);
    }
    for (const char* dtype : {"f32", "f16", "bf16"}) {
      if (dtypes.empty() || coin()) dtypes.push_back(dtype);
    }
    whole_ = {{"name", "k"},
              {"version", "1"},
              {"vendor", "v"},
              {"profiles", json::array()},
              {"dtypes", dtypes},
              {"features", features},
              {"limits", json::object()}};
    add_terms("", *rc::gen::inRange(0, 6));
    if (coin()) add_terms("/backward", 1);
    if (coin()) {
      const std::string format = "/dtypes/" + one_of(dtypes).get<std::string>();
      add_terms(format, 2);
      try_to_add(format + "/features", some_of(features));
      if (coin()) add_terms(format + "/backward", 1);
    }
    for (int n = *rc::gen::inRange(0, 3); n > 0; --n) add_never(features, dtypes);
    return whole_;
  }

 private:
  static bool coin() { return *rc::gen::arbitrary<bool>(); }
  static json one_of(const json& list) {
    return list.at(*rc::gen::inRange<std::size_t>(0, list.size()));
  }
  static json some_of(const json& list) {
    json some = json::array();
    for (const json& each : list) {
      if (coin()) some.push_back(each);
    }
    return some;
  }

  static json sizes(const json& usual) {
    const Index one = one_of(usual).get<Index>(), other = one_of(usual).get<Index>();
    switch (*rc::gen::inRange(0, 5)) {
      case 0:
        return one;
      case 1:
        return json::array({one, other});
      case 2:
        return {{"max", one}};
      case 3:
        return {{"min", std::min(one, other)}, {"multiple", std::max<Index>(1, one / 2)}};
      default:
        return {{"min", std::min(one, other)}, {"max", std::max(one, other)}};
    }
  }

  // A term of those that all parts have, with its key.
  static std::pair<std::string, json> any_term() {
    const std::vector<std::function<std::pair<std::string, json>()>> kTerms = {
        [] {
          return std::pair("batch", sizes({0, 1, 2, 3, 4, 8}));
        },
        [] {
          return std::pair("query_heads", sizes({1, 2, 3, 4, 8, 16}));
        },
        [] {
          return std::pair("key_heads", sizes({1, 2, 3, 4, 8}));
        },
        [] {
          return std::pair("group", sizes({1, 2, 3, 4, 8}));
        },
        [] {
          return std::pair("query_len", sizes({0, 1, 16, 64, 128, 512}));
        },
        [] {
          return std::pair("key_len", sizes({1, 16, 64, 128, 512, 4096}));
        },
        [] {
          return std::pair("head_dim", sizes({1, 8, 16, 32, 64, 128, 256}));
        },
        [] {
          return std::pair("value_dim", sizes({1, 8, 16, 32, 64, 128, 256}));
        },
        [] {
          return std::pair("head_dim", json({{64, 64}, {128, 128}, {192, 128}, {16, 32}}));
        },
        [] {
          return std::pair("page_size", sizes({1, 2, 4, 16, 64}));
        },
        [] {
          return std::pair("mask_offset", sizes({-3, 0, 1, 5}));
        },
        [] {
          return std::pair("pairs", sizes({1, 4096, 65536, 1048576}));
        },
        [] { return std::pair("square", json(true)); },
        [] { return std::pair("keys_at_least_queries", json(true)); },
        [] {
          return std::pair("masks", some_of({"full", "causal", "causal top_left", "window",
                                             "window causal bottom_right", "dense-mask", "prefix",
                                             "segments", "dilated top_left"}));
        },
        [] {
          return std::pair("lengths", some_of({"key", "query"}));
        },
        [] {
          return std::pair("bias_axes", some_of({"", "hqk", "bhqk", "k", "hk", "bqk"}));
        },
        [] {
          return std::pair("layouts", some_of({"bhsd", "bshd", "sbhd", "bhds"}));
        }};
    return kTerms[*rc::gen::inRange<std::size_t>(0, kTerms.size())]();
  }

  void try_to_add(const std::string& place, const json& value) {
    json more = whole_;
    more[json::json_pointer("/limits" + place)] = value;
    try {
      parse_description(more);
      whole_ = std::move(more);
    } catch (const InputError&) {
      // Nothing could be asked, or it speaks of what is not declared.
    }
  }

  void add_terms(const std::string& place, int count) {
    for (; count > 0; --count) {
      const auto [key, value] = any_term();
      try_to_add(place + "/" + key, value);
    }
  }

  void add_never(const json& features, const json& dtypes) {
    json never = json::object();
    for (int n = *rc::gen::inRange(1, 4); n > 0; --n) {
      const auto [key, value] = any_term();
      never[key] = value;
    }
    if (coin()) never["features"] = some_of(features);
    if (coin() && coin()) never["lacks"] = some_of(features);
    if (coin() && coin()) never["dtypes"] = some_of(dtypes);
    if (coin() && coin()) never["backward"] = coin();
    json list = whole_["limits"].value("never", json::array());
    list.push_back(never);
    try_to_add("/never", list);
  }

  json whole_ = {};
};

double work(const Problem& p) {
  const auto at_least_1 = [](Index size) { return static_cast<double>(std::max<Index>(size, 1)); };
  return at_least_1(p.query_len) * at_least_1(p.key_len) *
         at_least_1(std::max(p.head_dim, p.value_dim));
}

void kinds_of(const Mask& mask, std::vector<Mask::Kind>& kinds) {
  kinds.push_back(mask.kind);
  for (const Mask& part : mask.parts) kinds_of(part, kinds);
}
std::vector<Mask::Kind> kinds_of(const Mask& mask) {
  std::vector<Mask::Kind> kinds;
  kinds_of(mask, kinds);
  return kinds;
}

// Masks and lengths, as the problem means them.
bool same_pairs(const Problem& a, const Problem& b) {
  for (Index n = 0; n < element_count(a.keep_shape()); ++n) {
    const auto [batch, head, query, key] = coordinates(a.keep_shape(), n);
    const Position at = {.batch = batch, .head = head, .query = query, .key = key};
    if (visible(a, at) != visible(b, at)) return false;
  }
  return true;
}

bool same_inputs(const Inputs& a, const Inputs& b) {
  const auto bits = [](const Inputs& in) {
    std::vector<std::uint64_t> all;
    for (const TensorName tensor : kInputValues) {
      for (const double value : in[tensor].data) all.push_back(std::bit_cast<std::uint64_t>(value));
    }
    return all;
  };
  return bits(a) == bits(b) && a.keep.kept == b.keep.kept;
}

// What is asked of a testee in place of a case.
void check_asked(const CaseWithEntry& base, const Case& asked, const Description& testee) {
  const Case& c = base.test_case;
  RC_ASSERT(!exclusion(asked.problem, testee).has_value());
  RC_ASSERT(!asked.clauses.empty());
  // What lay in pages or was packed may have lengths instead, which it cites then; and laws may
  // need other problems beside it.
  auto needed = clauses_needed_by(asked.problem);
  for (const std::string& law : asked.laws) {
    const auto more = clauses_of_variants(*find_law(law), asked.problem);
    needed.insert(needed.end(), more.begin(), more.end());
  }
  for (const std::string& clause : asked.clauses) {
    RC_ASSERT(contains(c.clauses, clause) || contains(needed, clause));
  }
  // What is never fitted away.
  RC_ASSERT(asked.problem.dtype == c.problem.dtype);
  RC_ASSERT(asked.problem.backward == c.problem.backward);
  // A full mask may have become the causal one.
  const std::string_view changed = fit_of(asked.id);
  const bool is_causal_instead = !changed.empty() && Fit::parse(changed).causal.has_value();
  RC_ASSERT(kinds_of(is_causal_instead ? Mask::full() : asked.problem.mask) ==
            kinds_of(c.problem.mask));
  RC_ASSERT(asked.problem.bias_shape.has_value() == c.problem.bias_shape.has_value());
  RC_ASSERT(asked.problem.slopes_shape.has_value() == c.problem.slopes_shape.has_value());
  RC_ASSERT(asked.problem.scale > 0 || asked.problem.scale == c.problem.scale);
  RC_ASSERT(work(asked.problem) <= 8 * std::max(work(c.problem), 64.0 * 64 * 64));
  // The id alone gives it.
  if (asked.id == c.id) return;
  RC_ASSERT(base_id(asked.id) == c.id);
  const Case again = with_fit(base, Fit::parse(fit_of(asked.id)));
  RC_ASSERT(again.id == asked.id);
  RC_ASSERT(to_string(again.problem) == to_string(asked.problem));
  RC_ASSERT(again.clauses == asked.clauses);
  RC_ASSERT(again.bits == (c.bits.empty() ? c.id : c.bits));
  const bool is_small = work(asked.problem) < 1e6 && asked.problem.batch < 16 &&
                        asked.problem.query_heads < 64 && asked.excerpt == 0;
  if (!is_small) return;
  RC_ASSERT(same_pairs(again.problem, asked.problem));
  RC_ASSERT(same_inputs(generate(again), generate(asked)));
}

// A limit by its name, or a feature.
bool names_a_limit(const std::string& why) {
  std::vector<std::string> words = {"mask ",  "lengths", "bias over", "layout ",    "not taken",
                                    "needs ", "never {", "takes",     "query heads"};
  for (const std::string& feature : known_features()) words.push_back(feature);
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return why.find(word) != why.npos; });
}

RC_GTEST_PROP(FitProperty, WhatADeclarationAdmitsIsAskedAndWhatItExcludesIsNot, ()) {
  const json declaration = AnyDeclaration().draw();
  RC_LOG() << declaration.dump() << '\n';
  const Description testee = parse_description(declaration);
  for (int n = 0; n < 25; ++n) {
    const CaseWithEntry& base = suite()[*rc::gen::inRange<std::size_t>(0, suite().size())];
    const Case& c = base.test_case;
    if (!contains(testee.dtypes, c.problem.dtype)) continue;
    RC_LOG() << c.id << '\n';
    const Fitted fit = fitted_to(base, testee);
    const bool admitted = !exclusion(c.problem, testee).has_value();
    if (admitted) RC_ASSERT(fit.asked && fit.asked->id == c.id);
    if (fit.asked) {
      check_asked(base, *fit.asked, testee);
      // Whoever fits it again changes nothing: it lies within.
      RC_ASSERT(fitted_to(base, testee).asked->id == fit.asked->id);
    } else {
      RC_ASSERT(names_a_limit(fit.why));
    }
  }
}

// The same lists, in another order.
json shuffled(const json& value) {
  json result = value;
  if (value.is_object()) {
    for (auto& [key, item] : result.items()) item = shuffled(item);
  } else if (value.is_array()) {
    const bool is_pair = value.size() == 2 && value[0].is_number() && value[1].is_number();
    for (json& item : result) item = shuffled(item);
    if (!is_pair) std::reverse(result.begin(), result.end());
  }
  return result;
}

RC_GTEST_PROP(FitProperty, TheOrderInWhichLimitsAreWrittenSaysNothing, ()) {
  const json declaration = AnyDeclaration().draw();
  RC_LOG() << declaration.dump() << '\n';
  const Description testee = parse_description(declaration);
  const Description other = parse_description(shuffled(declaration));
  for (int n = 0; n < 20; ++n) {
    const CaseWithEntry& base = suite()[*rc::gen::inRange<std::size_t>(0, suite().size())];
    if (!contains(testee.dtypes, base.test_case.problem.dtype)) continue;
    RC_LOG() << base.test_case.id << '\n';
    const Fitted one = fitted_to(base, testee), two = fitted_to(base, other);
    RC_ASSERT(one.asked.has_value() == two.asked.has_value());
    if (one.asked) RC_ASSERT(one.asked->id == two.asked->id);
  }
}

}  // namespace
}  // namespace attest
