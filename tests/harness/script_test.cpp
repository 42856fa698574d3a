// What a script says; that it runs, tests/python/script_test.py shows.
#include "harness/script/script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace attest {
namespace {

using testing::HasSubstr;
using testing::Not;

class ScriptTest : public testing::Test {
 protected:
  ScriptTest() {
    case_.data = "counted";
    case_.problem = {.dtype = DType::bf16,
                     .batch = 2,
                     .query_heads = 4,
                     .key_heads = 2,
                     .query_len = 3,
                     .key_len = 5,
                     .head_dim = 8,
                     .value_dim = 8,
                     .scale = 0.5,
                     .backward = true};
    miss(TensorName::dq);
    testee_.name = testee_.kernel = "torch_cudnn_cuda";
  }

  void miss(TensorName tensor) {
    verdict_.tensors = {
        {tensor, {.max_ratio = 3, .worst = {0, 1, 2, 0}, .actual = 4, .exact = 1, .bound = 1}}};
  }
  std::string torch() const { return script_of(ScriptLanguage::torch, case_, verdict_, testee_); }
  std::string unsayable(ScriptLanguage language) const {
    return unsayable_in(language, case_, verdict_, testee_);
  }

  Case case_;
  Verdict verdict_;
  Testee testee_;
};

TEST_F(ScriptTest, TorchIsGivenTensorsAsTheyLie) {
  case_.problem.layouts.d_o = Layout::parse("bhsd expand=bs");
  case_.problem.layouts.q = Layout::parse("sbhd");
  case_.problem.layouts.k = Layout::parse("bshd gap=3");
  EXPECT_EQ(unsayable(ScriptLanguage::torch), "");
  EXPECT_THAT(torch(), HasSubstr("d_o = d_o[:1, :, :1, :].expand(2, 4, 3, 8)"));
  EXPECT_THAT(torch(), HasSubstr("q = q.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3)"));
  EXPECT_THAT(torch(), HasSubstr("k = F.pad(k.permute(0, 2, 1, 3), (0, 3))[..., :8]"
                                 ".permute(0, 2, 1, 3)"));
  EXPECT_THAT(unsayable(ScriptLanguage::jax), HasSubstr("lie otherwise"));
  case_.problem.layouts.dq = Layout::parse("bshd");
  EXPECT_THAT(unsayable(ScriptLanguage::torch), HasSubstr("lie otherwise"))
      << "its gradients lie as torch likes";
}

TEST_F(ScriptTest, TorchIsAskedForTheBackEndAndTheDeviceOfTheName) {
  EXPECT_THAT(torch(), HasSubstr("with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):"));
  EXPECT_THAT(torch(), HasSubstr("torch.set_default_device(\"cuda\")"));
  EXPECT_THAT(torch(), HasSubstr("enable_gqa=True"));
  EXPECT_THAT(torch(), HasSubstr("actual = q.grad[0, 1, 2, 0].item()"));
  testee_.kernel = "torch_math_cpu";
  EXPECT_THAT(torch(), HasSubstr("with sdpa_kernel(SDPBackend.MATH):"));
  EXPECT_THAT(torch(), HasSubstr("torch.set_default_device(\"cpu\")"));
}

TEST_F(ScriptTest, CausalAtTheTopLeftIsTheFlagAndAtTheOtherCornerATable) {
  case_.problem.mask = Mask::causal(Anchor::top_left);
  EXPECT_THAT(torch(), HasSubstr("is_causal=True"));
  case_.problem.mask = Mask::causal(Anchor::bottom_right);
  EXPECT_THAT(torch(), HasSubstr("mask = (j - i <= 2)[None, None]"));
  EXPECT_THAT(torch(), Not(HasSubstr("is_causal")));
}

TEST_F(ScriptTest, JaxIsToldOfBandsAndLengthsByArgumentsOfTheirOwn) {
  const auto jax = [&] { return script_of(ScriptLanguage::jax, case_, verdict_, testee_); };
  case_.problem.mask = Mask::causal(Anchor::top_left);
  EXPECT_THAT(jax(), HasSubstr("is_causal=True"));
  case_.problem.mask = Mask::window(kUnbounded, 1, Anchor::top_left);
  case_.problem.key_lens = {2, 5};
  EXPECT_THAT(jax(),
              HasSubstr("local_window_size=(5, 1), key_value_seq_lengths=jnp.array([2, 5])"));
  EXPECT_THAT(jax(), Not(HasSubstr("mask")));
  case_.problem.mask = Mask::causal(Anchor::bottom_right);
  EXPECT_THAT(jax(), HasSubstr("mask=mask"));
}

TEST_F(ScriptTest, LseIsShownWhereNothingElseIsWrongAndNotWhereItIsNotReturned) {
  miss(TensorName::lse);
  EXPECT_THAT(unsayable(ScriptLanguage::torch), HasSubstr("no number is wrong"));
  EXPECT_EQ(unsayable(ScriptLanguage::numpy), "");
  const double infinity = std::numeric_limits<double>::infinity();
  verdict_.tensors[TensorName::lse] = {
      .worst = {0, 0, 0, 0}, .actual = -infinity, .exact = -infinity};
  EXPECT_FALSE(shows_in(ScriptLanguage::numpy, verdict_, testee_)) << "it is right";
}

TEST_F(ScriptTest, WhatCannotBeSaidIsNamed) {
  const auto with = [&](const auto& change) {
    const Problem before = case_.problem;
    change(case_.problem);
    const std::string why = unsayable(ScriptLanguage::cpp);
    case_.problem = before;
    return why;
  };
  EXPECT_EQ(with([](Problem&) {}), "");
  EXPECT_EQ(with([](Problem& p) { p.sink = true; }), "sinks");
  EXPECT_EQ(with([](Problem& p) { p.d_lse = true; }), "a gradient with respect to LSE");
  EXPECT_EQ(with([](Problem& p) { p.dropout.mode = Dropout::Mode::given; }), "dropout");
  EXPECT_THAT(with([](Problem& p) { p.bias_shape = Shape{2, 4, 3, 5}; }), HasSubstr("a bias of"));
  case_.problem.softcap = 5;
  EXPECT_EQ(unsayable(ScriptLanguage::cpp), "");
  EXPECT_THAT(unsayable(ScriptLanguage::torch), HasSubstr("softcap"));
}

}  // namespace
}  // namespace attest
