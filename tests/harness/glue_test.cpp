#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/check/corrupting.h"
#include "harness/check/easy.h"
#include "harness/check/reach.h"
#include "spec/description.h"
#include "tests/harness/on_a_mock.h"
#include "tests/harness/plain_kernel.h"

namespace attest {
namespace {

using testing::ElementsAre;

const std::vector<Case>& standard() {
  static const std::vector<Case> kCases = [] {
    std::vector<Case> cases = load_cases(ATTEST_CASES_DIR);
    std::erase_if(cases, [](const Case& c) { return c.tier > Tier::standard; });
    return cases;
  }();
  return kCases;
}

Testee testee_of(const std::string& json) {
  Testee testee;
  testee.name = "mine";
  testee.description = parse_description(
      nlohmann::json::parse(R"({"name": "mine", "version": "", "vendor": "", )" + json + "}"));
  return testee;
}

std::vector<Case> easy_for(const Testee& testee) {
  return easy_cases(Asking(standard(), {testee}, ATTEST_CASES_DIR).asked("mine", standard()));
}

TEST(GlueTest, EasyProblemsAreAFewThatTheTesteeTakes) {
  for (const char* json :
       {R"("profiles": [], "dtypes": ["f32"], "features": ["lse"])",
        R"("profiles": [], "dtypes": ["bf16", "f16"], "features": ["causal"],
           "limits": {"masks": ["causal"], "head_dim": [64, 128], "query_len": {"multiple": 128},
                      "key_len": {"multiple": 128}})",
        R"("profiles": [], "dtypes": ["f32"], "features": ["backward", "gqa", "causal"])"}) {
    const Testee testee = testee_of(json);
    const auto cases = easy_for(testee);
    const bool is_causal = testee.description.has("causal");
    ASSERT_EQ(cases.size(), is_causal ? 4u : 3u) << json;
    for (const Case& c : cases) {
      EXPECT_FALSE(exclusion(c.problem, testee.description)) << c.id;
      EXPECT_LT(c.problem.query_len * c.problem.key_len * c.problem.head_dim, 1 << 24) << c.id;
    }
    EXPECT_NE(cases[0].id, cases[1].id);
    EXPECT_EQ(cases[1].problem.mask.kind == Mask::Kind::band, is_causal);
    EXPECT_EQ(cases.back().problem.backward, testee.description.has("backward"));
    if (!is_causal) continue;
    EXPECT_NE(cases[1].problem.mask.anchor, cases[2].problem.mask.anchor);
    EXPECT_NE(cases[2].problem.query_len, cases[2].problem.key_len) << "where both are one";
  }
  EXPECT_TRUE(easy_cases({}).empty());
}

TEST(GlueTest, ReachCountsWhatIsLeftOutAndWhatAProfileNeeds) {
  const Testee testee =
      testee_of(R"("profiles": ["forward-core"], "dtypes": ["f32"], "features": ["causal", "lse"],
                   "limits": {"head_dim": 64})");
  const Asking asking(standard(), {testee}, ATTEST_CASES_DIR);
  const TesteeReach reach = reach_of(testee, standard(), asking);
  EXPECT_EQ(reach.cases, std::ssize(standard()));
  EXPECT_EQ(reach.formats.size(), 3u);
  EXPECT_GT(reach.formats.at("bf16"), 100);
  EXPECT_GT(reach.features.at("window"), 100);
  EXPECT_GT(reach.features.at("backward"), 100);
  EXPECT_FALSE(reach.features.contains("causal"));
  EXPECT_GT(reach.fitted, 100);
  EXPECT_THAT(reach.bare_formats, ElementsAre("f32"));
  const auto of = [&](const std::string& name) {
    return *std::find_if(reach.profiles.begin(), reach.profiles.end(),
                         [&](const ProfileReach& each) { return each.name == name; });
  };
  EXPECT_TRUE(of("forward-core").claimed);
  EXPECT_FALSE(of("masks").claimed);
  EXPECT_THAT(of("masks").needs, testing::Contains("window"));
  EXPECT_LT(of("masks").asked, of("masks").demanded);
  EXPECT_THAT(of("memory").needs, ElementsAre("memory"));
  EXPECT_GT(of("masks").demanded, 100);
}

TEST(GlueTest, ReachCountsWhatStopsACaseAndNotWhatCouldBeFitted) {
  const Testee testee =
      testee_of(R"("profiles": ["forward-core"], "dtypes": ["f32"], "features": ["causal", "lse"],
                   "limits": {"head_dim": 64, "square": true})");
  const TesteeReach reach =
      reach_of(testee, standard(), Asking(standard(), {testee}, ATTEST_CASES_DIR));
  EXPECT_GT(reach.limits.at("corner"), 20) << "there is but one in a square";
  EXPECT_LT(reach.limits.at("head_dim"), 10) << "of cases that take nothing else";
}

// Whatever a plain kernel returns, damaged on its way.
class CorruptingTest : public OnAMock, public testing::Test {
 protected:
  CorruptingTest()
      : OnAMock({"lse"}, "check/easy/s=1", {"NUM-1"},
                {.dtype = DType::f32,
                 .batch = 2,
                 .query_heads = 2,
                 .key_heads = 2,
                 .query_len = 5,
                 .key_len = 7,
                 .head_dim = 4,
                 .value_dim = 4,
                 .scale = 0.5}) {
    ON_CALL(mock_, forward)
        .WillByDefault([](const attest_problem& p, const attest_inputs& in,
                          const attest_outputs& out, const attest_context&) {
          plain::Attention(p, in).forward(out);
          return ATTEST_OK;
        });
  }

  Verdict verdict_with(Corruption corruption) {
    PreparedCase prepared(test_case_, 1);
    Corrupting damaging(executor_, corruption);
    return examine(prepared, description_, "mock", damaging, 1).verdict;
  }
};

TEST_F(CorruptingTest, ARightKernelFailsByTheDamageAlone) {
  EXPECT_EQ(verdict().outcome, Outcome::pass) << verdict().message;
  EXPECT_EQ(verdict_with(Corruption::value).outcome, Outcome::fail);
  EXPECT_EQ(verdict_with(Corruption::value).reason, "bound");
  EXPECT_EQ(verdict_with(Corruption::beside).outcome, Outcome::fail);
  EXPECT_EQ(verdict_with(Corruption::beside).reason, "guard");
}

}  // namespace
}  // namespace attest
