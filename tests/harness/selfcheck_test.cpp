#include "harness/selfcheck/selfcheck.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/process/in_process.h"
#include "harness/run/conclude.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"
#include "tests/harness/mock_plugin.h"
#include "tests/harness/plain_kernel.h"

namespace attest {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Invoke;
using testing::NiceMock;
using testing::Not;
using testing::StartsWith;

// Tells its cases apart by their numbers of queries.
Case case_of(Index queries, const std::string& clause) {
  Case c;
  c.id = fmt::format("test/selfcheck/{}/sq={}/dtype=f32/data=normal/s=1", clause, queries);
  c.clauses = {clause};
  c.data = "normal";
  c.problem = {.dtype = DType::f32, .query_len = queries, .key_len = 3, .head_dim = 2};
  c.problem.value_dim = 2;
  c.file = "test.json";
  c.line = static_cast<int>(queries);
  return c;
}

nlohmann::json entry(const std::string& name, const std::string& clause) {
  return {{"name", name},       {"id", "X1"},          {"class", "masks"},
          {"about", "a fault"}, {"clauses", {clause}}, {"dtypes", {"f32"}}};
}

// A kernel that is wrong for so many queries.
struct Wrong {
  std::string kernel;
  std::set<Index> queries;
};

class SelfcheckTest : public testing::Test {
 protected:
  SelfcheckTest() {
    for (Index n = 1; n <= 8; ++n) cases_.push_back(case_of(n, n % 2 == 0 ? "MASK-1" : "LSE-1"));
  }

  Selfcheck check(const nlohmann::json& catalogue, const std::vector<Wrong>& kernels,
                  bool all = false, int jobs = 1) {
    Selfcheck result = {
        .catalogue = parse_catalogue(catalogue), .all_catches = all, .cases = cases_};
    std::deque<NiceMock<MockPlugin>> plugins;
    std::vector<Testee> testees;
    std::map<std::string, MockPlugin*> plugin_of;
    for (const Wrong& wrong : kernels) {
      auto& plugin = plugins.emplace_back();
      plugin.kernel().name = wrong.kernel.c_str();
      ON_CALL(plugin, forward)
          .WillByDefault(Invoke([&](const auto& p, const auto& in, const auto& out, const auto& c) {
            const attest_status status = plain::forward(p, in, out, c);
            if (wrong.queries.contains(p.query_len)) static_cast<float*>(out.o.data)[0] += 1;
            return status;
          }));
      plugin_of[wrong.kernel] = &plugin;
      testees.push_back({.name = wrong.kernel,
                         .spec = wrong.kernel,
                         .kernel = wrong.kernel,
                         .command = {},
                         .description = {}});
      testees.back().description.features = {"lse"};
      testees.back().description.dtypes = {DType::f32};
      testees.back().description.alignment = 4;
    }
    result.hunt = hunt(
        result.cases, result.catalogue, testees, {.all = all, .run = {.jobs = jobs}},
        [&](const Testee& t) {
          return std::make_unique<InProcessExecutor>(plugin_of.at(t.kernel)->plugin());
        },
        [](const VerdictRecord&) {}, [] { return false; });
    return result;
  }

