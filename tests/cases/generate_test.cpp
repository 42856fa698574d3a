#include "cases/generate.h"
#include "cases/side_inputs.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <thread>

#include "spec/json_reader.h"

namespace attest {
namespace {

Case case_of(const std::string& data, DType dtype = DType::f32) {
  return {.id = fmt::format("a/case/dtype={}/data={}/s=1", name(dtype), data),
          .clauses = {},
          .because = "",
          .problem = {.dtype = dtype,
                      .batch = 2,
                      .query_heads = 4,
                      .key_heads = 2,
                      .query_len = 30,
                      .key_len = 50,
                      .head_dim = 32,
                      .value_dim = 16,
                      .scale = 1 / std::sqrt(32.0),
                      .backward = true},
          .data = data};
}

std::vector<const Values*> tensors(const Inputs& inputs) {
  return {&inputs.q, &inputs.k, &inputs.v, &inputs.d_o};
}

// A hash of the bits of all tensors, after FNV-1a.
std::uint64_t digest(const Inputs& inputs) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const Values* values : tensors(inputs)) {
    for (const double value : values->data) {
      hash = (hash ^ std::bit_cast<std::uint64_t>(value)) * 0x100000001b3;
      hash ^= hash >> 32;  // the products alone never reach the lower bits
    }
  }
  return hash;
}

double score(const Case& c, const Inputs& in, Index b, Index h, Index i, Index j) {
  double sum = 0;
  for (Index d = 0; d < c.problem.head_dim; ++d) {
    sum += in.q.at(b, h, i, d) * in.k.at(b, h / c.problem.group_size(), j, d);
  }
  return c.problem.scale * sum;
}

struct Scores {
  double mean, deviation, least, most;
};
Scores scores_of(const Case& c) {
  const Inputs in = generate(c);
  const Problem& p = c.problem;
  double sum = 0, squares = 0, least = 1e300, most = -1e300;
  Index count = 0;
  for (Index b = 0; b < p.batch; ++b) {
    for (Index h = 0; h < p.query_heads; ++h) {
      for (Index i = 0; i < p.query_len; ++i) {
        for (Index j = 0; j < p.key_len; ++j, ++count) {
          const double s = score(c, in, b, h, i, j);
          sum += s;
          squares += s * s;
          least = std::min(least, s);
          most = std::max(most, s);
        }
      }
    }
  }
  const double mean = sum / static_cast<double>(count);
  return {mean, std::sqrt(squares / static_cast<double>(count) - mean * mean), least, most};
}

TEST(GenerateTest, EveryValueIsFiniteAndOfItsType) {
  for (const InputClass& input_class : input_classes()) {
    for (const DType dtype : kDTypes) {
      const Inputs inputs = generate(case_of(input_class.name, dtype));
      for (const Values* values : tensors(inputs)) {
        for (const double value : values->data) {
          ASSERT_TRUE(std::isfinite(value)) << input_class.name << " " << name(dtype);
          ASSERT_EQ(value, round_to(dtype, value)) << input_class.name << " " << name(dtype);
        }
      }
    }
  }
}

RC_GTEST_PROP(GenerateTest, EveryScoreIsFiniteInSinglePrecision, ()) {
  const auto index = *rc::gen::inRange<std::size_t>(0, input_classes().size());
  Case c =
      case_of(input_classes()[index].name, *rc::gen::element(DType::f32, DType::f16, DType::bf16));
  Problem& p = c.problem;
  p.batch = 1;
  p.query_len = *rc::gen::inRange<Index>(1, 6);
  p.key_len = *rc::gen::inRange<Index>(1, 80);
  p.head_dim = *rc::gen::inRange<Index>(1, 257);
  p.scale = *rc::gen::element(1.0, -1.0, 0.125, 1e-3, 8.0);
  const Inputs in = generate(c);
  for (Index i = 0; i < p.query_len; ++i) {
    for (Index j = 0; j < p.key_len; ++j) {
      double sum = 0;  // of absolute values: no order of summation may overflow
      for (Index d = 0; d < p.head_dim; ++d) {
        sum += std::abs(in.q.at(0, 3, i, d) * in.k.at(0, 1, j, d));
      }
      RC_ASSERT(sum * std::max(1.0, std::abs(p.scale)) < 1e37);
    }
  }
}

TEST(GenerateTest, LogitsHaveTheDeviationThatTheirClassNames) {
  for (const DType dtype : kDTypes) {
    EXPECT_NEAR(scores_of(case_of("normal", dtype)).deviation, 1, 0.15);
    EXPECT_NEAR(scores_of(case_of("std10", dtype)).deviation, 10, 1.5);
    EXPECT_NEAR(scores_of(case_of("std50", dtype)).deviation, 50, 7.5);
  }
}

TEST(GenerateTest, LogitsKeepTheirDeviationAtAnyScale) {
  for (const double scale : {-0.5, 0.01, 1.0, 8.0}) {
    Case c = case_of("std10");
    c.problem.scale = scale;
    EXPECT_NEAR(scores_of(c).deviation, 10, 1.5) << scale;
  }
}

