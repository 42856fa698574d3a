// What a run tells of groups of like failures, of kernels whose mistake is known.
#include "harness/diagnosis/diagnose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "cases/entry.h"
#include "tests/harness/mock_plugin.h"
#include "tests/harness/on_a_mock.h"
#include "tests/harness/plain_kernel.h"

namespace attest {
namespace {

using testing::Contains;
using testing::Field;
using testing::HasSubstr;
using testing::Invoke;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

Case a_case(const std::string& name, nlohmann::json problem, std::vector<std::string> clauses) {
  problem.update({{"head_dim", 8}});
  return read_entry({{"name", name},
                     {"clauses", clauses},
                     {"because", "A test."},
                     {"problem", problem},
                     {"data", {"normal"}},
                     {"dtypes", {"f32"}},
                     {"bits", name}},
                    "diagnose");
}

class DiagnoseTest : public testing::Test, protected OnAMock {
 protected:
  DiagnoseTest() : OnAMock({"lse", "causal", "gqa"}, "", {}, {}) {
    description_.arithmetic[DType::f32] = loosest(DType::f32);
  }

  // A kernel that is right, but that it takes one mask for another.
  void sees(const std::function<void(attest_mask&)>& change) {
    ON_CALL(mock_, forward).WillByDefault(Invoke([change](auto& p, auto& in, auto& out, auto&) {
      attest_problem other = p;
      std::vector<attest_mask> masks(p.mask, p.mask + p.mask_count);
      for (attest_mask& each : masks) change(each);
      other.mask = masks.data();
      plain::Attention(other, in).forward(out);
      return ATTEST_OK;
    }));
  }
  // One whose LSE is something else.
  void returns_lse(const std::function<float(float)>& change) {
    ON_CALL(mock_, forward).WillByDefault(Invoke([change](auto& p, auto& in, auto& out, auto&) {
      plain::Attention(p, in).forward(out);
      for (Index b = 0; b < p.batch; ++b) {
        for (Index h = 0; h < p.query_heads; ++h) {
          for (Index i = 0; i < p.query_len; ++i) {
            float& lse = plain::element<float>(out.lse, b, h, i, 0);
            lse = change(lse);
          }
        }
      }
      return ATTEST_OK;
    }));
  }

  template <class Look>
  auto of_a_run(const std::vector<Case>& cases, const Look& look) {
    Record record;
    for (const Case& each : cases) {
      test_case_ = each;
      record.verdicts.push_back({.case_id = each.id,
                                 .testee = "mock",
                                 .dtype = "f32",
                                 .problem = to_string(each.problem),
                                 .verdict = verdict()});
    }
    const Testee testee = {.name = "mock",
                           .spec = "mock",
                           .kernel = "mock",
                           .command = {},
                           .description = description_};
    const MakeExecutor make = [&](const Testee&) {
      return std::make_unique<InProcessExecutor>(mock_.plugin());
    };
    return look(record, cases, std::vector<Testee>{testee}, RunOptions(), MakeExecutor(make),
                [] { return false; });
  }

