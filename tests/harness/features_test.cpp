// Every kind of problem, from a case through wire, arena and plug-in host to a kernel and back to a
// verdict: a kernel that does what it is told passes, one that overlooks a single thing fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "harness/process/in_process.h"
#include "harness/run/examine.h"
#include "tests/harness/mock_plugin.h"
#include "tests/harness/on_a_mock.h"
#include "tests/harness/plain_kernel.h"

namespace attest {
namespace {

using testing::NiceMock;

// What a kernel may get wrong: it changes what it was told, before it computes.
using Fault = std::function<void(attest_problem&, attest_inputs&, std::vector<attest_mask>&)>;

struct Feature {
  const char* name;
  Problem problem;
  std::set<TensorName> tensors;  // that are judged
  Fault fault;
};

const std::set<TensorName> kForward = {TensorName::o, TensorName::lse};
const std::set<TensorName> kBackward = {TensorName::o, TensorName::lse, TensorName::dq,
                                        TensorName::dk, TensorName::dv};

std::set<TensorName> with(std::set<TensorName> names, TensorName more) {
  names.insert(more);
  return names;
}

DenseMask table(const Shape& shape) {
  DenseMask mask = {.shape = shape, .allowed = {}};
  for (Index i = 0; i < element_count(shape); ++i) mask.allowed.push_back(i % 3 != 1);
  return mask;
}

SegmentNumbers segments(Index batches, Index length) {
  SegmentNumbers numbers = {.batches = batches, .length = length};
  for (Index i = 0; i < batches * length; ++i) {
    numbers.number.push_back(static_cast<std::int32_t>(i % 4) - 1);
  }
  return numbers;
}

Problem problem(bool backward, const Mask& mask = Mask::full()) {
  return {.dtype = DType::f32,
          .batch = 2,
          .query_heads = 4,
          .key_heads = 2,
          .query_len = 7,
          .key_len = 11,
          .head_dim = 5,
          .value_dim = 3,
          .scale = 0.5,
          .mask = mask,
          .backward = backward};
}

Problem changed(Problem p, const std::function<void(Problem&)>& change) {
  change(p);
  return p;
}

// Swaps two batch elements of a list or table of the problem.
void swap_batches(attest_tensor& t) {
  const std::size_t bytes = t.dtype == ATTEST_I64 ? 8 : t.dtype == ATTEST_I32 ? 4 : 1;
  t.data = static_cast<std::byte*>(t.data) + static_cast<std::size_t>(t.stride[0]) * bytes;
  t.stride[0] = -t.stride[0];
}

std::vector<Feature> features() {
  const auto root = [](std::vector<attest_mask>& nodes) -> attest_mask& { return nodes.back(); };
  return {
      {"softcap", changed(problem(true), [](Problem& p) { p.softcap = 1; }), kBackward,
       [](auto& p, auto&, auto&) { p.softcap = 0; }},
      {"bias",
       changed(problem(true),
               [](Problem& p) {
                 p.bias_shape = Shape{2, 4, 7, 11};
               }),
       with(kBackward, TensorName::dbias), [](auto&, auto& in, auto&) { in.bias = in.k; }},
      {"bias_broadcast",
       changed(problem(true),
               [](Problem& p) {
                 p.bias_shape = Shape{1, 4, 1, 11};
               }),
       with(kBackward, TensorName::dbias),
       [](auto&, auto& in, auto&) {
         in.bias.shape[1] = 1;  // the first head's for all
       }},
      {"bias_in_another_order",
       changed(problem(false),
               [](Problem& p) {
                 p.bias_shape = Shape{2, 4, 7, 11};
                 p.layouts.bias = Layout::parse("bshd gap=2");
               }),
       kForward, [](auto&, auto& in, auto&) { std::swap(in.bias.stride[0], in.bias.stride[1]); }},
      {"alibi",
       changed(problem(true),
               [](Problem& p) {
                 p.slopes_shape = Shape{1, 4, 1, 1};
               }),
       kBackward, [](auto& p, auto&, auto&) { p.has_alibi = 0; }},
      {"alibi_of_each_batch_element",
       changed(problem(false),
               [](Problem& p) {
                 p.slopes_shape = Shape{2, 4, 1, 1};
               }),
       kForward, [](auto& p, auto&, auto&) { p.has_alibi = 0; }},
      {"sink", changed(problem(true), [](Problem& p) { p.sink = true; }),
       with(kBackward, TensorName::dsink), [](auto& p, auto&, auto&) { p.has_sink = 0; }},
      {"dlse", changed(problem(true), [](Problem& p) { p.d_lse = true; }), kBackward,
       [](auto& p, auto&, auto&) { p.has_dlse = 0; }},
      {"dropout_given",
       changed(problem(true),
               [](Problem& p) {
                 p.dropout = {.mode = Dropout::Mode::given, .probability = 0.25, .seed = 7};
               }),
       kBackward, [](auto& p, auto&, auto&) { p.dropout = ATTEST_DROPOUT_NONE; }},
      {"dropout_generated",
       changed(problem(true),
               [](Problem& p) {
                 p.dropout = {.mode = Dropout::Mode::generated,
                              .probability = 0.25,
                              .seed = 0xfedcba9876543210u};
               }),
       kBackward, [](auto& p, auto&, auto&) { p.dropout_offset += 1; }},
      {"packed",
       changed(problem(true, Mask::causal(Anchor::bottom_right)),
               [](Problem& p) {
                 p.batch = 3;
                 p.packed = true;
                 p.query_lens = {7, 0, 4};
                 p.key_lens = {5, 3, 11};
               }),
       kBackward,
       [](auto& p, auto&, auto&) {
         // The second element's start for that of the third.
         p.cu_query_lens.data = static_cast<std::int64_t*>(p.cu_query_lens.data) + 1;
         p.batch = 2;
       }},
      {"paged",
       changed(problem(false),
               [](Problem& p) {
                 p.key_lens = {11, 6};
                 p.paging = {.page_size = 4, .pages = 6, .table = {{5, 0, 3}, {0, 2}}};
               }),
       kForward, [](auto& p, auto&, auto&) { swap_batches(p.page_table); }},
      {"packed_queries_of_paged_keys",
       changed(problem(false),
               [](Problem& p) {
                 p.packed = true;
                 p.query_lens = {3, 7};
                 p.key_lens = {11, 6};
                 p.paging = {.page_size = 4, .pages = 6, .table = {{5, 0, 3}, {0, 2}}};
               }),
       kForward, [](auto& p, auto&, auto&) { p.key_lens.data = nullptr; }},
      {"lengths",
       changed(problem(true),
               [](Problem& p) {
                 p.query_lens = {3, 7};
                 p.key_lens = {11, 6};
               }),
       kBackward, [](auto& p, auto&, auto&) { swap_batches(p.key_lens); }},
      {"prefix", problem(true, Mask::prefix({3, 9})), kBackward,
       [=](auto&, auto&, auto& nodes) { swap_batches(root(nodes).table); }},
      {"segments",
       problem(true, Mask::documents({.query = segments(1, 7), .key = segments(2, 11)})), kBackward,
       [=](auto&, auto&, auto& nodes) { std::swap(root(nodes).table, root(nodes).table2); }},
      {"block_sparse", problem(true, Mask::block_sparse(3, 4, table({1, 4, 3, 3}))), kBackward,
       [=](auto&, auto&, auto& nodes) { root(nodes).block_key = 6; }},
      {"dilated", problem(true, Mask::dilated(3, Anchor::bottom_right, 1)), kBackward,
       [=](auto&, auto&, auto& nodes) { root(nodes).anchored_bottom_right = 0; }},
      {"union_of_many",
       problem(true, Mask::any_of({Mask::prefix({2}), Mask::causal(Anchor::top_left),
                                   Mask::dense(table({2, 1, 7, 11}))})),
       kBackward, [=](auto&, auto&, auto& nodes) { root(nodes).kind = ATTEST_MASK_ALL_OF; }},
      {"union_of_nothing",
       problem(true, Mask::all_of({Mask::causal(Anchor::top_left, 3), Mask::all_of({}),
                                   Mask::any_of({Mask::any_of({}), Mask::prefix({7, 4})})})),
       kBackward, [=](auto&, auto&, auto& nodes) { root(nodes).kind = ATTEST_MASK_ANY_OF; }},
  };
}

class FeatureTest : public testing::TestWithParam<Feature>, protected OnAMock {
 protected:
  FeatureTest()
      : OnAMock(known_features(),
                std::string("test/features/") + GetParam().name + "/dtype=f32/s=1", {"MASK-1"},
                GetParam().problem) {}
};

TEST_P(FeatureTest, KernelThatKnowsItPassesWithEveryTensorJudged) {
  ASSERT_FALSE(defect_of(GetParam().problem)) << defect_of(GetParam().problem)->what;
  ON_CALL(mock_, forward).WillByDefault(plain::forward);
  ON_CALL(mock_, backward).WillByDefault(plain::backward);
  const Verdict v = verdict();
  EXPECT_EQ(v.outcome, Outcome::pass) << v.reason << ": " << v.message;
  std::set<TensorName> judged;
  for (const auto& [tensor, evidence] : v.tensors) judged.insert(tensor);
  EXPECT_EQ(judged, GetParam().tensors);
}

TEST_P(FeatureTest, KernelThatMistakesItFails) {
  const auto mistaken = [](auto call, bool in_this_pass) {
    return [=](const attest_problem& p, const attest_inputs& in, const attest_outputs& out,
               const attest_context& context) {
      attest_problem problem = p;
      attest_inputs inputs = in;
      std::vector<attest_mask> nodes(p.mask, p.mask + p.mask_count);
      if (in_this_pass) GetParam().fault(problem, inputs, nodes);
      problem.mask = nodes.data();
      return call(problem, inputs, out, context);
    };
  };
  // Drawing other bits is a fault in one of the passes only.
  const bool both = GetParam().problem.dropout.mode != Dropout::Mode::generated;
  ON_CALL(mock_, forward).WillByDefault(mistaken(plain::forward, both));
  ON_CALL(mock_, backward).WillByDefault(mistaken(plain::backward, true));
  const Verdict v = verdict();
  EXPECT_EQ(v.outcome, Outcome::fail) << v.message;
}

class OrderTest : public FeatureTest {};

TEST_P(OrderTest, IsThatOfTheProblemsLayout) {
  EXPECT_CALL(mock_, forward).WillRepeatedly([](auto& p, auto& in, auto& out, auto& context) {
    const Layout& layout = GetParam().problem.layouts.bias;
    const Shape shape = *GetParam().problem.bias_shape;
    EXPECT_THAT(in.bias.stride, testing::ElementsAreArray(layout.strides(shape)));
    return plain::forward(p, in, out, context);
  });
  verdict();
}

// The backward pass of generated dropout need not draw again.
TEST(DrawnMaskTest, IsHandedToTheBackwardPass) {
  NiceMock<MockPlugin> mock;
  InProcessExecutor executor(mock.plugin());
  Case test_case;
  test_case.id = "test/features/drawn/s=1";
  test_case.clauses = {"DROP-3"};
  test_case.data = "normal";
  test_case.problem = problem(true);
  test_case.problem.dropout = {.mode = Dropout::Mode::generated, .probability = 0.25, .seed = 3};
  Description description;
  description.dtypes = {DType::f32};
  description.features = known_features();
  std::vector<bool> drawn;
  const auto bits = [](const attest_tensor& t) {
    std::vector<bool> all;
    for (std::int64_t b = 0; b < t.shape[0]; ++b) {
      for (std::int64_t h = 0; h < t.shape[1]; ++h) {
        for (std::int64_t i = 0; i < t.shape[2]; ++i) {
          for (std::int64_t j = 0; j < t.shape[3]; ++j) all.push_back(plain::bit(t, b, h, i, j));
        }
      }
    }
    return all;
  };
  ON_CALL(mock, forward).WillByDefault([&](auto& p, auto& in, auto& out, auto& context) {
    EXPECT_EQ(in.keep.data, nullptr);
    plain::forward(p, in, out, context);
    drawn = bits(out.keep);
    return ATTEST_OK;
  });
  EXPECT_CALL(mock, backward).Times(2).WillRepeatedly([&](auto& p, auto& in, auto& out, auto& c) {
    EXPECT_EQ(out.keep.data, nullptr);
    EXPECT_EQ(bits(in.keep), drawn);
    return plain::backward(p, in, out, c);
  });
  PreparedCase prepared(test_case, 1);
  EXPECT_EQ(examine(prepared, description, "mock", executor, 1).verdict.outcome, Outcome::pass);
}

std::vector<Feature> with_a_layout() {
  std::vector<Feature> found = features();
  std::erase_if(found, [](const Feature& f) { return f.problem.layouts.bias == Layout(); });
  return found;
}
INSTANTIATE_TEST_SUITE_P(Bias, OrderTest, testing::ValuesIn(with_a_layout()),
                         [](const auto&) { return std::string("Bias"); });

INSTANTIATE_TEST_SUITE_P(All, FeatureTest, testing::ValuesIn(features()), [](const auto& feature) {
  std::string name = feature.param.name;
  std::erase(name, '_');
  return name;
});

}  // namespace
}  // namespace attest