TEST(GenerateTest, NormalNumbersHaveMeanZeroAndDeviationOne) {
  Case c = case_of("normal", DType::f64);
  c.problem.query_len = 400;
  double sum = 0, squares = 0;
  const Inputs inputs = generate(c);
  for (const double value : inputs.q.data) {
    sum += value;
    squares += value * value;
  }
  const auto count = static_cast<double>(inputs.q.data.size());
  EXPECT_NEAR(sum / count, 0, 0.01);
  EXPECT_NEAR(squares / count, 1, 0.01);
}

TEST(GenerateTest, AscendingScoresRiseWithEveryKeyAndDescendingFall) {
  for (const DType dtype : kDTypes) {
    for (const Index head_dim : {1, 2, 7, 32, 64}) {
      for (const double scale : {0.125, -1.0}) {
        for (const bool rises : {true, false}) {
          Case c = case_of(rises ? "ascending" : "descending", dtype);
          c.problem.head_dim = head_dim;
          c.problem.scale = scale;
          const Inputs in = generate(c);
          for (Index j = 1; j < c.problem.key_len; ++j) {
            const double step = score(c, in, 1, 3, 5, j) - score(c, in, 1, 3, 5, j - 1);
            ASSERT_GT(rises ? step : -step, 0) << name(dtype) << " d" << head_dim << " key " << j;
          }
        }
      }
    }
  }
}

TEST(GenerateTest, LevelsLieWhereTheirClassSays) {
  for (const DType dtype : kDTypes) {
    const Scores low = scores_of(case_of("low", dtype));
    EXPECT_LT(low.most, -89) << name(dtype);
    EXPECT_GT(low.least, -150) << name(dtype);
    EXPECT_GT(low.deviation, 0.5) << name(dtype);
    const Scores high = scores_of(case_of("high", dtype));
    EXPECT_GT(high.least, 89) << name(dtype);
    EXPECT_LT(high.most, 150) << name(dtype);
    EXPECT_GT(high.deviation, 0.5) << name(dtype);
    Case deep = case_of("deep", dtype);
    deep.problem.head_dim = 8;
    EXPECT_LT(scores_of(deep).most, -50000) << name(dtype);
    EXPECT_GT(scores_of(deep).deviation, 0.5) << name(dtype);
    EXPECT_GT(scores_of(case_of("huge", dtype)).least, 20000) << name(dtype);
  }
}

// What dQ, dK and dV sum, but for common factors, is |k|, dO and dO.
void expect_stagnant(const std::string& data, Index block, double least_loss) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Case c = case_of(data, dtype);
    c.problem.query_len = c.problem.key_len = 2048;
    c.problem.value_dim = c.problem.head_dim;
    const Inputs in = generate(c);
    const auto last = c.problem.head_dim - 1;
    for (const Values* values : {&in.k, &in.d_o}) {
      double whole = 0, narrow = 0;
      for (Index s = 0; s < 2048; ++s) {
        const double term = std::abs(values->at(0, 0, s, last));
        whole += term;
        narrow += term;
        if (s % block == block - 1) narrow = round_to(dtype, narrow);
      }
      EXPECT_EQ(narrow, 64);
      EXPECT_GT((whole - narrow) / whole, least_loss * unit_roundoff(dtype)) << name(dtype);
    }
    for (const Index key : {0, 1, 63, 64, 2047}) EXPECT_EQ(score(c, in, 0, 0, 5, key), 0);
    EXPECT_EQ(in.v.at(0, 0, 6, 0), -in.v.at(0, 0, 7, 0));
    EXPECT_EQ(in.k.at(0, 0, 6, last), -in.k.at(0, 0, 7, last));
  }
}

TEST(GenerateTest, SumsRoundedBetweenBlocksTakeNoNoticeOfStagnantTerms) {
  expect_stagnant("stagnant", 64, 20);
  expect_stagnant("stagnant_blocks", 64, 10);
  expect_stagnant("stagnant_blocks", 128, 10);
}

TEST(GenerateTest, ScoresAreFarAboveOnlyWhereNoRowThatCouldBeDrownedSeesThem) {
  for (const DType dtype : kDTypes) {
    Case c = case_of("far_above", dtype);
    c.problem.mask = Mask::causal(Anchor::bottom_right);
    const Inputs in = generate(c);
    double seen = 0, hidden = 0;
    for (Index i = 0; i < c.problem.query_len; ++i) {
      for (Index j = 0; j < c.problem.key_len; ++j) {
        double& most =
            visible(c.problem, {.batch = 0, .head = 0, .query = i, .key = j}) ? seen : hidden;
        most = std::max(most, std::abs(score(c, in, 0, 0, i, j)));
      }
    }
    EXPECT_LT(seen, 8) << name(dtype);
    EXPECT_GT(hidden, 1e6) << name(dtype);
  }
}

TEST(GenerateTest, OneHotRowsHaveOneKeyFarAboveAllOthers) {
  const Case c = case_of("one_hot", DType::bf16);
  const Inputs in = generate(c);
  for (Index i = 0; i < c.problem.query_len; ++i) {
    std::vector<double> row;
    for (Index j = 0; j < c.problem.key_len; ++j) row.push_back(score(c, in, 1, 2, i, j));
    std::sort(row.rbegin(), row.rend());
    EXPECT_NEAR(row[0], 48, 0.5);
    EXPECT_GT(row[0] - row[1], 8);
  }
}

