#include "reports/declared.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "spec/feature.h"
#include "tests/reports/samples.h"

namespace attest {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// What is said under that name; "nothing" if the fact is missing.
std::string said(const TesteeRecord& testee, const std::string& what) {
  for (const DeclaredFact& fact : declared_facts(testee)) {
    if (fact.what == what) return fact.words;
  }
  return "nothing";
}

TesteeRecord with_limits(const char* limits) {
  return {.name = "k", .dtypes = {"f32", "f16"}, .limits = json::parse(limits)};
}

TEST(DeclaredTest, LimitsAreToldInWords) {
  EXPECT_EQ(said(with_limits("{}"), "Limits"), "nothing");
  EXPECT_EQ(said(with_limits(R"({"head_dim": [64, 96, 128], "query_len": {"multiple": 128},
                                 "key_len": {"min": 1, "max": 4096}, "batch": {"max": 8},
                                 "group": {"min": 2}, "key_heads": 8, "square": true,
                                 "keys_at_least_queries": false, "masks": ["causal top_left"],
                                 "bias_axes": ["", "hk"]})"),
                 "Limits"),
            "batch at most 8; bias_axes \"\" or hk; group at least 2; head_dim 64, 96 or 128; "
            "key_heads 8; key_len 1 to 4096; masks causal top_left; query_len a multiple of 128; "
            "square");
  EXPECT_EQ(said(with_limits(R"({"head_dim": [[64, 64], [192, 128]], "backward": {"batch": 1},
                                 "dtypes": {"f16": {"features": ["causal", "lse"],
                                                    "backward": {"head_dim": 64}}}})"),
                 "Limits"),
            "in a backward pass batch 1; in f16 in a backward pass head_dim 64; no features but "
            "causal, lse; head_dim [64, 64] or [192, 128]");
}

TEST(DeclaredTest, WhatIsNeverTakenIsToldInWords) {
  EXPECT_EQ(said(with_limits(R"({"square": true})"), "Never"), "nothing");
  EXPECT_EQ(said(with_limits(R"({"never": [{"features": ["softcap", "dropout"]},
                                           {"backward": true, "query_len": 1, "key_len": 1},
                                           {"lacks": ["paged"], "dtypes": ["f16"]},
                                           {"backward": false, "head_dim": {"min": 512}}]})"),
                 "Never"),
            "softcap with dropout; a backward pass, key_len 1, query_len 1; in f16, without paged; "
            "no backward pass, head_dim at least 512");
}

TEST(DeclaredTest, DialectsAreToldInWords) {
  TesteeRecord testee = {.name = "k"};
  const auto dialect = [&](const char* text) {
    testee.dialect = json::parse(text);
    return said(testee, "Otherwise than the standard");
  };
  EXPECT_EQ(dialect("{}"), "nothing");
  EXPECT_EQ(dialect(R"({"lse": {"as": "lse"}, "window": {"left": "inclusive"}})"), "nothing");
  EXPECT_EQ(dialect(R"({"lse": {"base": 2}})"), "LSE in base 2");
  EXPECT_EQ(dialect(R"({"lse": {"as": "maximum_and_sum"}, "window": {"left": "exclusive"},
                        "empty_rows": {"o": "the mean of V", "maximum": 0, "sum": 0}})"),
            "a maximum and a sum in place of LSE; windows exclusive on the left; in rows that see "
            "no key maximum 0, o the mean of V, sum 0");
}

TEST(DeclaredTest, ArithmeticBeyondTheDefaultIsToldByFormat) {
  TesteeRecord testee = {.name = "k", .dtypes = {"f32", "f16", "bf16"}};
  EXPECT_EQ(said(testee, "Beyond the default"), "nothing");
  const json fast = {{"exp_ulp", 736}, {"key_block", 128}};
  testee.arithmetic = {
      {"f32", {{"deterministic", true}, {"max_lag", 8}}}, {"f16", fast}, {"bf16", fast}};
  EXPECT_EQ(said(testee, "Beyond the default"),
            "a maximum that lags by 8 in log2 in f32; exp of 736 units in f16, bf16");
  testee.beyond_caps = {{"f16", "sums in f16"}};
  EXPECT_EQ(said(testee, "Beyond the caps"), "sums in f16 in f16");
}

TEST(DeclaredTest, WhatWasProbedIsToldFirst) {
  const TesteeRecord testee = {.name = "k", .probed = true};
  EXPECT_EQ(declared_facts(testee).front(),
            (DeclaredFact{"Declaration", "told from results by attest probe, and not adopted"}));
}

TEST(DeclaredTest, HowMuchOfADispatchIsMetIsTold) {
  TesteeRecord testee = {.name = "k"};
  EXPECT_EQ(said(testee, "Dispatch"), "nothing");
  testee.dispatch = {{.table = "a", .instances = 96, .met = 94, .fewest = 3},
                     {.table = "b", .instances = 2}};
  EXPECT_EQ(said(testee, "Dispatch"),
            "cases in 94 of 96 instances of a, at least 3 in each; cases in 0 of 2 instances of b");
}

TEST(DeclaredTest, FeaturesThatAreMissingAreNamed) {
  TesteeRecord testee = {.name = "k", .features = known_features(), .dtypes = {"f32"}};
  EXPECT_EQ(said(testee, "Not declared"), "nothing");
  std::erase(testee.features, "softcap");
  std::erase(testee.features, "gqa");
  EXPECT_EQ(said(testee, "Not declared"), "softcap, gqa");
}

// Anybody may have written the record.
TEST(DeclaredTest, WhatIsOfNoKnownFormIsShownAsItIs) {
  TesteeRecord testee = {.name = "k", .dtypes = {"f32", "f99"}};
  testee.arithmetic = {{"f32", {{"exp_ulp", "many"}}}, {"f99", 3}};
  EXPECT_EQ(said(testee, "Beyond the default"), "{\"exp_ulp\":\"many\"} in f32");
  for (const char* odd : {"3", "[3]", "\"x\"", "null", R"({"never": 3, "batch": [[]], "x": null})",
                          R"({"never": [3, {}, {"features": [[]]}], "dtypes": {"f16": 3}})",
                          R"({"backward": {"backward": {}}, "head_dim": {"mim": {}}})"}) {
    testee.limits = testee.dialect = testee.arithmetic = json::parse(odd);
    EXPECT_FALSE(declared_facts(testee).empty()) << odd;
  }
  testee.dialect = {{"lse", {{"base", 10}}}, {"empty_rows", 3}};
  EXPECT_THAT(said(testee, "Otherwise than the standard"), HasSubstr("{\"base\":10}"));
}

TEST(DeclaredTest, WhatIsLongIsCut) {
  TesteeRecord testee = {.name = "k"};
  testee.limits = {{"never", json::array()}};
  for (int i = 0; i < 300; ++i) testee.limits["never"].push_back({{"head_dim", i}});
  EXPECT_THAT(said(testee, "Never"), HasSubstr("bytes left out; results.jsonl has them"));
  EXPECT_LT(said(testee, "Never").size(), 700u);
}

}  // namespace
}  // namespace attest
