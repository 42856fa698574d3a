#include "harness/judge/alone.h"

#include <gtest/gtest.h>

#include <bit>
#include <map>

#include "cases/generate.h"
#include "reference/working.h"

namespace attest {
namespace {

DenseMask table_with_gaps(const Shape& shape) {
  DenseMask mask = {.shape = shape, .allowed = {}};
  for (Index i = 0; i < element_count(shape); ++i) mask.allowed.push_back(i % 7 != 1);
  return mask;
}

SegmentNumbers segments_of_three(Index batches, Index length) {
  SegmentNumbers numbers = {.batches = batches, .length = length};
  for (Index i = 0; i < batches * length; ++i) {
    numbers.number.push_back(static_cast<std::int32_t>(i % 3));
  }
  return numbers;
}

// A problem with everything that has a batch axis.
Problem everything() {
  Problem p = {.dtype = DType::f32,
               .batch = 3,
               .query_heads = 4,
               .key_heads = 2,
               .query_len = 7,
               .key_len = 9,
               .head_dim = 5,
               .value_dim = 3,
               .scale = 0.5,
               .softcap = 3};
  p.mask = Mask::all_of(
      {Mask::any_of(
           {Mask::documents({.query = segments_of_three(3, 7), .key = segments_of_three(1, 9)}),
            Mask::prefix({3, 1, 9})}),
       Mask::block_sparse(2, 4, table_with_gaps({3, 4, 4, 3})),
       Mask::dense(table_with_gaps({3, 1, 7, 1})), Mask::causal(Anchor::bottom_right, 2)});
  p.bias_shape = Shape{3, 1, 7, 9};
  p.slopes_shape = Shape{3, 4, 1, 1};
  p.sink = true;
  p.dropout = {.mode = Dropout::Mode::given, .probability = 0.25, .seed = 5};
  p.backward = p.d_lse = true;
  return p;
}

Problem with_lengths(Problem p) {
  p.query_lens = {4, 7, 2};
  p.key_lens = {9, 3, 5};
  return p;
}

Problem packed() {
  Problem p = with_lengths(everything());
  p.packed = true;
  return p;
}

Problem paged(bool packed) {
  Problem p = with_lengths(everything());
  p.packed = packed;
  p.backward = p.d_lse = false;
  p.paging = {.page_size = 4, .pages = 8, .table = {{7, 0, 3}, {2}, {1, 4}}};
  return p;
}

// Q, K and V in 8 bits, with scales along all axes but one.
Problem stored(Problem p) {
  p.backward = p.d_lse = false;
  p.stored = {.q = Stored{.by_head = true, .by_position = true},
              .k = Stored{.by_batch = true, .by_position = true},
              .v = Stored{.dtype = DType::e5m2, .by_batch = true, .by_head = true}};
  return p;
}

using ExpectedByName = std::map<TensorName, std::pair<Expected, Shape>>;

ExpectedByName expected(const Problem& p, const Inputs& in) {
  const Arithmetic arithmetic = loosest(p.dtype);
  const ForwardExpected forward = expect_forward(p, in, arithmetic);
  ExpectedByName all = {{TensorName::o, {forward.o, p.o_shape()}},
                        {TensorName::lse, {forward.lse, p.lse_shape()}}};
  if (!p.backward) return all;
  const BackwardExpected backward = expect_backward(p, in, arithmetic);
  all[TensorName::dq] = {backward.dq, p.q_shape()};
  all[TensorName::dk] = {backward.dk, p.k_shape()};
  all[TensorName::dv] = {backward.dv, p.v_shape()};
  all[TensorName::dbias] = {backward.dbias, *p.bias_shape};
  all[TensorName::dsink] = {backward.dsink, p.sink_shape()};
  return all;
}

class AloneTest : public testing::TestWithParam<Problem> {};

// The reference computes every batch element for itself, so that its share of the whole and what it
// is alone are the same bits.
TEST_P(AloneTest, ElementIsWhatItIsInItsBatch) {
  Case test_case;
  test_case.id = "test/alone/s=1";
  test_case.data = "normal";
  test_case.problem = GetParam();
  const Problem& p = test_case.problem;
  ASSERT_FALSE(defect_of(p)) << defect_of(p)->what;
  const Inputs inputs = generate(test_case);
  const auto whole = expected(p, inputs);
  for (Index b = 0; b < p.batch; ++b) {
    const Alone one = alone(p, inputs, b);
    ASSERT_FALSE(defect_of(one.problem)) << defect_of(one.problem)->what;
    EXPECT_EQ(one.problem.batch, 1);
    for (const auto& [how, meant, scales] :
         {std::tuple{one.problem.stored.q, &one.inputs.q, &one.inputs.q_scale},
          std::tuple{one.problem.stored.k, &one.inputs.k, &one.inputs.k_scale},
          std::tuple{one.problem.stored.v, &one.inputs.v, &one.inputs.v_scale}}) {
      if (!how) continue;
      ASSERT_EQ(scales->shape, how->scale_shape(meant->shape));
      for (const double number : unscaled(*meant, *scales).data) {
        ASSERT_EQ(number, round_to(how->dtype, number)) << "by the scales of another element";
      }
    }
    for (const auto& [tensor, own] : expected(one.problem, one.inputs)) {
      const auto& [values, shape] = whole.at(tensor);
      Returned returned = {
          .name = tensor, .dtype = DType::f64, .shape = shape, .bits = {}, .poison = 0};
      for (const double value : values.value) {
        returned.bits.push_back(std::bit_cast<std::uint64_t>(value));
      }
      const auto share = share_of(p, returned, b);
      if (tensor == TensorName::dsink) {
        EXPECT_FALSE(share);
        continue;
      }
      ASSERT_TRUE(share) << name(tensor);
      EXPECT_EQ(share->shape, own.second) << name(tensor);
      for (std::size_t i = 0; i < own.first.value.size(); ++i) {
        EXPECT_EQ(share->bits[i], std::bit_cast<std::uint64_t>(own.first.value[i]))
            << name(tensor) << " " << i << " of batch element " << b;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AloneTest,
                         testing::Values(everything(), with_lengths(everything()), packed(),
                                         paged(false), paged(true), stored(everything()),
                                         stored(packed()), stored(paged(true))),
                         [](const auto& problem) { return std::to_string(problem.index); });

TEST(ShareTest, BiasThatTheBatchSharesHasNoShare) {
  Problem p = everything();
  p.bias_shape = Shape{1, 4, 7, 9};
  const Returned whole = {.name = TensorName::dbias,
                          .dtype = DType::f32,
                          .shape = *p.bias_shape,
                          .bits = std::vector<std::uint64_t>(4 * 7 * 9),
                          .poison = 0};
  EXPECT_FALSE(share_of(p, whole, 0));
}

}  // namespace
}  // namespace attest