TEST(GenerateTest, ValuesNameTheirKeys) {
  const Inputs in = generate(case_of("key_names", DType::bf16));
  std::map<std::vector<double>, Index> seen;
  for (Index j = 0; j < in.v.shape[kPosition]; ++j) {
    std::vector<double> row;
    for (Index d = 0; d < in.v.shape[kChannel]; ++d) row.push_back(in.v.at(1, 1, j, d));
    EXPECT_TRUE(seen.emplace(row, j).second) << "key " << j << " has the name of another";
  }
}

TEST(GenerateTest, SubnormalQueriesAreSubnormal) {
  for (const DType dtype : kDTypes) {
    const Inputs in = generate(case_of("subnormal", dtype));
    const auto is_subnormal = [&](double x) {
      return x != 0 && std::abs(x) < smallest_normal(dtype);
    };
    const auto count = std::count_if(in.q.data.begin(), in.q.data.end(), is_subnormal);
    EXPECT_GT(count, static_cast<std::ptrdiff_t>(in.q.data.size() / 2)) << name(dtype);
  }
}

TEST(GenerateTest, ElementsAlongAnExpandedAxisAreEqual) {
  for (const InputClass& input_class : input_classes()) {
    Case c = case_of(input_class.name);
    c.problem.layouts.q = Layout::parse("bhsd expand=h");
    c.problem.layouts.k = Layout::parse("bhsd expand=bs");
    c.problem.layouts.v = Layout::parse("bshd expand=d");
    c.problem.layouts.d_o = Layout::parse("bhsd expand=bhsd");
    const Inputs in = generate(c);
    EXPECT_EQ(in.q.at(1, 0, 7, 3), in.q.at(1, 3, 7, 3)) << input_class.name;
    EXPECT_EQ(in.k.at(0, 1, 0, 3), in.k.at(1, 1, 9, 3)) << input_class.name;
    EXPECT_EQ(in.v.at(1, 1, 9, 0), in.v.at(1, 1, 9, 15)) << input_class.name;
    EXPECT_EQ(in.d_o.at(0, 0, 0, 0), in.d_o.at(1, 3, 29, 15)) << input_class.name;
  }
}

TEST(GenerateTest, BiasAlongAnExpandedAxisIsHiddenAltogetherOrNotAtAll) {
  Case c = case_of("normal");
  c.problem.bias_shape = c.problem.keep_shape();
  c.problem.layouts.bias = Layout::parse("bhsd expand=s");
  c.extras.bias_allows.shape = *c.problem.bias_shape;
  for (Index n = 0; n < element_count(*c.problem.bias_shape); ++n) {
    c.extras.bias_allows.allowed.push_back(n % 3 != 0);
  }
  const Values bias = generate(c).bias;
  for (Index key = 0; key < c.problem.key_len; ++key) {
    for (Index query = 1; query < c.problem.query_len; ++query) {
      ASSERT_EQ(bias.at(1, 2, query, key), bias.at(1, 2, 0, key));
    }
  }
}

TEST(GenerateTest, GradientIsMadeForBackwardProblemsOnly) {
  Case c = case_of("normal");
  EXPECT_EQ(generate(c).d_o.shape, c.problem.o_shape());
  c.problem.backward = false;
  EXPECT_TRUE(generate(c).d_o.data.empty());
}

TEST(GenerateTest, NothingIsMadeOfEmptyShapes) {
  for (const InputClass& input_class : input_classes()) {
    for (Index Problem::*size : {&Problem::batch, &Problem::query_len, &Problem::key_len,
                                 &Problem::head_dim, &Problem::value_dim}) {
      Case c = case_of(input_class.name);
      c.problem.*size = 0;
      EXPECT_NO_THROW(generate(c)) << input_class.name;
    }
  }
}

