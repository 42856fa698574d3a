#include "cases/carrier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "cases/entry.h"

namespace attest {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

// A case that carries every clause of the table (SPEC.md, chapter "Limits", 4), and cites one.
Problem carrying() {
  Problem p = {.batch = 2,
               .query_heads = 4,
               .key_heads = 2,
               .query_len = 17,
               .key_len = 5,
               .head_dim = 8,
               .value_dim = 16};
  p.mask = Mask::causal(Anchor::bottom_right);
  p.layouts[TensorName::q] = Layout::parse("sbhd");
  return p;
}

std::vector<std::string> left_of(const char* clause, const Problem& base, const Problem& fitted) {
  Case c;
  c.clauses = {clause, "NUM-1"};
  c.problem = fitted;
  strike_uncarried(c, base);
  return c.clauses;
}

// A clause, and the change that takes away what carries it; another change does not.
struct Row {
  const char* clause;
  std::function<void(Problem&)> takes_away;
  std::function<void(Problem&)> leaves;
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.clause; }

class CarrierTest : public testing::TestWithParam<Row> {};

TEST_P(CarrierTest, AClauseIsStruckWithWhatCarriesItAndStaysWithout) {
  const Row& row = GetParam();
  Problem base = carrying(), without = base, with = base;
  row.takes_away(without);
  row.leaves(with);
  EXPECT_THAT(left_of(row.clause, base, without), ElementsAre("NUM-1"));
  EXPECT_THAT(left_of(row.clause, base, with), ElementsAre(row.clause, "NUM-1"));
  // What the case never had, it cannot lose: it cites the clause for another reason.
  EXPECT_THAT(left_of(row.clause, without, without), Contains(row.clause));
}

void as_many_heads(Problem& p) { p.key_heads = p.query_heads; }
void more_heads(Problem& p) { p.query_heads = 16, p.key_heads = 8; }
void equal_dims(Problem& p) { p.value_dim = p.head_dim; }
void other_dims(Problem& p) { p.head_dim = 64, p.value_dim = 128; }
void square(Problem& p) { p.query_len = p.key_len; }
void longer(Problem& p) { p.query_len = 128, p.key_len = 64; }
void other_corner(Problem& p) { p.mask = Mask::causal(Anchor::top_left); }
void dense(Problem& p) { p.layouts = {}; }
void one_element(Problem& p) { p.batch = 1; }
void more_elements(Problem& p) { p.batch = 8; }

INSTANTIATE_TEST_SUITE_P(
    Table, CarrierTest,
    testing::Values(Row{"HEAD-1", as_many_heads, more_heads}, Row{"HEAD-2", as_many_heads, longer},
                    Row{"LAW-9", as_many_heads, more_heads}, Row{"SHAPE-1", equal_dims, other_dims},
                    Row{"MASK-2", square, longer}, Row{"MASK-3", square, longer},
                    Row{"MASK-2", other_corner, other_dims},
                    Row{"MASK-3", other_corner, more_heads}, Row{"LAYOUT-1", dense, more_heads},
                    Row{"LAYOUT-2", dense, longer}, Row{"LAYOUT-3", dense, longer},
                    Row{"LAYOUT-4", dense, longer}, Row{"LAYOUT-5", one_element, more_elements},
                    Row{"DET-2", one_element, more_elements}, Row{"EMPTY-1", square, longer},
                    Row{"EMPTY-2", square, longer}, Row{"EMPTY-3", square, longer}));

TEST(CarrierOfSizesTest, ShapeTwoIsCarriedByASizeOfZero) {
  Problem base = carrying();
  base.query_len = 0;
  Problem one = base, other = base;
  one.query_len = 1;
  other.query_len = 1, other.batch = 0;
  EXPECT_THAT(left_of("SHAPE-2", base, one), ElementsAre("NUM-1"));
  EXPECT_THAT(left_of("SHAPE-2", base, other), Contains("SHAPE-2"));
}

TEST(CarrierOfSizesTest, AFullMaskIsCarriedByNoOther) {
  Problem base = carrying(), longer = base;
  base.mask = Mask::full();
  EXPECT_THAT(left_of("MASK-1", base, longer), ElementsAre("NUM-1"));
  longer.mask = base.mask, longer.key_len = 64;
  EXPECT_THAT(left_of("MASK-1", base, longer), Contains("MASK-1"));
}

TEST(CarrierOfSizesTest, PagesAreCarriedByMoreThanOne) {
  Problem base = carrying();
  base.key_len = 40;
  base.paging.page_size = 16;
  Problem single = base, several = base;
  single.paging.page_size = 64;
  several.paging.page_size = 32;
  EXPECT_THAT(left_of("PAGE-1", base, single), ElementsAre("NUM-1"));
  EXPECT_THAT(left_of("PAGE-1", base, several), Contains("PAGE-1"));
}

TEST(CarrierOfSizesTest, AnEmptyRowsSinkIsCarriedByTheSink) {
  Problem base = carrying();
  base.sink = true;
  Problem fitted = base;
  fitted.sink = false;
  EXPECT_THAT(left_of("EMPTY-4", base, fitted), Not(Contains("EMPTY-4")));
  EXPECT_THAT(left_of("EMPTY-1", base, fitted), Contains("EMPTY-1"));
}

TEST(CarrierOfSizesTest, ClausesOfFeaturesThatAreLeftOutGoWithThem) {
  Problem base = carrying();
  base.softcap = 5;
  base.sink = true;
  Problem fitted = base;
  fitted.softcap = 0;
  Case c;
  c.clauses = {"SCORE-2", "SINK-1", "SOFTMAX-1"};
  c.problem = fitted;
  strike_uncarried(c, base);
  EXPECT_THAT(c.clauses, ElementsAre("SINK-1", "SOFTMAX-1"));
}

TEST(CarrierOfSizesTest, OfTwoCornersACaseCitesThatOfItsMask) {
  const auto cited = [](const Mask& mask, std::vector<std::string> clauses) {
    Case c;
    c.problem.mask = mask;
    c.clauses = std::move(clauses);
    strike_other_corner(c);
    return c.clauses;
  };
  const Mask top_left = Mask::causal(Anchor::top_left), prefix = Mask::prefix({1});
  const Mask bottom_right = Mask::causal(Anchor::bottom_right);
  const Mask moved = Mask::causal(Anchor::top_left, -3);
  EXPECT_THAT(cited(top_left, {"MASK-2", "MASK-3"}), ElementsAre("MASK-2"));
  EXPECT_THAT(cited(bottom_right, {"MASK-2", "MASK-3"}), ElementsAre("MASK-3"));
  EXPECT_THAT(cited(moved, {"MASK-2", "MASK-3"}), ElementsAre("MASK-2", "MASK-3"));
  EXPECT_THAT(cited(Mask::any_of({top_left, bottom_right}), {"MASK-2", "MASK-3"}),
              ElementsAre("MASK-2", "MASK-3"));
  EXPECT_THAT(cited(Mask::all_of({prefix, moved}), {"MASK-3", "MASK-8"}),
              ElementsAre("MASK-3", "MASK-8"));
  EXPECT_THAT(cited(top_left, {"MASK-3"}), ElementsAre("MASK-3")) << "the only one";
}

TEST(CarrierOfSizesTest, LengthsAreCarriedByPadding) {
  Problem padded = carrying();
  padded.query_lens = padded.key_lens = {1, 2};
  Problem keys_alone = padded, packed = padded;
  keys_alone.query_lens = {};
  packed.packed = true;
  for (const char* clause : {"MASK-5", "MASK-6"}) {
    EXPECT_THAT(left_of(clause, padded, padded), Contains(clause));
    EXPECT_THAT(left_of(clause, packed, packed), ElementsAre("NUM-1"));
  }
  EXPECT_THAT(left_of("MASK-5", padded, keys_alone), Contains("MASK-5"));
  EXPECT_THAT(left_of("MASK-6", padded, keys_alone), ElementsAre("NUM-1"));
}

// Lengths cite MASK-5 with padding, LAYOUT-5 packed.
TEST(CarrierOfSizesTest, AClauseOfTwoFeaturesStaysWithOneOfThem) {
  Problem base = carrying();
  base.mask = Mask::all_of({Mask::causal(Anchor::top_left), Mask::prefix({2})});
  Problem fitted = base;
  fitted.mask = Mask::all_of({Mask::causal(Anchor::top_left), Mask::full()});
  Case c;
  c.clauses = {"MASK-8", "MASK-10", "MASK-2"};
  c.problem = fitted;
  strike_uncarried(c, base);
  EXPECT_THAT(c.clauses, ElementsAre("MASK-8", "MASK-2"));
}

TEST(CarrierOfSizesTest, HiddenKeysAreThoseThatNoRowSees) {
  Problem base = carrying();
  base.query_len = 4, base.key_len = 9;
  base.mask = Mask::causal(Anchor::top_left);
  for (const char* clause : {"HIDE-1", "HIDE-3"}) {
    Problem fitted = base;
    EXPECT_THAT(left_of(clause, base, fitted), Contains(clause));
    fitted.query_len = 9;  // the last row sees all
    EXPECT_THAT(left_of(clause, base, fitted), ElementsAre("NUM-1"));
    Problem padded = fitted;
    padded.key_lens = {9, 5};
    EXPECT_THAT(left_of(clause, base, padded), Contains(clause));
    Problem in_pages = fitted;
    in_pages.key_lens = {9, 9};
    in_pages.paging = {.page_size = 4, .pages = 6, .table = {{0, 1, 2}, {3, 4, 5}}};
    EXPECT_THAT(left_of(clause, base, in_pages), Contains(clause));
  }
}

}  // namespace
}  // namespace attest