  std::vector<Case> cases_;
};

TEST_F(SelfcheckTest, MutantIsCaughtByTheFirstCaseOfAClauseThatItViolates) {
  const Selfcheck result = check({{"mutants", {entry("a", "MASK-1")}}, {"controls", {"none"}}},
                                 {{"mutant/a", {1, 3, 6, 8}}, {"mutant/none", {}}});
  ASSERT_EQ(result.hunt->hunted.size(), 1u);
  const Hunted& hunted = result.hunt->hunted[0];
  ASSERT_TRUE(hunted.caught);
  EXPECT_EQ(hunted.caught->case_id, cases_[5].id);
  EXPECT_EQ(hunted.candidates, 4);
  EXPECT_EQ(hunted.tried, 3);
  EXPECT_EQ(hunted.catching, 1);
  EXPECT_EQ(exit_code_of(result), kConformant);
  EXPECT_THAT(to_text(result),
              HasSubstr("X1 a [f32] FAIL(bound) MASK-1 test/selfcheck/MASK-1/sq=6"));
  EXPECT_THAT(to_text(result), HasSubstr("1 of 1 mutant caught"));
}

TEST_F(SelfcheckTest, PictureShowsWhatCatchesWhichMutant) {
  const Selfcheck result =
      check({{"mutants", {entry("a", "MASK-1"), entry("b", "LSE-1"), entry("c", "GRAD-1")}},
             {"controls", {"none"}}},
            {{"mutant/a", {6}}, {"mutant/b", {}}, {"mutant/c", {}}, {"mutant/none", {}}});
  const CatchTable table = checks_and_mutants(result);
  EXPECT_EQ(table.columns, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(table.rows, (std::vector<std::string>{"f32", "FAIL(bound)"}));
  EXPECT_EQ(table.letters, (std::vector<std::string>{"cm.", "c.."})) << "no case is of GRAD-1";
  EXPECT_THAT(to_html(result), HasSubstr("<p class=\"conclusion bad\">Not every broken kernel"));
}

TEST_F(SelfcheckTest, CasesThatAreSaidToShowAMutantAreTriedFirst) {
  nlohmann::json mutant = entry("a", "MASK-1");
  mutant["shown_by"] = "test/**/sq=8/**";
  const Selfcheck result = check({{"mutants", {mutant}}, {"controls", {"none"}}},
                                 {{"mutant/a", {6, 8}}, {"mutant/none", {}}});
  EXPECT_EQ(result.hunt->hunted[0].caught->case_id, cases_[7].id);
  EXPECT_EQ(result.hunt->hunted[0].tried, 1);
}

TEST_F(SelfcheckTest, MutantIsCaughtThoughTheCasesThatAreSaidToShowItDoNot) {
  nlohmann::json mutant = entry("a", "MASK-1");
  mutant["shown_by"] = "test/**/sq=8/**";
  const Selfcheck result = check({{"mutants", {mutant}}, {"controls", {"none"}}},
                                 {{"mutant/a", {6}}, {"mutant/none", {}}});
  EXPECT_EQ(result.hunt->hunted[0].caught->case_id, cases_[5].id);
}

TEST_F(SelfcheckTest, WarningIsACatchOfWhoBreaksNothingButRecommendations) {
  cases_.push_back(case_of(9, "HIDE-3"));
  const Selfcheck advised = check({{"mutants", {entry("a", "HIDE-3")}}}, {{"mutant/a", {9}}});
  ASSERT_TRUE(advised.hunt->hunted[0].caught);
  EXPECT_EQ(advised.hunt->hunted[0].caught->verdict.outcome, Outcome::warn);
  EXPECT_THAT(to_text(advised), HasSubstr("1 mutant caught by a warning"));
  nlohmann::json wrong = entry("a", "HIDE-3");
  wrong["clauses"] = {"HIDE-3", "HIDE-2"};
  const Selfcheck missed = check({{"mutants", {wrong}}}, {{"mutant/a", {9}}});
  EXPECT_FALSE(missed.hunt->hunted[0].caught);
  EXPECT_THAT(to_text(missed), Not(HasSubstr("by a warning")));
}

TEST_F(SelfcheckTest, FailureOfAnotherClauseIsNoCatch) {
  const Selfcheck result = check({{"mutants", {entry("a", "MASK-1")}}}, {{"mutant/a", {1, 3, 5}}});
  EXPECT_FALSE(result.hunt->hunted[0].caught);
  EXPECT_EQ(exit_code_of(result), kNotConformant);
  EXPECT_THAT(to_text(result), HasSubstr("NOT CAUGHT: X1 a in f32: a fault"));
}

TEST_F(SelfcheckTest, EveryDtypeIsToCatchIt) {
  nlohmann::json both = entry("a", "MASK-1");
  both["dtypes"] = {"f32", "bf16"};
  const Selfcheck result = check({{"mutants", {both}}}, {{"mutant/a", {2}}});
  EXPECT_TRUE(result.hunt->hunted[0].caught);
  EXPECT_FALSE(result.hunt->hunted[1].caught);  // no case at all
  EXPECT_EQ(exit_code_of(result), kNotConformant);
  EXPECT_THAT(to_text(result), HasSubstr("0 of 1 mutant caught"));
}

TEST_F(SelfcheckTest, WhatAFilterLeavesUntriedIsIncomplete) {
  Selfcheck result = check({{"mutants", {entry("a", "MASK-2"), entry("b", "MASK-1")}}},
                           {{"mutant/a", {}}, {"mutant/b", {2}}});
  result.filtered = true;
  EXPECT_EQ(exit_code_of(result), kIncomplete);
  result.filtered = false;
  EXPECT_EQ(exit_code_of(result), kNotConformant);
}

TEST_F(SelfcheckTest, ControlThatFailsWhatCatchesAMutantIsAccused) {
  const nlohmann::json catalogue = {{"mutants", {entry("a", "MASK-1")}}, {"controls", {"none"}}};
  Selfcheck result = check(catalogue, {{"mutant/a", {4}}, {"mutant/none", {4}}});
  ASSERT_EQ(result.hunt->accused.size(), 1u);
  EXPECT_EQ(exit_code_of(result), kNotConformant);
  EXPECT_THAT(to_text(result), HasSubstr("A CONTROL FAILS"));
  result = check(catalogue, {{"mutant/a", {4}}, {"mutant/none", {2}}});
  EXPECT_TRUE(result.hunt->accused.empty());
}

TEST_F(SelfcheckTest, FullCountsEveryCatchAndTheCasesWithoutOne) {
  const Selfcheck result = check({{"mutants", {entry("a", "MASK-1"), entry("b", "MASK-1")}}},
                                 {{"mutant/a", {2, 4, 8}}, {"mutant/b", {4}}}, true);
  EXPECT_EQ(result.hunt->hunted[0].catching, 3);
  EXPECT_EQ(result.hunt->hunted[0].tried, 4);
  EXPECT_EQ(result.hunt->hunted[0].caught->case_id, cases_[1].id);
  EXPECT_EQ(result.hunt->catches.at(cases_[3].id), 2);
  EXPECT_EQ(to_json(result)["mutants"]["cases_without_catch"].size(), 5u);
  EXPECT_THAT(to_text(result), HasSubstr("5 of 8 cases catch no mutant"));
  EXPECT_THAT(to_text(result), HasSubstr("3 of 4 cases"));
}

TEST_F(SelfcheckTest, ResultDoesNotDependOnTheNumberOfJobs) {
  cases_.clear();
  for (Index n = 1; n <= 60; ++n) cases_.push_back(case_of(n, "MASK-1"));
  nlohmann::json mutants = nlohmann::json::array();
  std::vector<Wrong> kernels;
  for (Index m = 0; m < 12; ++m) {
    mutants.push_back(entry(fmt::format("m{}", m), "MASK-1"));
    kernels.push_back(Wrong{fmt::format("mutant/m{}", m), {5 * m + 1, 5 * m + 2, 60}});
  }
  const auto told = [&](int jobs) {
    nlohmann::json report = to_json(check({{"mutants", mutants}}, kernels, false, jobs));
    EXPECT_EQ(report["mutants"]["hunted"].size(), 12u);
    return json_text(report, 1);
  };
  const std::string alone = told(1);
  EXPECT_EQ(told(4), alone);
  EXPECT_EQ(told(3), alone);
}

TEST_F(SelfcheckTest, MutantWithoutAKernelIsAMistake) {
  EXPECT_THROW(check({{"mutants", {entry("a", "MASK-1")}}}, {{"mutant/b", {}}}), InputError);
}

TEST(ConvictsTest, BlameOrCaseMustNameAClauseThatIsViolated) {
  const Mutant mutant = {.name = "a",
                         .id = "",
                         .defect_class = "",
                         .reference = "",
                         .about = "",
                         .clauses = {"MASK-2", "SCHED-2", "HIDE-3"}};
  const auto of = [&](Outcome outcome, const std::string& reason,
                      std::vector<std::string> clauses) {
    Verdict v = {.outcome = outcome, .reason = reason};
    v.clauses = std::move(clauses);
    return convicts(v, mutant);
  };
  EXPECT_TRUE(of(Outcome::fail, "bound", {"MASK-1", "MASK-2"}));
  EXPECT_FALSE(of(Outcome::fail, "bound", {"MASK-1"}));
  EXPECT_FALSE(of(Outcome::crash, "", {"SAFE-4", "MASK-2"})) << "it need not have computed at all";
  EXPECT_FALSE(of(Outcome::timeout, "", {"SAFE-4", "MASK-2"})) << "a busy machine may be slow";
  EXPECT_TRUE(of(Outcome::protocol_error, "", {"SAFE-4", "MASK-2"}));
  EXPECT_FALSE(of(Outcome::fail, "schedule", {"SCHED-1", "SCHED-2"}));
  EXPECT_TRUE(of(Outcome::fail, "schedule", {"SCHED-2", "SCHED-1"}));
  EXPECT_FALSE(of(Outcome::warn, "nonfinite", {"HIDE-3", "MASK-2"})) << "right kernels are too";
  for (const Outcome outcome : {Outcome::pass, Outcome::unsupported, Outcome::inconclusive,
                                Outcome::harness_error, Outcome::not_run}) {
    EXPECT_FALSE(of(outcome, "", {"MASK-2"})) << name(outcome);
  }
  Mutant only_advised = mutant;
  only_advised.clauses = {"HIDE-3"};
  Verdict warning = {.outcome = Outcome::warn};
  warning.clauses = {"HIDE-3", "MASK-2"};
  EXPECT_TRUE(convicts(warning, only_advised));
  warning.clauses = {"FINITE-2", "HIDE-3"};
  EXPECT_FALSE(convicts(warning, only_advised));
  Verdict late = {.outcome = Outcome::timeout};
  late.clauses = {"SAFE-4"};
  Mutant hangs = mutant;
  hangs.clauses = {"SAFE-4"};
  EXPECT_TRUE(convicts(late, hangs));
  late.outcome = Outcome::crash;
  EXPECT_TRUE(convicts(late, hangs));
  hangs.clauses = {"SAFE-1"};
  EXPECT_TRUE(convicts(late, hangs)) << "it reads what is not its own";
}

TEST(ByWorthTest, CheapCasesAndNewEntriesComeFirst) {
  Case cheap = case_of(1, "MASK-1"), again = cheap, other = case_of(1, "MASK-2"),
       dear = case_of(1, "MASK-3");
  again.id += "/again";
  other.line = 7;
  other.problem.key_len = 2000;  // a little more
  dear.line = 8;
  dear.problem.key_len = 1'000'000;
  std::vector<std::string> ids;
  for (const Case& c : by_worth({dear, cheap, again, other})) ids.push_back(c.id);
  EXPECT_THAT(ids, ElementsAre(cheap.id, other.id, again.id, dear.id));
}

TEST(CatalogueTest, MistakesAreNamed) {
  const auto mistake = [](const nlohmann::json& catalogue) -> std::string {
    try {
      parse_catalogue(catalogue);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  const nlohmann::json a = entry("a", "MASK-1");
  EXPECT_EQ(mistake({{"mutants", {a}}}), "");
  EXPECT_THAT(mistake({{"mutants", {a, a}}}), HasSubstr("a is listed twice"));
  EXPECT_THAT(mistake({{"mutants", {entry("a", "MASK-0")}}}), HasSubstr("no clause MASK-0"));
  EXPECT_THAT(mistake({{"mutans", {a}}}), HasSubstr("mutans"));
  nlohmann::json odd = a;
  odd["dtypes"] = {"f33"};
  EXPECT_THAT(mistake({{"mutants", {odd}}}), HasSubstr("no dtype f33"));
  odd = a;
  odd["clauses"] = nlohmann::json::array();
  EXPECT_THAT(mistake({{"mutants", {odd}}}), HasSubstr("violates no clause"));
  EXPECT_THROW(load_catalogue("/nonexistent/mutants.so"), InputError);
}

VerdictRecord verdict(const std::string& testee, Outcome outcome) {
  VerdictRecord record = {.case_id = "x/y", .testee = testee, .dtype = "f32", .verdict = {}};
  record.verdict.outcome = outcome;
  return record;
}

TEST(TrustTest, CorrectKernelMayRefuseOrBeUndecidedButNotFail) {
  Header header;
  header.testees = {{.name = "a"}, {.name = "b"}};
  Record record = {
      .header = header,
      .verdicts = {verdict("a", Outcome::pass), verdict("b", Outcome::warn),
                   verdict("a", Outcome::unsupported), verdict("b", Outcome::inconclusive)},
      .footer = Footer()};
  Selfcheck check = {.trust = trust_of(record, 2)};
  EXPECT_EQ(exit_code_of(check), kConformant);
  EXPECT_THAT(to_text(check),
              StartsWith("0 of 2 legitimate kernels failed, on a sample of 2 cases"));
  for (const Outcome outcome :
       {Outcome::fail, Outcome::crash, Outcome::timeout, Outcome::protocol_error}) {
    record.verdicts[0] = verdict("a", outcome);
    check.trust = trust_of(record, 2);
    EXPECT_EQ(exit_code_of(check), kNotConformant);
    EXPECT_THAT(to_text(check), HasSubstr("1 of 2 legitimate kernels failed"));
  }
  record.verdicts[0] = verdict("a", Outcome::harness_error);
  check.trust = trust_of(record, 2);
  EXPECT_EQ(exit_code_of(check), kUsageOrHarnessError);
  EXPECT_EQ(exit_code_of(Selfcheck{.trust = trust_of({}, 0)}), kIncomplete);
  EXPECT_EQ(exit_code_of(Selfcheck()), kIncomplete);
}

}  // namespace
}  // namespace attest