TEST(GenerateTest, NanLiesBeyondTheKeyLengthAndNowhereElse) {
  Case c = case_of("normal");
  c.hidden = Hidden::nan;
  c.problem.key_lens = {50, 13};
  const Inputs in = generate(c);
  for (const Values* values : {&in.k, &in.v}) {
    for (std::size_t i = 0; i < values->data.size(); ++i) {
      const auto [b, h, j, d] = coordinates(values->shape, static_cast<Index>(i));
      EXPECT_EQ(!std::isfinite(values->data[i]), b == 1 && j >= 13);
    }
  }
  const auto is_nan = [](double x) { return std::isnan(x); };
  EXPECT_GT(std::count_if(in.k.data.begin(), in.k.data.end(), is_nan), 0);
  for (const Values* values : {&in.q, &in.d_o}) {
    for (const double value : values->data) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(GenerateTest, HugeNumbersLieInKeysThatNoRowOfTheGroupSees) {
  for (const DType dtype : kDTypes) {
    Case c = case_of("normal", dtype);
    c.hidden = Hidden::huge;
    c.problem.mask = Mask::causal(Anchor::top_left, 3);  // key 33 and those beyond it are hidden
    const Inputs in = generate(c);
    for (const Values* values : {&in.k, &in.v}) {
      for (std::size_t i = 0; i < values->data.size(); ++i) {
        const auto [b, h, j, d] = coordinates(values->shape, static_cast<Index>(i));
        EXPECT_EQ(std::abs(values->data[i]) > 1000, j >= 33) << name(dtype) << " key " << j;
        EXPECT_TRUE(std::isfinite(values->data[i]));
      }
    }
  }
}

TEST(GenerateTest, KeysThatSomeRowSeesAreLeftAlone) {
  Case c = case_of("normal");
  const Inputs plain = generate(c);
  c.hidden = Hidden::huge;
  c.problem.mask = Mask::window(2, 0, Anchor::top_left, 20);  // sees keys 18 to 49
  const Inputs in = generate(c);
  for (Index j = 18; j < 50; ++j) EXPECT_EQ(in.k.at(1, 1, j, 5), plain.k.at(1, 1, j, 5));
}

// With every tensor that there is.
Case full_case(DType dtype = DType::f32) {
  Case c = case_of("normal", dtype);
  Problem& p = c.problem;
  p.bias_shape = Shape{2, 4, 30, 50};
  p.slopes_shape = Shape{1, 4, 1, 1};
  p.sink = true;
  p.d_lse = true;
  p.dropout = {.mode = Dropout::Mode::given, .probability = 0.25, .seed = 7};
  return c;
}

TEST(GenerateTest, MakesWhatAProblemHasAndNothingElse) {
  const Inputs all = generate(full_case());
  const Problem& p = full_case().problem;
  EXPECT_EQ(all.bias.shape, *p.bias_shape);
  EXPECT_EQ(all.slopes.shape, *p.slopes_shape);
  EXPECT_EQ(all.sink.shape, p.sink_shape());
  EXPECT_EQ(all.d_lse.shape, p.lse_shape());
  EXPECT_EQ(all.keep.shape, p.keep_shape());
  const Inputs none = generate(case_of("normal"));
  EXPECT_TRUE(none.bias.data.empty() && none.slopes.data.empty() && none.sink.data.empty() &&
              none.d_lse.data.empty() && none.keep.kept.empty());
  Case generated = full_case();
  generated.problem.dropout.mode = Dropout::Mode::generated;
  EXPECT_TRUE(generate(generated).keep.kept.empty()) << "the testee draws it";
}

TEST(GenerateTest, OtherTensorsLeaveTheBitsOfTheseAlone) {
  EXPECT_EQ(digest(generate(full_case())), digest(generate(case_of("normal"))));
}

TEST(GenerateTest, TensorsBesideAreOfTheirOwnTypes) {
  for (const DType dtype : kDTypes) {
    for (const std::string& kind : bias_kinds()) {
      Case c = full_case(dtype);
      c.extras.bias = kind;
      const Inputs in = generate(c);
      for (const double x : in.bias.data) ASSERT_EQ(x, round_to(dtype, x)) << kind;
      const std::set<double> distinct(in.bias.data.begin(), in.bias.data.end());
      EXPECT_GT(distinct.size(), 2u) << kind << " " << name(dtype);
      for (const double x : in.slopes.data) ASSERT_EQ(x, round_to(DType::f32, x));
      for (const double x : in.d_lse.data) ASSERT_EQ(x, round_to(c.problem.lse_dtype(), x));
    }
    for (const std::string& kind : sink_kinds()) {
      Case c = full_case(dtype);
      c.extras.sink = kind;
      for (const double x : generate(c).sink.data) ASSERT_EQ(x, round_to(DType::f32, x)) << kind;
    }
  }
}

TEST(GenerateTest, BiasIsInfiniteExactlyWhereItDoesNotAllow) {
  Case c = full_case();
  c.problem.bias_shape = Shape{1, 4, 1, 50};
  DenseMask& allows = c.extras.bias_allows;
  allows.shape = *c.problem.bias_shape;
  for (Index i = 0; i < 200; ++i) allows.allowed.push_back(i % 3 != 0);
  const Inputs in = generate(c);
  for (std::size_t i = 0; i < 200; ++i) {
    EXPECT_EQ(in.bias.data[i] == -INFINITY, i % 3 == 0);
    EXPECT_EQ(std::isfinite(in.bias.data[i]), i % 3 != 0);
  }
}

TEST(GenerateTest, StandardSlopesAreThoseOfAlibi) {
  for (const Index heads : {1, 2, 4, 6, 8, 12}) {
    Case c = full_case();
    c.problem.query_heads = c.problem.key_heads = heads;
    c.problem.bias_shape.reset();
    c.problem.slopes_shape = Shape{2, heads, 1, 1};
    const Values slopes = generate(c).slopes;
    Index power = 1;
    while (2 * power <= heads) power *= 2;
    for (Index h = 0; h < heads; ++h) {
      const double exponent =
          h < power ? -8.0 * static_cast<double>(h + 1) / static_cast<double>(power)
                    : -4.0 * static_cast<double>(2 * (h - power) + 1) / static_cast<double>(power);
      EXPECT_NEAR(slopes.at(0, h, 0, 0), std::exp2(exponent), 1e-7 * std::exp2(exponent));
      EXPECT_EQ(slopes.at(1, h, 0, 0), 2 * slopes.at(0, h, 0, 0)) << "another batch element";
    }
  }
  Case given = full_case();
  given.extras.slopes = {1, -0.5, 0, 0.1};
  EXPECT_EQ(generate(given).slopes.at(0, 1, 0, 0), -0.5);
  EXPECT_EQ(generate(given).slopes.at(0, 3, 0, 0), round_to(DType::f32, 0.1));
}

// The rows of a packed or paged tensor are those of the same problem with padding.
void expect_same_rows(const Case& other, const std::string& data) {
  Case padded = other;
  padded.problem.packed = false;
  padded.problem.paging = {};
  padded.data = data;
  Case stored = other;
  stored.data = data;
  const Problem& p = stored.problem;
  const Inputs a = generate(stored), b = generate(padded);
  const auto expect_row = [&](const Values& x, Place place, const Values& y, Index batch,
                              Index at) {
    for (Index h = 0; h < x.shape[kHead]; ++h) {
      for (Index d = 0; d < x.shape[kChannel]; ++d) {
        ASSERT_EQ(x.at(place.batch, h, place.position, d), y.at(batch, h, at, d)) << data;
      }
    }
  };
  for (Index batch = 0; batch < p.batch; ++batch) {
    for (Index i = 0; i < p.lengths(batch).query; ++i) {
      expect_row(a.q, p.query_place(batch, i), b.q, batch, i);
      if (p.backward) expect_row(a.d_o, p.query_place(batch, i), b.d_o, batch, i);
    }
    for (Index j = 0; j < p.lengths(batch).key; ++j) {
      expect_row(a.k, p.key_place(batch, j), b.k, batch, j);
      expect_row(a.v, p.key_place(batch, j), b.v, batch, j);
    }
  }
}

TEST(GenerateTest, PackedRowsAreThoseOfThePaddedProblem) {
  Case c = case_of("normal");
  c.problem.batch = 4;
  c.problem.packed = true;
  c.problem.query_lens = {0, 30, 7, 2};
  c.problem.key_lens = {13, 0, 50, 4};
  for (const InputClass& input_class : input_classes()) expect_same_rows(c, input_class.name);
}

Case paged_case() {
  Case c = case_of("normal");
  c.problem.batch = 3;
  c.problem.backward = false;
  c.problem.key_lens = {50, 0, 21};
  c.problem.paging = {.page_size = 16, .pages = 8, .table = {{6, 0, 3, 5}, {-1}, {2, 7, -1}}};
  return c;
}

TEST(GenerateTest, PagedRowsAreThoseOfThePaddedProblem) {
  for (const InputClass& input_class : input_classes()) {
    expect_same_rows(paged_case(), input_class.name);
  }
}

// Where the numbers of a tensor are not finite: [batch, head, position].
std::set<std::array<Index, 3>> unfinite(const Values& values) {
  std::set<std::array<Index, 3>> places;
  for (std::size_t i = 0; i < values.data.size(); ++i) {
    const auto [b, h, s, d] = coordinates(values.shape, static_cast<Index>(i));
    if (!std::isfinite(values.data[i])) places.insert({b, h, s});
  }
  return places;
}

TEST(GenerateTest, NanLiesInUnusedSlotsAndPages) {
  Case c = paged_case();
  c.hidden = Hidden::nan;
  const Inputs in = generate(c);
  std::set<std::array<Index, 3>> expected;
  for (Index h = 0; h < 2; ++h) {
    for (const Index page : {1, 4}) {
      for (Index slot = 0; slot < 16; ++slot) expected.insert({page, h, slot});
    }
    for (Index slot = 2; slot < 16; ++slot) expected.insert({5, h, slot});  // 50 = 3 * 16 + 2
    for (Index slot = 5; slot < 16; ++slot) expected.insert({7, h, slot});  // 21 = 16 + 5
  }
  EXPECT_EQ(unfinite(in.k), expected);
  EXPECT_EQ(unfinite(in.v), expected);
  EXPECT_TRUE(unfinite(in.q).empty());
}

TEST(GenerateTest, ASharedSlotIsUsedIfAnyElementUsesIt) {
  Case c = paged_case();
  c.hidden = Hidden::nan;
  c.problem.paging.table = {{6, 0, 3, 5}, {}, {5, 7}};  // the third element uses all of page 5
  EXPECT_FALSE(unfinite(generate(c).k).contains({5, 0, 10}));
  EXPECT_TRUE(unfinite(generate(c).k).contains({7, 0, 10}));
}

TEST(GenerateTest, NanRowsLieBeyondTheQueryLength) {
  Case c = full_case();
  c.hidden = Hidden::nan_rows;
  c.problem.query_lens = {30, 12};
  const Inputs in = generate(c);
  std::set<std::array<Index, 3>> expected;
  for (Index h = 0; h < 4; ++h) {
    for (Index i = 12; i < 30; ++i) expected.insert({1, h, i});
  }
  EXPECT_EQ(unfinite(in.q), expected);
  EXPECT_EQ(unfinite(in.d_o), expected);
  EXPECT_EQ(unfinite(in.d_lse), expected);
  EXPECT_TRUE(unfinite(in.k).empty());
}

TEST(GenerateTest, NanMaskedLiesInKeysThatExistAndNobodySees) {
  Case c = full_case();
  c.hidden = Hidden::nan_masked;
  c.problem.key_lens = {50, 44};
  c.problem.mask = Mask::causal(Anchor::top_left, 8);  // key 38 and those beyond it are hidden
  c.problem.bias_shape = Shape{1, 1, 1, 50};
  c.extras.bias_allows = {.shape = {1, 1, 1, 50}, .allowed = std::vector<std::uint8_t>(50, 1)};
  c.extras.bias_allows.allowed[3] = 0;  // and this one, by a bias of -inf
  const Inputs in = generate(c);
  std::set<std::array<Index, 3>> expected;
  for (Index b = 0; b < 2; ++b) {
    for (Index h = 0; h < 2; ++h) {
      expected.insert({b, h, 3});
      for (Index j = 38; j < (b == 0 ? 50 : 44); ++j) expected.insert({b, h, j});
    }
  }
  EXPECT_EQ(unfinite(in.k), expected);
  EXPECT_EQ(unfinite(in.v), expected);
}

TEST(GenerateTest, SomeRowsAreNotFiniteAndOnlyInTheTensorThatIsNamed) {
  for (const auto& [hidden, tensor] : {std::pair{Hidden::nan_query, &Inputs::q},
                                       {Hidden::nan_key, &Inputs::k},
                                       {Hidden::nan_value, &Inputs::v},
                                       {Hidden::nan_gradient, &Inputs::d_o}}) {
    Case c = full_case();
    const Inputs plain = generate(c);
    c.hidden = hidden;
    c.problem.query_lens = {30, 3};
    c.problem.key_lens = {50, 3};
    const Inputs in = generate(c);
    for (const auto member : {&Inputs::q, &Inputs::k, &Inputs::v, &Inputs::d_o}) {
      const auto places = unfinite(in.*member);
      if (member != tensor) {
        EXPECT_TRUE(places.empty());
        continue;
      }
      EXPECT_EQ(places.size(), 2u) << "a row of head 0 in both batch elements";
      for (const auto& [b, h, s] : places) {
        EXPECT_EQ(h, 0);
        EXPECT_LT(s, b == 0 ? 50 : 3) << "within the length";
      }
      const auto is_finite = [](double x) { return std::isfinite(x); };
      EXPECT_TRUE(std::equal((in.*member).data.begin(), (in.*member).data.end(),
                             (plain.*member).data.begin(),
                             [&](double x, double y) { return x == y || !is_finite(x); }))
          << "all other numbers are as they were";
    }
  }
}

// dSink sums over the batch, dK and dV over the group: what is to be judged of them must be clean
// throughout.
TEST(GenerateTest, SomeHeadsAndGroupsAreFiniteThroughout) {
  for (const auto& [query_heads, key_heads] :
       {std::pair<Index, Index>{4, 4}, {4, 2}, {6, 2}, {9, 3}, {4, 1}, {1, 1}}) {
    for (const auto& [hidden, tensor] : {std::pair{Hidden::nan_query, &Inputs::q},
                                         {Hidden::nan_key, &Inputs::k},
                                         {Hidden::nan_value, &Inputs::v},
                                         {Hidden::nan_gradient, &Inputs::d_o}}) {
      Case c = full_case();
      c.hidden = hidden;
      c.problem.query_heads = query_heads;
      c.problem.key_heads = key_heads;
      c.problem.bias_shape.reset();
      c.problem.slopes_shape.reset();
      c.problem.mask = Mask::full();
      c.extras = {};
      const bool of_keys = tensor == &Inputs::k || tensor == &Inputs::v;
      std::set<Index> heads, groups, batches;  // that hold what isn't finite
      for (const auto& [b, h, s] : unfinite(generate(c).*tensor)) {
        heads.insert(h);
        groups.insert(of_keys ? h : h / c.problem.group_size());
        batches.insert(b);
      }
      EXPECT_FALSE(heads.empty());
      if (key_heads > 1) {
        EXPECT_EQ(static_cast<Index>(groups.size()), (key_heads + 1) / 2);
        EXPECT_EQ(batches.size(), 2u);
      } else {
        EXPECT_EQ(batches, std::set<Index>{0});
      }
      if (!of_keys && query_heads > 1) {
        EXPECT_LT(static_cast<Index>(heads.size()), query_heads);
      }
    }
  }
}

TEST(GenerateTest, IdAloneDecidesTheBits) {
  Case c = case_of("normal");
  const auto first = digest(generate(c));
  EXPECT_EQ(digest(generate(c)), first);
  c.id = "a/case/dtype=f32/data=normal/s=2";
  EXPECT_NE(digest(generate(c)), first);
}

TEST(GenerateTest, ThreadsAndOrderDoNotMatter) {
  const auto& classes = input_classes();
  std::vector<std::uint64_t> alone, together(classes.size());
  for (const InputClass& input_class : classes)
    alone.push_back(digest(generate(case_of(input_class.name))));
  std::vector<std::thread> threads;
  for (std::size_t i = classes.size(); i-- > 0;) {
    threads.emplace_back([&, i] { together[i] = digest(generate(case_of(classes[i].name))); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(alone, together);
}

TEST(GenerateTest, UnknownClassIsAnError) {
  EXPECT_THROW(generate(case_of("nonsense")), InputError);
}

struct Golden {
  const char* data;
  std::uint64_t f32, f16, bf16;
};

// The bits of every class. They may change only on purpose: every id ever reported would then stand
// for other numbers.
constexpr Golden kGolden[] = {
    {"normal", 0xdefce924c7172c99, 0xbfced699bdd5ce76, 0xa28a8ab58c7702d8},
    {"std10", 0xb4d9d2e3ff49924, 0xc396fb8ea8e14408, 0x7482bbe887f27808},
    {"std50", 0xf7b395ccb6594014, 0xf667f63eb6c75bf1, 0x1dab9b5f9ac6d9c7},
    {"heavy_tail", 0x6af7c758aa1697ea, 0x9452af20d1021db9, 0x429059fc6dab18e0},
    {"near_ties", 0xe40d733c969da3f2, 0x27e9fec4f41c2777, 0xf53a6d0e571e3fc1},
    {"all_equal", 0xd06f9e1f9903d679, 0x4794864eed9f25d8, 0xd3decaa7a045cc1d},
    {"equal_huge", 0x79dbebb8993ef2d4, 0x661cc27dc4a75e9a, 0xa9c2f75b465f421e},
    {"one_hot", 0x510861a440b3d184, 0x41b6e744e78c3510, 0x4d73dcd35a1c078d},
    {"ascending", 0x1039a05ebf9a1abb, 0x17ed0f393afcb3d6, 0x595ada1a39f5f580},
    {"descending", 0xc958540f6af6e5e7, 0x41787387f3d53617, 0xad99174a38805f18},
    {"q0int", 0xf038dafe7156efd6, 0x57f35cdee7bbf335, 0xac967a8cfa6e368e},
    {"outliers", 0x1a49185fd17b1773, 0xdb7a991e480aaece, 0x523f7e4fc23f6954},
    {"sparse_ints", 0x9f56c6fb0fca3924, 0xe21fbe2465ea41d2, 0xa1cf082aa9885001},
    {"key_names", 0xefdc56bb52976b11, 0xc7c57a5514be7cb3, 0xcfb670f1ae4012d4},
    {"cancelling", 0xcec93cedb110a297, 0xfd536c4cba56049, 0xb6207eafc59f0752},
    {"halves", 0x9f20446f905b6f24, 0x35a48bbbe416d771, 0xbeebd8723838dec3},
    {"offset", 0x5caa4a6607cffc70, 0xbc7d891b167238cc, 0x1d864ed313b2c11c},
    {"huge", 0x70d6f66f9f674aae, 0xcff798d63818ca57, 0x471796b0a52fa91a},
    {"deep", 0xa072ee4e35595b9, 0xbc0403728693458e, 0xb3c3dd7d75e1d815},
    {"low", 0x294a314b64dc89bc, 0x639698e6c4a07f5e, 0x4f9448458a93a53e},
    {"high", 0x56b7b38b674feff1, 0xd0e57f7d4c0bd1f1, 0xd51d455e52ad1f5a},
    {"unbalanced", 0x4d3133feda49599d, 0x82595514d6d9e89c, 0x979dbcc61d4046a7},
    {"tiny", 0x10ed4c13470af2a7, 0x158a65479a7af02f, 0x28aca31d6f0e3b8b},
    {"uniform", 0x2d2c447aca043d86, 0x20e2fd20cfa84316, 0x5fbfed8a6349c829},
    {"small", 0x352741533feb8da1, 0xf70d0899fe80661a, 0x25aff2b11e839fde},
    {"std3", 0x2d3e4f7e70bde709, 0x9ed1a2eca2631d59, 0xe82d1802859ea7f4},
    {"positive", 0x9411a10ee67bd32b, 0x69633f50ac4b7099, 0x1e562288e7015aaf},
    {"subnormal", 0x6766fc53d29dbcf3, 0xb48048db41016e0b, 0x20c80840abd82d4a},
    {"stagnant", 0xb8dcfd2b5303fad7, 0xb8dcfd2b5303fad7, 0xb8dcfd2b5303fad7},
    {"stagnant_blocks", 0xb8dcfd2b5303fad7, 0xb8dcfd2b5303fad7, 0xb8dcfd2b5303fad7},
    {"far_above", 0x315d1681709128a0, 0x70907408450bcfd3, 0x539eb0fc61075ac7},
    {"exponents", 0x70b609eb1170ebe2, 0x67bb470bcb3690d7, 0x3806128e34d8ba90},
    {"lse_loss", 0xd488374e5f077113, 0x2c43b02772895f7c, 0x7898c503e19c9bb3},
    {"counted", 0x5e02bc07ae1f81c9, 0x5e02bc07ae1f81c9, 0x5e02bc07ae1f81c9},
    {"head_exponents", 0x3aa0d036cbf7bb0d, 0xca5e3f22227898b9, 0x56bed9f6a3fe683b},
};

TEST(GenerateTest, BitsAreThoseOfTheFirstRelease) {
  std::string all;
  for (const InputClass& input_class : input_classes()) {
    const auto of = [&](DType dtype) { return digest(generate(case_of(input_class.name, dtype))); };
    const std::uint64_t f32 = of(DType::f32), f16 = of(DType::f16), bf16 = of(DType::bf16);
    all += fmt::format("{{\"{}\", {:#x}, {:#x}, {:#x}}},\n", input_class.name, f32, f16, bf16);
    const auto golden = std::find_if(std::begin(kGolden), std::end(kGolden),
                                     [&](const Golden& g) { return g.data == input_class.name; });
    const bool known = golden != std::end(kGolden);
    EXPECT_TRUE(known && golden->f32 == f32) << input_class.name;
    EXPECT_TRUE(known && golden->f16 == f16) << input_class.name;
    EXPECT_TRUE(known && golden->bf16 == bf16) << input_class.name;
  }
  EXPECT_EQ(std::size(kGolden), input_classes().size());
  if (HasFailure()) std::puts(all.c_str());
}

// The bits of the tensors beside Q, K, V and dO, and of what is hidden in these.
struct GoldenBeside {
  const char* what;
  std::uint64_t digest;
};
constexpr GoldenBeside kGoldenBeside[] = {
    {"bias normal", 0xcb3a9532f7d9d317},    {"bias integers", 0x98d44317b1eab85f},
    {"bias ramp", 0x47dc90a4491bf932},      {"bias deep", 0xb7bc962fd6ac9a83},
    {"bias loud", 0x565507dd56d37e7c},      {"sink normal", 0x336065fec44e70a9},
    {"sink dominant", 0xde12d74a176ca098},  {"sink negligible", 0xfbc1464fcebf0981},
    {"slopes and d_lse", 0xf8cf5a951b5a2c}, {"hidden 1", 0x3db1fdff5553eca0},
    {"hidden 2", 0xca90c59b36f1117},        {"hidden 3", 0x16d815b31563b511},
    {"hidden 4", 0x76595d32f24b01d2},       {"hidden 5", 0x3f5b2a9d424718a},
    {"hidden 6", 0x675d328eafc86c03},       {"hidden 7", 0xb0b55630d5c191b0},
    {"hidden 8", 0x4fba283238ef0c6f},       {"hidden 9", 0xfbca3b8b863f1c44},
};

std::uint64_t digest_of(std::initializer_list<const Values*> tensors) {
  Inputs inputs;
  Values* const members[] = {&inputs.q, &inputs.k, &inputs.v, &inputs.d_o};
  std::size_t next = 0;
  for (const Values* values : tensors) {
    *members[next] = *values;
    // One pattern for all NaNs, whose bits are no promise.
    for (double& x : members[next]->data) x = std::isnan(x) ? 12345.0 : x;
    ++next;
  }
  return digest(inputs);
}

TEST(GenerateTest, BitsBesideAreThoseOfTheFirstReleaseThatHasThem) {
  std::vector<std::pair<std::string, std::uint64_t>> digests;
  for (const std::string& kind : bias_kinds()) {
    Case c = full_case(DType::bf16);
    c.extras.bias = kind;
    const Inputs in = generate(c);
    digests.emplace_back("bias " + kind, digest_of({&in.bias}));
  }
  for (const std::string& kind : sink_kinds()) {
    Case c = full_case();
    c.extras.sink = kind;
    const Inputs in = generate(c);
    digests.emplace_back("sink " + kind, digest_of({&in.sink}));
  }
  const Inputs all = generate(full_case());
  digests.emplace_back("slopes and d_lse", digest_of({&all.slopes, &all.d_lse}));
  for (int hidden = static_cast<int>(Hidden::huge); hidden <= static_cast<int>(Hidden::large);
       ++hidden) {
    Case c = full_case(Hidden{hidden} == Hidden::large ? DType::f16 : DType::f32);
    c.hidden = static_cast<Hidden>(hidden);
    c.problem.mask = Mask::causal(Anchor::top_left, 3);
    c.problem.key_lens = {50, 41};
    c.problem.query_lens = {11, 30};
    const Inputs in = generate(c);
    digests.emplace_back(fmt::format("hidden {}", hidden),
                         digest_of({&in.q, &in.k, &in.v, &in.d_o}));
  }
  std::string text;
  for (const auto& [what, value] : digests)
    text += fmt::format("    {{\"{}\", {:#x}}},\n", what, value);
  ASSERT_EQ(digests.size(), std::size(kGoldenBeside)) << text;
  for (std::size_t i = 0; i < digests.size(); ++i) {
    EXPECT_EQ(digests[i].first, kGoldenBeside[i].what);
    EXPECT_EQ(digests[i].second, kGoldenBeside[i].digest) << digests[i].first;
  }
  if (HasFailure()) std::puts(text.c_str());
}

}  // namespace
}  // namespace attest
