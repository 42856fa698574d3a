// The gradients of the exact reference against central differences of its own forward pass:
//   dF/dx = (F(x + step) - F(x - step)) / (2 step),  F = sum dO * O
// for every element x of Q, K and V. In 100 digits a step of 1e-33 leaves about 1e-66 for either
// error: the formula's is F''' step^2 / 6, that of rounding 1e-100 F / step. The forward pass is in
// turn held by closed forms (exact_test), so that the gradient has nothing left to be wrong in.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>

#include "reference/exact.h"
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
  return sum;
}

// The worst disagreement of `gradient` with the differences of the loss by the elements of
// `tensor`, a part of `in`.
T disagreement(const Problem& problem, Inputs<T>& in, Tensor<T>& tensor,
               const Tensor<T>& gradient) {
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

// The worst over dQ, dK and dV.
T worst_disagreement(const Problem& problem, const attest::Inputs& inputs) {
  Inputs<T> in = inputs_as<T>(inputs);
  const Gradients<T> gradients = backward(problem, in);
  return std::max({disagreement(problem, in, in.q, gradients.dq),
                   disagreement(problem, in, in.k, gradients.dk),
                   disagreement(problem, in, in.v, gradients.dv)});
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
  return all;
}

class ExactGradientTest : public testing::TestWithParam<Named> {};

TEST_P(ExactGradientTest, AgreesWithCentralDifferences) {
  const Problem& problem = GetParam().problem;
  int state = 1;
  const auto values = [&](const Shape& shape) {
    Values filled = zeros(shape);
    for (double& value : filled.data) value = 0.0625 * ((state = state * 75 % 65537) % 65 - 32);
    return filled;
  };
  const attest::Inputs inputs = {.q = values(problem.q_shape()),
                                 .k = values(problem.k_shape()),
                                 .v = values(problem.v_shape()),
                                 .d_o = values(problem.o_shape())};
  const T worst = worst_disagreement(problem, inputs);
  EXPECT_LT(worst, kAgreement);
  RecordProperty("worst", worst.str(3));
}

INSTANTIATE_TEST_SUITE_P(Problems, ExactGradientTest, testing::ValuesIn(named_problems()),
                         [](const auto& test) { return test.param.name; });

RC_GTEST_PROP(ExactGradientPropertyTest, AgreesWithCentralDifferences,
              (const RandomProblem<3>& random)) {
  RC_ASSERT(worst_disagreement(random.problem, random.inputs) < kAgreement);
}

// Exactly: not small, but 0.
RC_GTEST_PROP(ExactGradientPropertyTest, IsZeroForKeysNobodySeesAndForQueriesThatSeeNone,
              (const RandomProblem<5>& random)) {
  const Problem& problem = random.problem;
  const Gradients<double> gradients = backward(problem, inputs_as<double>(random.inputs));
  for (std::size_t n = 0; n < gradients.dq.data.size(); ++n) {
    const auto [b, h, i, c] = coordinates(gradients.dq.shape, static_cast<Index>(n));
    if (!sees_a_key(problem, b, h, i)) RC_ASSERT(gradients.dq.data[n] == 0);
  }
  for (const Tensor<double>* tensor : {&gradients.dk, &gradients.dv}) {
    for (std::size_t n = 0; n < tensor->data.size(); ++n) {
      const auto [b, g, j, c] = coordinates(tensor->shape, static_cast<Index>(n));
      if (!is_seen(problem, b, g, j)) RC_ASSERT(tensor->data[n] == 0);
    }
  }
}

}  // namespace
}  // namespace attest::exact
