#include "harness/judge/excerpt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "cases/shape_excerpt.h"

namespace attest {
namespace {

Case long_case(const std::string& data = "normal") {
  return {.id = "shapes/test/dtype=bf16/data=" + data + "/s=1",
          .clauses = {"SOFTMAX-1"},
          .because = "It is long.",
          .problem = {.dtype = DType::bf16,
                      .batch = 2,
                      .query_heads = 32,
                      .key_heads = 8,
                      .query_len = 4096,
                      .key_len = 4100,
                      .head_dim = 128,
                      .value_dim = 128,
                      .mask = Mask::causal(Anchor::bottom_right),
                      .backward = true},
          .data = data,
          .excerpt = 16,
          .excerpt_heads = ExcerptHeads{.query = 12, .key = 4}};
}

std::vector<std::size_t> chosen(const std::vector<std::vector<Index>>& groups) {
  std::vector<std::size_t> heads;
  for (std::size_t head = 0; head < groups.size(); ++head) {
    if (!groups[head].empty()) heads.push_back(head);
  }
  return heads;
}

TEST(ExcerptTest, HasAsManyHeadsAsAskedForTheFirstAndTheLastAmongThem) {
  const Excerpt excerpt = *excerpt_of(long_case());
  ASSERT_EQ(excerpt.query_groups.size(), 64u);
  ASSERT_EQ(excerpt.key_groups.size(), 16u);
  const auto rows = chosen(excerpt.query_groups), keys = chosen(excerpt.key_groups);
  EXPECT_EQ(rows.size(), 12u);
  EXPECT_EQ(keys.size(), 4u);
  EXPECT_EQ(rows.front(), 0u);
  EXPECT_EQ(rows.back(), 63u);
  EXPECT_EQ(keys.front(), 0u);
  EXPECT_EQ(keys.back(), 15u);
}

TEST(ExcerptTest, OfEachHeadHasTheFirstAndLastRowsEdgesOfTilesAndOthers) {
  const Excerpt excerpt = *excerpt_of(long_case());
  std::set<std::vector<Index>> different;
  for (const auto* of_heads : {&excerpt.query_groups, &excerpt.key_groups}) {
    const Index last = of_heads == &excerpt.query_groups ? 511 : 512;
    for (const auto& groups : *of_heads) {
      if (groups.empty()) continue;
      EXPECT_EQ(groups.size(), 16u);
      EXPECT_EQ(groups.front(), 0);
      EXPECT_EQ(groups.back(), last);
      // The last rows of a tile of 64 and the first rows of one, but for both ends.
      const auto at_an_end = [&](Index side) {
        return std::count_if(groups.begin() + 1, groups.end() - 1,
                             [&](Index group) { return group % 8 == side; });
      };
      EXPECT_GE(at_an_end(0) + at_an_end(7), 4);
      EXPECT_GE(at_an_end(0), 1);
      EXPECT_GE(at_an_end(7), 1);
      EXPECT_LE(at_an_end(0) + at_an_end(7), 13);
      different.insert(groups);
    }
  }
  EXPECT_EQ(different.size(), 16u);  // no two heads have the same
}

TEST(ExcerptTest, FollowsFromTheIdAlone) {
  const Excerpt once = *excerpt_of(long_case()), again = *excerpt_of(long_case());
  EXPECT_EQ(once.query_groups, again.query_groups);
  EXPECT_EQ(once.key_groups, again.key_groups);
  const Excerpt other = *excerpt_of(long_case("key_names"));
  EXPECT_NE(once.query_groups, other.query_groups);
  EXPECT_NE(chosen(once.key_groups), chosen(other.key_groups));
}

TEST(ExcerptTest, OneHeadIsAnyOfThemAsIdsDiffer) {
  std::set<std::size_t> heads;
  for (int n = 0; n < 40; ++n) {
    Case c = long_case(std::to_string(n));
    c.excerpt_heads = ExcerptHeads{.query = 1, .key = 1};
    const auto keys = chosen(excerpt_of(c)->key_groups);
    ASSERT_EQ(keys.size(), 1u);
    heads.insert(keys[0]);
  }
  EXPECT_EQ(heads, (std::set<std::size_t>{0, 15}));  // an end first
  for (int n = 0; n < 60; ++n) {
    Case c = long_case(std::to_string(n));
    c.excerpt_heads = ExcerptHeads{.query = 1, .key = 2};
    for (const std::size_t head : chosen(excerpt_of(c)->key_groups)) heads.insert(head);
  }
  EXPECT_GE(heads.size(), 14u);
}

TEST(ExcerptTest, WithASinkTheSameKeyHeadsOfAllBatchElementsSoThatDSinkIsWhole) {
  Case c = long_case();
  c.problem.sink = true;
  const auto keys = chosen(excerpt_of(c)->key_groups);
  ASSERT_EQ(keys.size(), 4u);
  EXPECT_EQ(keys[2], keys[0] + 8);
  EXPECT_EQ(keys[3], keys[1] + 8);
}

TEST(ExcerptTest, HeadsOfShortElementsHaveTheirOwnLastRows) {
  Case c = long_case();
  c.problem.key_lens = {100, 4100};
  c.excerpt_heads->key = 16;
  const Excerpt excerpt = *excerpt_of(c);
  EXPECT_EQ(excerpt.key_groups[0].back(), 12);
  EXPECT_EQ(excerpt.key_groups[15].back(), 512);
}

TEST(ExcerptTest, AShapeIsComparedWholeWhereThatTakesSecondsAndElseInPart) {
  Case c = long_case();
  c.excerpt = 0;
  c.excerpt_heads.reset();
  Case small = c;
  small.problem.query_len = 1;
  small.problem.backward = false;
  choose_excerpt(small);
  EXPECT_EQ(small.excerpt, 0);
  choose_excerpt(c);
  EXPECT_GE(c.excerpt, 8);
  ASSERT_TRUE(c.excerpt_heads);
  EXPECT_EQ(c.excerpt_heads->query, 64);
  EXPECT_GE(c.excerpt_heads->key, 1);
  EXPECT_LT(c.excerpt_heads->key, 16);
  // A window leaves less to be computed, so that there is more that can be compared.
  Case window = long_case();
  window.excerpt = 0;
  window.excerpt_heads.reset();
  window.problem.mask = Mask::window(511, 0, Anchor::bottom_right);
  choose_excerpt(window);
  EXPECT_TRUE(window.excerpt == 0 || window.excerpt_heads->key > c.excerpt_heads->key);
}

TEST(ExcerptTest, FewResultsOfALongShapeAreAllLookedAtWhereTheirBoundsCanBeTold) {
  Case c = long_case();
  choose_laws(c);
  EXPECT_TRUE(c.laws.empty());  // too many
  c.problem.batch = 1;
  c.problem.query_heads = c.problem.key_heads = 2;
  choose_laws(c);
  EXPECT_EQ(c.laws, std::vector<std::string>{"finite"});
  c.laws.clear();
  c.problem.softcap = 20;
  choose_laws(c);
  EXPECT_TRUE(c.laws.empty());
}

TEST(ExcerptTest, SharesAreSaidOfTensorsThatWereComparedInPart) {
  Verdict verdict;
  verdict.tensors[TensorName::o] = {.compared = 24, .unspecified = 8, .elements = 32};
  EXPECT_EQ(shares_of(verdict), "");
  verdict.tensors[TensorName::dk] = {.compared = 24, .unspecified = 7, .elements = 32};
  EXPECT_EQ(shares_of(verdict), "dK 24 of 32 elements");
}

}  // namespace
}  // namespace attest
