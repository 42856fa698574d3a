// How kernels stand to the profiles that they claim if they are right: on the whole suite, without
// a call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "harness/run/asking.h"
#include "harness/run/conclude.h"
#include "reports/standing.h"
#include "spec/contains.h"
#include "spec/description.h"
#include "spec/feature.h"

namespace attest {
namespace {

using nlohmann::json;
using testing::StartsWith;

// "met" and the like, of each profile in each format.
using Standings = std::map<std::pair<std::string, std::string>, std::string>;

const std::vector<Case>& suite() {
  static const std::vector<Case> kSuite = [] {
    std::vector<Case> all = load_cases(ATTEST_CASES_DIR);
    std::erase_if(all, [](const Case& each) { return each.tier == Tier::full; });
    return all;
  }();
  return kSuite;
}

// Of one that passes whatever it is asked.
Standings standings(const json& declared) {
  const Testee testee = {.name = "k",
                         .spec = "k",
                         .kernel = "k",
                         .command = {},
                         .description = parse_description(declared)};
  const Asking asking(suite(), {testee}, ATTEST_CASES_DIR);
  std::vector<VerdictRecord> verdicts;
  for (const Case& each : suite()) {
    const Asking::Instead* instead = asking.instead("k", each.id);
    const Case& asked = instead && instead->fitted ? *instead->fitted : each;
    VerdictRecord v = {.case_id = asked.id,
                       .testee = "k",
                       .dtype = std::string(name(asked.problem.dtype)),
                       .verdict = {.outcome = Outcome::pass, .clauses = asked.clauses}};
    if (instead && !instead->fitted) v.verdict = instead->verdict;
    verdicts.push_back(std::move(v));
  }
  Header header;
  header.tier = "standard";
  header.cases.bundled = true;
  header.testees = {{.name = "k",
                     .isolation = "other-user",
                     .profiles = testee.description.profiles,
                     .features = testee.description.features,
                     .dtypes = declared["dtypes"]}};
  header.testees[0].limits = testee.description.declared_limits;
  Standings all;
  for (const ProfileRecord& each : conclude(header, verdicts).profiles) {
    all[{each.profile, each.dtype}] = standing_text(each);
  }
  return all;
}

json declaration(const std::vector<std::string>& profiles, const std::vector<std::string>& dtypes,
                 const std::vector<std::string>& features, const json& limits) {
  return {{"name", "k"},      {"version", "1"},       {"vendor", "v"},   {"profiles", profiles},
          {"dtypes", dtypes}, {"features", features}, {"limits", limits}};
}

// Of a kernel with both passes in f16, and the forward pass alone in f32.
TEST(ClaimsTest, AFormatThatLacksAPassIsHeldToTheOther) {
  const std::vector<std::string> forward = {"lse", "causal", "strides"};
  std::vector<std::string> both = forward;
  both.emplace_back("backward");
  for (const json& limits : {json{{"dtypes", {{"f32", {{"features", forward}}}}}},
                             json{{"never", {{{"dtypes", {"f32"}}, {"backward", true}}}}}}) {
    const Standings found = standings(
        declaration({"forward-core/limits", "training-core/limits"}, {"f16", "f32"}, both, limits));
    EXPECT_THAT(found.at({"forward-core/limits", "f16"}), StartsWith("met within limits"));
    EXPECT_THAT(found.at({"forward-core/limits", "f32"}), StartsWith("met within limits"));
    EXPECT_THAT(found.at({"training-core/limits", "f16"}), StartsWith("met within limits"));
    EXPECT_THAT(found.at({"training-core/limits", "f32"}),
                StartsWith("too narrow to say: GRAD-1 in 0 cases"))
        << "cases of the forward pass that cite it as others of their entry do show nothing of it";
  }
}

TEST(ClaimsTest, WhatAFormatLacksIsNoLimitOfTheOtherPass) {
  const std::vector<std::string> forward = {"lse",        "causal",  "gqa",      "value-dim",
                                            "zero-sizes", "strides", "expanded", "transposed"};
  std::vector<std::string> both = forward;
  both.emplace_back("backward");
  const Standings found =
      standings(declaration({"forward-core", "training-core"}, {"f16", "f32"}, both,
                            {{"dtypes", {{"f32", {{"features", forward}}}}}}));
  EXPECT_EQ(found.at({"forward-core", "f16"}), found.at({"forward-core", "f32"}));
}

}  // namespace
}  // namespace attest
