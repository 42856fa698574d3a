// The gradients of the exact reference against central differences of its own forward pass:
//   dF/dx = (F(x + step) - F(x - step)) / (2 step),  F = sum dO * O + sum dLSE * LSE
// for every element x of Q, K, V, bias and sinks. In 100 digits a step of 1e-33 leaves about 1e-66
// for either error: the formula's is F''' step^2 / 6, that of rounding 1e-100 F / step. The forward
// pass is in turn held by closed forms (exact_test) and by the definitions of its features
// (exact_definition_test), so that the gradient has nothing left to be wrong in.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

#include "reference/exact.h"
#include "tests/reference/filled.h"
#include "tests/reference/random_problem.h"

namespace attest::exact {
namespace {

using T = Digits100;

const T kStep("1e-33");
// Of the tensor's largest gradient, or of 1 where a saturated softmax leaves none that large: the
// two errors above, times what the third derivatives of inputs up to 4 come to.
const T kAgreement("1e-58");

T loss(const Problem& problem, const Inputs<T>& in) {
  const Outputs<T> out = forward(problem, in);
  T sum = 0;
  for (std::size_t n = 0; n < out.o.data.size(); ++n) sum += in.d_o.data[n] * out.o.data[n];
  for (std::size_t n = 0; n < in.d_lse.data.size(); ++n) {
    // EMPTY-3: the dLSE of a row that sees nothing counts for nothing.
    if (out.lse.data[n] == -std::numeric_limits<T>::infinity()) continue;
    sum += in.d_lse.data[n] * out.lse.data[n];
  }
  return sum;
}

// The worst disagreement of `gradient` with the differences of the loss by the elements of
// `tensor`, a part of `in`. (A bias of -inf stays what it is, and so has a gradient of 0.)
T disagreement(const Problem& problem, Inputs<T>& in, Tensor<T>& tensor,
               const Tensor<T>& gradient) {
  EXPECT_EQ(tensor.shape, gradient.shape);
  T largest = 1, worst = 0;
  for (const T& g : gradient.data) largest = std::max(largest, T(abs(g)));
  for (std::size_t n = 0; n < tensor.data.size(); ++n) {
    const T x = tensor.data[n];
    tensor.data[n] = x + kStep;
    const T above = loss(problem, in);
    tensor.data[n] = x - kStep;
    const T below = loss(problem, in);
    tensor.data[n] = x;
    worst = std::max(worst, T(abs(T((above - below) / (2 * kStep) - gradient.data[n]))));
  }
  return worst / largest;
}

// The worst over all gradients.
T worst_disagreement(const Problem& problem, const attest::Inputs& inputs) {
  Inputs<T> in = inputs_as<T>(inputs);
  const Gradients<T> gradients = backward(problem, in);
  return std::max({disagreement(problem, in, in.q, gradients.dq),
                   disagreement(problem, in, in.k, gradients.dk),
                   disagreement(problem, in, in.v, gradients.dv),
                   disagreement(problem, in, in.bias, gradients.dbias),
                   disagreement(problem, in, in.sink, gradients.dsink)});
}

struct Named {
  std::string name;
  Problem problem;
};

void PrintTo(const Named& named, std::ostream* out) { *out << to_string(named.problem); }

std::vector<Named> named_problems() {
  const Problem plain = {.query_len = 3, .key_len = 4, .head_dim = 3, .value_dim = 2, .scale = 0.6};
  std::vector<Named> all;
  const auto add = [&](std::string name, auto change) {
    all.push_back({std::move(name), plain});
    change(all.back().problem);
  };
  add("Full", [](Problem&) {});
  add("CausalTopLeft", [](Problem& p) { p.mask = Mask::causal(Anchor::top_left); });
  add("CausalBottomRight", [](Problem& p) { p.mask = Mask::causal(Anchor::bottom_right); });
  add("CausalWithOffset", [](Problem& p) { p.mask = Mask::causal(Anchor::top_left, 1); });
  add("CausalWithEmptyRows", [](Problem& p) {
    p.mask = Mask::causal(Anchor::bottom_right);
    p.query_len = 5;
    p.key_len = 3;
  });
  add("Window", [](Problem& p) { p.mask = Mask::window(1, 1, Anchor::bottom_right, -1); });
  add("Dense", [](Problem& p) {
    p.mask = Mask::dense({{1, 1, 3, 4}, {1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 1}});
  });
  add("Intersection", [](Problem& p) {
    p.mask = Mask::all_of(
        {Mask::causal(Anchor::bottom_right), Mask::dense({{1, 1, 1, 4}, {1, 0, 1, 1}})});
  });
  add("Lengths", [](Problem& p) {
    p.batch = 3;
    p.query_lens = {3, 1, 2};
    p.key_lens = {2, 4, 0};
    p.mask = Mask::causal(Anchor::bottom_right);
  });
  add("GroupsOfHeads", [](Problem& p) {
    p.query_heads = 4;
    p.key_heads = 2;
    p.query_len = 2;
    p.key_len = 3;
  });
  add("OneKeyHead", [](Problem& p) {
    p.query_heads = 3;
    p.query_len = 2;
  });
  add("ValueDimLarger", [](Problem& p) { p.head_dim = 1, p.value_dim = 5; });
  add("NegativeScale", [](Problem& p) { p.scale = -1.25; });
  add("NoHeadDim", [](Problem& p) { p.head_dim = 0; });

  add("Softcap", [](Problem& p) { p.softcap = 1.5; });
  add("SaturatedSoftcap", [](Problem& p) { p.softcap = 0.125; });
  add("Bias", [](Problem& p) { p.bias_shape = p.keep_shape(); });
  add("BiasOfAllQueries", [](Problem& p) {
    p.batch = 2;
    p.bias_shape = Shape{2, 1, 1, 4};
  });
  add("BiasOfAllBatchElementsAndHeads", [](Problem& p) {
    p.batch = p.query_heads = p.key_heads = 2;
    p.bias_shape = Shape{1, 1, 3, 4};
  });
  add("BiasOfAllKeys", [](Problem& p) {
    p.query_heads = 2;
    p.bias_shape = Shape{1, 2, 3, 1};
    p.sink = true;  // without it such a bias cancels
  });
  add("OneBias", [](Problem& p) {
    p.bias_shape = Shape{1, 1, 1, 1};
    p.d_lse = true;
  });
  add("Alibi", [](Problem& p) {
    p.query_heads = 2;
    p.slopes_shape = Shape{1, 2, 1, 1};
  });
  add("AlibiWithinLengths", [](Problem& p) {
    p.batch = 2;
    p.query_lens = {3, 2};
    p.key_lens = {1, 4};
    p.slopes_shape = Shape{2, 1, 1, 1};
  });
  add("Sink", [](Problem& p) {
    p.batch = p.query_heads = 2;
    p.sink = true;
  });
  add("SinkWithRowsThatSeeNoKey", [](Problem& p) {
    p.query_len = 5;
    p.key_len = 3;
    p.query_lens = {4};
    p.mask = Mask::causal(Anchor::top_left, -2);
    p.sink = p.d_lse = true;
  });
  add("LossThroughLse", [](Problem& p) { p.d_lse = true; });
  add("Dropout", [](Problem& p) {
    p.query_heads = 2;
    p.dropout = {.mode = Dropout::Mode::given, .probability = 0.3};
  });
  add("Prefix", [](Problem& p) {
    p.mask = Mask::any_of({Mask::prefix({2}), Mask::causal(Anchor::top_left)});
  });
  add("Segments", [](Problem& p) {
    p.mask = Mask::documents({{1, 3, {0, 7, 0}}, {1, 4, {7, 0, -1, 0}}});
  });
  add("BlockSparse", [](Problem& p) {
    p.mask = Mask::block_sparse(2, 3, {{1, 1, 2, 2}, {1, 0, 1, 1}});
  });
  add("Dilated", [](Problem& p) { p.mask = Mask::dilated(2, Anchor::bottom_right); });
  add("Packed", [](Problem& p) {
    p.batch = 4;
    p.packed = true;
    p.query_lens = {0, 3, 2, 1};
    p.key_lens = {1, 2, 4, 0};
    p.mask = Mask::causal(Anchor::bottom_right);
  });
  add("Everything", [](Problem& p) {
    p.batch = 4;
    p.query_heads = 2;
    p.packed = true;
    p.query_lens = {0, 3, 2, 0};
    p.key_lens = {1, 3, 4, 0};
    p.mask = Mask::any_of({Mask::causal(Anchor::bottom_right), Mask::dilated(2, Anchor::top_left)});
    p.softcap = 2;
    p.bias_shape = Shape{1, 2, 1, 4};
    p.slopes_shape = Shape{4, 2, 1, 1};
    p.sink = p.d_lse = true;
    p.dropout = {.mode = Dropout::Mode::given, .probability = 0.25};
  });
  for (Named& named : all) named.problem.backward = true;
  return all;
}

class ExactGradientTest : public testing::TestWithParam<Named> {};

TEST_P(ExactGradientTest, AgreesWithCentralDifferences) {
  const Problem& problem = GetParam().problem;
  const attest::Inputs inputs = scattered_inputs(problem, 0.0625, 0.5);
  const T worst = worst_disagreement(problem, inputs);
  EXPECT_LT(worst, kAgreement);
  RecordProperty("worst", worst.str(3));
}

INSTANTIATE_TEST_SUITE_P(Problems, ExactGradientTest, testing::ValuesIn(named_problems()),
                         [](const auto& test) { return test.param.name; });

// As above, but along one direction that moves all elements of all tensors at once, none like the
// other: an error in any of them shows, and larger problems can be afforded.
T disagreement_along_a_direction(const Problem& problem, const attest::Inputs& inputs) {
  const Inputs<T> in = inputs_as<T>(inputs);
  const Gradients<T> gradients = backward(problem, in);
  Inputs<T> above = in, below = in;
  T slope = 0, largest = 1;
  int state = 1;
  const auto move = [&](Tensor<T>& up, Tensor<T>& down, const Tensor<T>& gradient) {
    for (std::size_t n = 0; n < gradient.data.size(); ++n) {
      const T direction = T((state = state * 75 % 65537) - 32768) / 32768;
      up.data[n] += direction * kStep;
      down.data[n] -= direction * kStep;
      slope += direction * gradient.data[n];
      largest = std::max(largest, T(abs(gradient.data[n])));
    }
  };
  move(above.q, below.q, gradients.dq);
  move(above.k, below.k, gradients.dk);
  move(above.v, below.v, gradients.dv);
  move(above.bias, below.bias, gradients.dbias);
  move(above.sink, below.sink, gradients.dsink);
  const T difference = (loss(problem, above) - loss(problem, below)) / (2 * kStep);
  return abs(T(difference - slope)) / largest;
}

RC_GTEST_PROP(ExactGradientPropertyTest, AgreesWithCentralDifferences,
              (const RandomProblem<5, kTraining>& random)) {
  RC_ASSERT(disagreement_along_a_direction(random.problem, random.inputs) < kAgreement);
}

// Exactly: not small, but 0.
RC_GTEST_PROP(ExactGradientPropertyTest, IsZeroForKeysNobodySeesAndForQueriesThatSeeNone,
              (const RandomProblem<5, kTraining>& random)) {
  const Problem& problem = random.problem;
  const Gradients<double> gradients = backward(problem, inputs_as<double>(random.inputs));
  const auto is_zero_but_in = [](const Tensor<double>& tensor, const std::vector<bool>& rows) {
    const auto channels = static_cast<std::size_t>(tensor.shape[kChannel]);
    for (std::size_t n = 0; n < tensor.data.size(); ++n) {
      RC_ASSERT(rows[n / channels] || tensor.data[n] == 0);
    }
  };
  is_zero_but_in(gradients.dq, rows_that_see(problem, random.inputs));
  is_zero_but_in(gradients.dk, keys_that_are_seen(problem, random.inputs));
  is_zero_but_in(gradients.dv, keys_that_are_seen(problem, random.inputs));
}

}  // namespace
}  // namespace attest::exact
