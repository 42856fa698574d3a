#include "harness/judge/exemptions.h"

#include <gtest/gtest.h>

#include "spec/json_text.h"
#include "tests/harness/not_finite.h"

namespace attest {
namespace {

const std::string kUnwritten = R"(, "leaves_padding_unwritten": true)";

// A testee that declares that besides.
Description declaring(const std::string& declares) {
  return parse_description(
      parse_json(R"({"name": "t", "version": "1", "vendor": "v", "profiles": [],
                                "dtypes": ["f32"], "features": ["lse"])" +
                 declares + "}"));
}

// One head, two channels of V: rows of O have two elements, those of LSE one.
Problem sized(Index queries, Index keys, const Mask& mask = Mask::full()) {
  return {.query_len = queries, .key_len = keys, .value_dim = 2, .mask = mask};
}

// A mark for each element: judged, not judged, or not even to be written.
std::string marks(const Exemptions& e, TensorName tensor, const Shape& shape) {
  std::string text;
  for (std::size_t i = 0; i < static_cast<std::size_t>(element_count(shape)); ++i) {
    text += e.may_be_unwritten(tensor, shape, i) ? 'u' : e.unjudged(tensor, shape, i) ? 'x' : '.';
  }
  return text;
}

TEST(ExemptionsTest, TesteeThatDeclaresNothingIsJudgedOnEveryRow) {
  Problem p = sized(4, 2, Mask::causal(Anchor::bottom_right));
  p.query_lens = {3};
  const Exemptions e(p, {}, declaring(""));
  EXPECT_FALSE(e.any());
  EXPECT_EQ(marks(e, TensorName::o, p.o_shape()), "........");
}

TEST(ExemptionsTest, PaddingOfQueriesMayBeDeclaredUnwritten) {
  Problem p = sized(4, 2);
  p.query_lens = {3};
  const Exemptions e(p, {}, declaring(kUnwritten));
  EXPECT_EQ(marks(e, TensorName::o, p.o_shape()), "......uu");
  EXPECT_EQ(marks(e, TensorName::lse, p.lse_shape()), "...u");
  EXPECT_EQ(marks(e, TensorName::dq, p.q_shape()), "...u");
  EXPECT_EQ(marks(e, TensorName::dk, {1, 1, 4, 1}), "....");
  EXPECT_FALSE(e.dialect());
}

TEST(ExemptionsTest, DialectCoversTheRowsThatSeeNoKeyInTheTensorsThatItNames) {
  const Problem p = sized(4, 2, Mask::causal(Anchor::bottom_right));  // the first two see nothing
  const Exemptions o(p, {}, declaring(R"(, "empty_rows": {"o": "the mean of V"})"));
  EXPECT_EQ(marks(o, TensorName::o, p.o_shape()), "xxxx....");
  EXPECT_EQ(marks(o, TensorName::lse, p.lse_shape()), "....");
  EXPECT_EQ(marks(o, TensorName::dq, p.q_shape()), "....");
  EXPECT_TRUE(o.dialect());
  const Exemptions lse(p, {}, declaring(R"(, "empty_rows": {"lse": "+inf"})"));
  EXPECT_EQ(marks(lse, TensorName::o, p.o_shape()), "........");
  EXPECT_EQ(marks(lse, TensorName::lse, p.lse_shape()), "xx..");
}

TEST(ExemptionsTest, CaseWithoutEmptyRowsKnowsNoDialect) {
  const Exemptions e(sized(2, 4, Mask::causal(Anchor::bottom_right)), {},
                     declaring(R"(, "empty_rows": {"o": "NaN"})"));
  EXPECT_FALSE(e.any());
}

TEST(ExemptionsTest, BiasOfMinusInfinityAndPaddingEmptyRowsToo) {
  Problem p = sized(3, 2);
  p.bias_shape = Shape{1, 1, 3, 2};
  p.query_lens = {2};
  Inputs in;
  in.bias = {*p.bias_shape, {-kInfinity, -kInfinity, 0, -kInfinity, 0, 0}};
  const std::string dialect = R"(, "empty_rows": {"lse": "NaN"})";
  EXPECT_EQ(marks({p, in, declaring(dialect)}, TensorName::lse, p.lse_shape()), "x.x");
  EXPECT_EQ(marks({p, in, declaring(dialect + kUnwritten)}, TensorName::lse, p.lse_shape()), "x.u");
}

TEST(ExemptionsTest, RowsOfAPackedProblemAreThoseThatAreStored) {
  Problem p = sized(3, 2, Mask::causal(Anchor::bottom_right));
  p.batch = 2;
  p.packed = true;
  p.query_lens = {3, 1};
  p.key_lens = {2, 0};
  const Exemptions e(p, {}, declaring(R"(, "empty_rows": {"lse": "NaN"})" + kUnwritten));
  EXPECT_EQ(marks(e, TensorName::lse, p.lse_shape()), "x..x");
}

}  // namespace
}  // namespace attest