  // What a run on these cases tells.
  std::vector<Group> groups(const std::vector<Case>& cases) {
    return of_a_run(cases, [](auto&&... run) { return diagnose(run...); });
  }
  std::vector<Explained> each_of(const std::vector<Case>& cases) {
    return of_a_run(cases, [](auto&&... run) { return explain_each(run...); });
  }
};

const nlohmann::json kSquare = {{"query_len", 16}, {"key_len", 16}, {"mask", "causal top_left"}};
// Anti-causal is no mask here: the one row sees all keys.
nlohmann::json one_row(Index keys) {
  return {{"query_len", 1},
          {"key_len", keys},
          {"query_heads", 4},
          {"key_heads", 4},
          {"mask", "causal top_left"}};
}

TEST_F(DiagnoseTest, NameThatACaseOfTheGroupDisprovesIsNotGiven) {
  sees([](attest_mask& m) { std::swap(m.left, m.right); });
  const std::vector<Case> rows = {a_case("a", one_row(5), {"MASK-2"}),
                                  a_case("b", one_row(7), {"MASK-2"})};
  const auto of_rows = groups(rows);
  ASSERT_THAT(of_rows, SizeIs(1));
  EXPECT_THAT(headline(of_rows[0].alike), HasSubstr("no mask"));
  std::vector<Case> all = {a_case("c", kSquare, {"MASK-2"})};
  all.insert(all.end(), rows.begin(), rows.end());
  const auto of_all = groups(all);
  ASSERT_THAT(of_all, SizeIs(1));
  EXPECT_THAT(of_all[0].alike, IsEmpty());
}

// The simplest are all of one shape, which tells less than another.
TEST_F(DiagnoseTest, FailuresOfOtherShapesAreLookedAtThoughManyAreSimpler) {
  sees([](attest_mask& m) { std::swap(m.left, m.right); });
  std::vector<Case> all;
  for (Index keys = 2; keys <= 9; ++keys) {
    all.push_back(a_case("rows_" + std::to_string(keys), one_row(keys), {"MASK-2"}));
  }
  all.push_back(a_case("square", kSquare, {"MASK-2"}));
  const auto of_all = groups(all);
  ASSERT_THAT(of_all, SizeIs(1));
  EXPECT_THAT(of_all[0].case_id, testing::StartsWith("diagnose/rows_2/"));
  EXPECT_THAT(of_all[0].alike, IsEmpty());
}

TEST_F(DiagnoseTest, CaseThatIsToldShowsWhatIsNamed) {
  sees([](attest_mask& m) { m.kind = ATTEST_MASK_FULL; });
  // The first is the simplest, and has too few elements to tell.
  const auto all = groups(
      {a_case("a",
              {{"query_len", 1}, {"key_len", 2}, {"value_dim", 4}, {"mask", "causal top_left"}},
              {"MASK-2"}),
       a_case("b", kSquare, {"MASK-2"})});
  ASSERT_THAT(all, SizeIs(1));
  ASSERT_THAT(all[0].alike, Not(IsEmpty()));
  EXPECT_THAT(all[0].case_id, testing::StartsWith("diagnose/b/"));
  for (const Likeness& each : all[0].alike) {
    EXPECT_TRUE(each.is_sure()) << each.name;
    EXPECT_EQ(each.of, 15) << each.name << ": the last row sees every key";
  }
}

TEST_F(DiagnoseTest, WhatIsNamedIsBlamed) {
  returns_lse([](float lse) { return lse * 1.442695041f; });
  // Of one key LSE is a score, and weights don't show: the verdict can blame nothing in particular.
  const nlohmann::json one_key = {{"query_len", 9}, {"key_len", 1}, {"query_heads", 2}};
  const auto all = groups({a_case("a", one_key, {"SHAPE-1"}), a_case("b", kSquare, {"MASK-2"})});
  ASSERT_THAT(all, Not(IsEmpty()));
  for (const Group& group : all) {
    EXPECT_THAT(headline(group.alike), HasSubstr("LSE in base 2 (LSE-1)"));
    EXPECT_THAT(group.alike, Contains(Field(&Likeness::clause, group.blamed)));
  }
}

// LSE off by 2^-12 of it, of a kernel that declares nothing: operands of 8 digits would do that.
TEST_F(DiagnoseTest, WhatADeclarationWouldAdmitIsSaidWhereNoMistakeIsMade) {
  returns_lse([](float lse) { return lse * (1 + 0x1p-12f); });
  const auto slight = groups({a_case("a", kSquare, {"LSE-1"})});
  ASSERT_THAT(slight, SizeIs(1));
  EXPECT_THAT(slight[0].alike, IsEmpty());
  EXPECT_THAT(slight[0].admitted_by, testing::Contains(HasSubstr("\"products\"")));
  EXPECT_EQ(slight[0].blamed, "NUM-1");
  EXPECT_THAT(to_text(slight), HasSubstr("within its bounds with \"products\""));
  returns_lse([](float lse) { return lse + 1; });
  const auto gross = groups({a_case("a", kSquare, {"LSE-1"})});
  ASSERT_THAT(gross, SizeIs(1));
  EXPECT_THAT(gross[0].admitted_by, IsEmpty());
  EXPECT_EQ(gross[0].blamed, "LSE-1");
}

// One group, in which the first failure alone is what the mistake gives: LSE is off in the second.
TEST_F(DiagnoseTest, EachFailureIsExplainedByItself) {
  ON_CALL(mock_, forward).WillByDefault(Invoke([](auto& p, auto& in, auto& out, auto&) {
    attest_problem other = p;
    attest_mask full = {};
    full.kind = ATTEST_MASK_FULL;
    other.mask = &full;
    plain::Attention(other, in).forward(out);
    if (p.query_len == 16) return ATTEST_OK;
    for (Index i = 0; i < p.query_len; ++i) plain::element<float>(out.lse, 0, 0, i, 0) += 1;
    return ATTEST_OK;
  }));
  nlohmann::json oblong = kSquare;
  oblong["query_len"] = 20;
  const auto each = each_of({a_case("a", kSquare, {"MASK-2"}), a_case("b", oblong, {"MASK-2"}),
                             a_case("right", {{"query_len", 16}}, {"SOFTMAX-1"})});
  ASSERT_THAT(each, SizeIs(2));
  EXPECT_EQ(each[0].case_id, a_case("a", kSquare, {"MASK-2"}).id);
  EXPECT_THAT(each[0].alike, Contains(Field(&Likeness::name, "no mask")));
  EXPECT_THAT(each[1].alike, IsEmpty());
  EXPECT_THAT(each[1].admitted_by, IsEmpty());
  const auto json = to_json(each);
  EXPECT_EQ(json[0]["alike"][0]["clause"], each[0].alike[0].clause);
  EXPECT_EQ(json[1]["case"], each[1].case_id);
}

TEST_F(DiagnoseTest, WhatWouldAdmitAFailureIsSaidOfEach) {
  returns_lse([](float lse) { return lse * (1 + 0x1p-12f); });
  const auto each = each_of({a_case("a", kSquare, {"LSE-1"})});
  ASSERT_THAT(each, SizeIs(1));
  EXPECT_THAT(each[0].admitted_by, Contains(HasSubstr("\"products\"")));
}

TEST(DiagnosisTextTest, WhatIsKnownOfSeveralGroupsIsToldOnce) {
  Group one = {.testee = "mine",
               .outcome = Outcome::fail,
               .reason = {},
               .tensors = {TensorName::o},
               .failures = 2,
               .case_id = "a/simplest",
               .features = {}};
  one.reliefs = {{.what = "a softcap", .passes = true}};
  one.blamed = "SCORE-2";
  Group same = one, other = one, unknown = one;
  same.failures = 5, same.case_id = "b/later";
  other.reliefs[0].what = "a mask";
  unknown.reliefs.clear();
  EXPECT_EQ(to_text({one, other, same, unknown}),
            "\nDid you mean\n"
            "  7 failures of mine, in 2 groups\n"
            "    passes without a softcap\n    blamed on SCORE-2\n    a/simplest\n"
            "  2 failures of mine\n"
            "    passes without a mask\n    blamed on SCORE-2\n    a/simplest\n");
  EXPECT_EQ(to_text({unknown}), "");
}

}  // namespace
}  // namespace attest
