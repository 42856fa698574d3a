// The rules of other projects, each just inside and just outside of what it allows, and what is
// made of them.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "cases/generate.h"
#include "harness/criteria/compare.h"
#include "harness/criteria/eager.h"
#include "harness/criteria/inputs.h"
#include "harness/criteria/report.h"
#include "harness/criteria/rules.h"
#include "harness/process/in_process.h"
#include "reference/working.h"
#include "spec/description.h"
#include "spec/json_text.h"
#include "tests/harness/mock_plugin.h"
#include "tests/harness/plain_kernel.h"

namespace attest::criteria {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::NiceMock;
using testing::Not;
using Numbers = std::vector<double>;

constexpr DType f32 = DType::f32, f16 = DType::f16, bf16 = DType::bf16;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

const Rule& rule_of(std::string_view name) {
  for (const Rule& rule : rules()) {
    if (rule.name == name) return rule;
  }
  throw std::logic_error(std::string(name));
}

struct Given {
  TensorName tensor = TensorName::o;
  DType dtype = bf16;
  Numbers actual = {}, exact = {};
  Numbers eager = {};  // if it is empty: exact
  bool softcap = false, bias = false;
  Index head_dim = 64;
};

Ruling ruling(std::string_view rule, const Given& given) {
  return rule_of(rule).judge({.tensor = given.tensor,
                              .dtype = given.dtype,
                              .actual = given.actual,
                              .exact = given.exact,
                              .eager = given.eager.empty() ? given.exact : given.eager,
                              .softcap = given.softcap,
                              .bias = given.bias,
                              .head_dim = given.head_dim});
}

// The number as many elements.
Numbers times(std::size_t count, double value) { return Numbers(count, value); }

// ---- Fixed tolerances ---------------------------------------------------------------------------

struct Fixed {
  const char* rule;
  TensorName tensor;
  DType dtype;
  double absolute, relative;
  Index head_dim = 64;
};

void PrintTo(const Fixed& f, std::ostream* out) {
  *out << f.rule << " " << name(f.tensor) << " " << name(f.dtype);
}

class FixedToleranceTest : public testing::TestWithParam<Fixed> {};

TEST_P(FixedToleranceTest, PassesJustInsideAndFailsJustOutside) {
  const Fixed& f = GetParam();
  for (const double exact : {0.0, 1.0, -0.25, 8.0}) {
    const double limit = f.absolute + f.relative * std::abs(exact);
    for (const double side : {-1.0, 1.0}) {
      Given given = {.tensor = f.tensor,
                     .dtype = f.dtype,
                     .actual = {3.0, exact + side * limit * (1 - 1e-6)},
                     .exact = {3.0, exact},
                     .head_dim = f.head_dim};
      EXPECT_EQ(ruling(f.rule, given), Ruling::passes) << exact;
      given.actual[1] = exact + side * limit * (1 + 1e-6);
      EXPECT_EQ(ruling(f.rule, given), Ruling::fails) << exact;
      given.actual[1] = kInfinity;
      EXPECT_EQ(ruling(f.rule, given), Ruling::fails) << exact;
      given.actual[1] = kNan;
      EXPECT_EQ(ruling(f.rule, given), Ruling::fails) << exact;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    AllFixed, FixedToleranceTest,
    testing::Values(Fixed{"Triton tutorial", TensorName::o, f16, 1e-2, 0},
                    Fixed{"Triton tutorial", TensorName::dk, f16, 1e-2, 0},
                    Fixed{"JAX splash", TensorName::o, f32, 3e-3, 3e-3},
                    Fixed{"JAX splash", TensorName::lse, bf16, 1e-3, 1e-3},
                    Fixed{"JAX splash", TensorName::dq, bf16, 2e-2, 3e-2},
                    Fixed{"JAX splash", TensorName::dsink, f32, 5e-3, 3e-2},
                    Fixed{"flashinfer", TensorName::o, f16, 1e-3, 1e-3},
                    Fixed{"flashinfer", TensorName::o, bf16, 1e-2, 1e-2},
                    Fixed{"flashinfer", TensorName::lse, bf16, 1e-3, 1e-3},
                    Fixed{"xformers", TensorName::o, f32, 3e-4, 2e-5},
                    Fixed{"xformers", TensorName::o, f16, 4e-3, 4e-4},
                    Fixed{"xformers", TensorName::o, bf16, 2e-2, 5e-3},
                    Fixed{"xformers", TensorName::lse, f16, 2e-4, 0},
                    Fixed{"xformers", TensorName::dv, f32, 9e-4, 1e-4},
                    Fixed{"xformers", TensorName::dv, f16, 0.2, 2e-2},
                    Fixed{"xformers", TensorName::dq, bf16, 0.9, 0.1},
                    Fixed{"xformers", TensorName::dbias, f32, 9e-4, 1e-4},
                    Fixed{"cuDNN frontend", TensorName::o, f16, 2e-2, 2e-2},
                    Fixed{"cuDNN frontend", TensorName::lse, bf16, 2e-2, 2e-2},
                    Fixed{"cuDNN frontend", TensorName::dq, bf16, 2e-2, 2e-2},
                    Fixed{"cuDNN frontend", TensorName::dk, bf16, 7e-2, 7e-2},
                    Fixed{"cuDNN frontend", TensorName::dv, f16, 2e-2, 2e-2},
                    Fixed{"cuDNN frontend", TensorName::dbias, bf16, 2e-2, 2e-2},
                    Fixed{"cuDNN frontend", TensorName::dsink, f16, 4e-2, 4e-2},
                    Fixed{"Composable Kernel", TensorName::o, f16, 1e-3, 1e-3},
                    Fixed{"Composable Kernel", TensorName::lse, bf16, 1e-2, 1e-2},
                    Fixed{"Composable Kernel", TensorName::dk, bf16, 1e-2, 1e-2},
                    Fixed{"Composable Kernel", TensorName::dk, bf16, 3.2e-2, 3.2e-2, 256},
                    Fixed{"Composable Kernel", TensorName::dk, f16, 1e-2, 1e-2, 256},
                    Fixed{"ONNX backend", TensorName::o, f32, 1e-7, 1e-3},
                    Fixed{"ONNX Runtime", TensorName::o, f32, 5e-3, 5e-3},
                    Fixed{"ONNX Runtime", TensorName::o, bf16, 1e-2, 5e-2},
                    Fixed{"MLX", TensorName::o, f32, 2e-5, 2e-5},
                    Fixed{"MLX", TensorName::o, f16, 3e-4, 3e-4},
                    Fixed{"MLX", TensorName::o, bf16, 5e-3, 5e-3},
                    Fixed{"MLX", TensorName::dq, f32, 1e-2, 1e-2},
                    Fixed{"KernelBench", TensorName::o, f32, 1e-4, 1e-4},
                    Fixed{"KernelBench", TensorName::o, bf16, 1e-2, 1e-2}));

TEST(RuleTest, CutlassLimitsTheLargestErrorAndTheMean) {
  const Numbers exact = times(20, 1);
  Numbers actual = exact;
  actual[7] = 1.0099;
  EXPECT_EQ(ruling("CUTLASS", {.dtype = f16, .actual = actual, .exact = exact}), Ruling::passes);
  actual[7] = 1.0101;
  EXPECT_EQ(ruling("CUTLASS", {.dtype = f16, .actual = actual, .exact = exact}), Ruling::fails);
  const auto all_off_by = [&](double error) {
    return Given{.dtype = f16, .actual = times(20, 1 + error), .exact = exact};
  };
  EXPECT_EQ(ruling("CUTLASS", all_off_by(0.00099)), Ruling::passes);
  EXPECT_EQ(ruling("CUTLASS", all_off_by(0.00101)), Ruling::fails);
  actual[7] = kNan;  // the largest error passes over it
  EXPECT_EQ(ruling("CUTLASS", {.dtype = f16, .actual = actual, .exact = exact}), Ruling::fails);
}

TEST(RuleTest, GgmlLimitsTheSquaredErrorOfTheWholeTensor) {
  const auto off_by = [](double error) { return Given{.actual = {1 + error, 1}, .exact = {1, 1}}; };
  EXPECT_EQ(ruling("ggml", off_by(0.0316)), Ruling::passes) << "3 % in one of two elements";
  EXPECT_EQ(ruling("ggml", off_by(0.0317)), Ruling::fails);
  EXPECT_EQ(ruling("ggml", off_by(kNan)), Ruling::fails);
  EXPECT_EQ(ruling("ggml", off_by(kInfinity)), Ruling::fails);
  EXPECT_EQ(ruling("ggml", {.actual = {0, 0}, .exact = {0, 0}}), Ruling::passes);
  EXPECT_EQ(ruling("ggml", {.actual = {1e-9, 0}, .exact = {0, 0}}), Ruling::fails);
}

TEST(RuleTest, FlashinfersCountOfMismatchesOverlooksNan) {
  const Numbers exact = times(40000, 1);
  Numbers actual = exact;
  actual[3] = actual[5] = 17;
  const auto judged = [&] {
    return ruling("flashinfer trtllm", {.actual = actual, .exact = exact});
  };
  EXPECT_EQ(judged(), Ruling::passes) << "5e-5 of 40000 elements are 2";
  actual[9] = 1.0199;
  EXPECT_EQ(judged(), Ruling::passes);
  actual[9] = 1.0201;
  EXPECT_EQ(judged(), Ruling::fails);
  actual = times(40000, kNan);
  EXPECT_EQ(judged(), Ruling::passes) << "all of it is NaN";
}

TEST(RuleTest, TorchNpuForgivesAShareOfTheElements) {
  const Numbers exact = times(2000, 1);
  Numbers actual = exact;
  actual[3] = actual[5] = 1000;
  const auto judged = [&] {
    return ruling("torch_npu", {.dtype = f16, .actual = actual, .exact = exact});
  };
  EXPECT_EQ(judged(), Ruling::passes);
  actual[9] = 1.00099;
  EXPECT_EQ(judged(), Ruling::passes);
  actual[9] = 1.00101;
  EXPECT_EQ(judged(), Ruling::fails);
  actual = exact;
  actual[9] = kNan;
  EXPECT_EQ(judged(), Ruling::fails);
}

TEST(RuleTest, CorrelationIsBlindToScaleAndOffset) {
  const Numbers exact = {1, -2, 3, 0.5};
  const auto judged = [&](const Numbers& actual) {
    return ruling("tt-metal", {.actual = actual, .exact = exact});
  };
  EXPECT_EQ(judged({30, 0, 50, 25}), Ruling::passes) << "ten times as much, plus 20";
  EXPECT_EQ(judged({-1, 2, -3, -0.5}), Ruling::fails);
  EXPECT_EQ(judged({0, 0, 0, 0}), Ruling::fails);
  EXPECT_EQ(judged({kNan, kNan, kNan, kNan}), Ruling::fails);
  EXPECT_EQ(judged({1, -2, 3, kNan}), Ruling::fails) << "0 in place of 0.5: 0.99";
  EXPECT_EQ(ruling("tt-metal", {.actual = {1, -2, 3, kNan}, .exact = {1, -2, 3, 0.1}}),
            Ruling::passes);
  EXPECT_EQ(judged({1.2, -2, 3, 0.5}), Ruling::passes) << "0.9987";
  EXPECT_EQ(judged({1.5, -2, 3, 0.5}), Ruling::fails) << "0.992";
}

// ---- Relative to an eager run -------------------------------------------------------------------

// The eager run is off by one unit, the kernel by some.
Given off_by(double units, TensorName tensor = TensorName::o, DType dtype = f16) {
  constexpr double kUnit = 0x1p-10;  // of f16 from 1 on
  return {.tensor = tensor,
          .dtype = dtype,
          .actual = {1 + units * kUnit, 1.5},
          .exact = {1, 1.5},
          .eager = {1, 1.5 - kUnit}};
}

TEST(RuleTest, FlashAttention2AllowsTwiceTheErrorOfAnEagerRun) {
  EXPECT_EQ(ruling("flash-attention 2", off_by(2)), Ruling::passes);
  EXPECT_EQ(ruling("flash-attention 2", off_by(-2)), Ruling::passes);
  EXPECT_EQ(ruling("flash-attention 2", off_by(3)), Ruling::fails);
  EXPECT_EQ(ruling("flash-attention 2", off_by(3, TensorName::dq)), Ruling::passes);
  EXPECT_EQ(ruling("flash-attention 2", off_by(4, TensorName::dq)), Ruling::fails);
  EXPECT_EQ(ruling("flash-attention 2", off_by(kNan)), Ruling::fails);
  EXPECT_EQ(ruling("flash-attention 2", off_by(1000, TensorName::lse)), Ruling::not_compared);
  Given exact_twin = off_by(1);
  exact_twin.eager = exact_twin.exact;
  EXPECT_EQ(ruling("flash-attention 2", exact_twin), Ruling::fails);
}

TEST(RuleTest, FlashAttention3AllowsNoiseBesideAndMoreWithASoftcap) {
  EXPECT_EQ(ruling("flash-attention 3/4", off_by(2)), Ruling::passes);
  EXPECT_EQ(ruling("flash-attention 3/4", off_by(5)), Ruling::fails);
  Given capped = off_by(3);
  EXPECT_EQ(ruling("flash-attention 3/4", capped), Ruling::fails);
  capped.softcap = true;
  EXPECT_EQ(ruling("flash-attention 3/4", capped), Ruling::passes);
  EXPECT_EQ(ruling("flash-attention 3/4", off_by(kNan)), Ruling::fails);
  // An eager run without any error: 0.01 + 0.3 - 0.3 is off by 5.4e-4 in bf16.
  const double exact = round_to(bf16, 0.01);
  Given small = {.actual = {exact + 1.0e-3}, .exact = {exact}};
  EXPECT_EQ(ruling("flash-attention 3/4", small), Ruling::passes);
  EXPECT_EQ(ruling("flash-attention 2", small), Ruling::fails);
  small.actual[0] = exact + 1.2e-3;
  EXPECT_EQ(ruling("flash-attention 3/4", small), Ruling::fails);
}

TEST(RuleTest, PytorchHasAFudgeFactorForEachTensor) {
  const auto limits = [](TensorName tensor, double factor, bool bias) {
    Given given = off_by(factor, tensor);
    given.bias = bias;
    EXPECT_EQ(ruling("PyTorch SDPA", given), Ruling::passes) << name(tensor);
    given.actual[0] += 1e-5;
    EXPECT_EQ(ruling("PyTorch SDPA", given), Ruling::fails) << name(tensor);
  };
  limits(TensorName::o, 4, false);
  limits(TensorName::dq, 180, false);
  limits(TensorName::dk, 16, false);
  limits(TensorName::dv, 4, false);
  limits(TensorName::dq, 160, true);
  limits(TensorName::dk, 25, true);
  limits(TensorName::dbias, 45, true);
  const auto without_eager_error = [](double error) {
    return Given{.dtype = f32, .actual = {1 + error}, .exact = {1}, .eager = {1}};
  };
  EXPECT_EQ(ruling("PyTorch SDPA", without_eager_error(0.9e-5)), Ruling::passes);
  EXPECT_EQ(ruling("PyTorch SDPA", without_eager_error(1.1e-5)), Ruling::fails);
  Given nan = off_by(kNan);
  EXPECT_EQ(ruling("PyTorch SDPA", nan), Ruling::fails);
  nan.eager[1] = kNan;
  EXPECT_EQ(ruling("PyTorch SDPA", nan), Ruling::passes);
}

TEST(RuleTest, FlexAttentionComparesMeanErrors) {
  EXPECT_EQ(ruling("FlexAttention", off_by(2.1)), Ruling::passes);
  EXPECT_EQ(ruling("FlexAttention", off_by(2.11)), Ruling::fails);
  EXPECT_EQ(ruling("FlexAttention", off_by(11, TensorName::dk, f32)), Ruling::passes);
  EXPECT_EQ(ruling("FlexAttention", off_by(11.1, TensorName::dk, f32)), Ruling::fails);
  EXPECT_EQ(ruling("FlexAttention", off_by(2.2, TensorName::dbias)), Ruling::fails);
  EXPECT_EQ(ruling("FlexAttention", off_by(kNan)), Ruling::fails);
}

TEST(RuleTest, AiterTakesTheLargerOfAFloorAndAMultiple) {
  EXPECT_EQ(ruling("aiter", off_by(10)), Ruling::passes) << "0.0098";
  EXPECT_EQ(ruling("aiter", off_by(11)), Ruling::fails);
  Given coarse = off_by(40);
  coarse.eager[1] = 1.5 - 0x1p-10 * 20;
  EXPECT_EQ(ruling("aiter", coarse), Ruling::passes);
  coarse.actual[0] += 1e-5;
  EXPECT_EQ(ruling("aiter", coarse), Ruling::fails);
  coarse.tensor = TensorName::dv;
  EXPECT_EQ(ruling("aiter", coarse), Ruling::passes) << "10 times";
  coarse.tensor = TensorName::dbias;
  EXPECT_EQ(ruling("aiter", coarse), Ruling::passes);
  EXPECT_EQ(ruling("aiter", off_by(kNan)), Ruling::fails);
}

TEST(RuleTest, AscendComparesThreeErrorsWithAnotherImplementations) {
  const auto judged = [](const Numbers& errors) {
    Given given = {.actual = {1, 1, 1, 1}, .exact = {1, 1, 1, 1}, .eager = {1.1, 1, 1, 0.9}};
    for (std::size_t i = 0; i < errors.size(); ++i) given.actual[i] += errors[i];
    return ruling("Ascend double benchmark", given);
  };
  EXPECT_EQ(judged({0.14, 0.14, 0, 0}), Ruling::passes);
  EXPECT_EQ(judged({0.16, 0.16, 0, 0}), Ruling::fails) << "the mean";
  EXPECT_EQ(judged({0.2, 0, 0, 0}), Ruling::passes);
  EXPECT_EQ(judged({0.22, 0, 0, 0}), Ruling::fails) << "the root mean square";
  Given nan = {.actual = {kNan, 1.1}, .exact = {0, 1}, .eager = {0, 1.1}};
  EXPECT_EQ(ruling("Ascend double benchmark", nan), Ruling::fails);
  Given small = {.actual = {1e-3 + 6e-5, 1}, .exact = {1e-3, 1}, .eager = {1e-3 + 1e-5, 1.1}};
  EXPECT_EQ(ruling("Ascend double benchmark", small), Ruling::passes)
      << "its largest relative error is 0.06, the other's 0.1";
  small.eager[1] = 1.011;
  EXPECT_EQ(ruling("Ascend double benchmark", small), Ruling::fails) << "5.5 times";
}

TEST(RuleTest, CannsHelperLimitsEachErrorAndTheirDrift) {
  const auto judged = [](DType dtype, const Numbers& actual, const Numbers& exact) {
    return ruling("CANN precision helper", {.dtype = dtype, .actual = actual, .exact = exact});
  };
  struct Limits {
    DType dtype;
    double each, drift;
  };
  for (const auto& [dtype, each, drift] :
       {Limits{f32, 0x1p-11, 0x1p-14}, Limits{f16, 0x1p-8, 0x1p-10},
        Limits{bf16, 0x1p-7, 0x1p-7}}) {
    EXPECT_EQ(judged(dtype, {each, 4 - 4 * each}, {0, 4}), Ruling::passes);
    EXPECT_EQ(judged(dtype, {1.01 * each, 4 - 4 * each}, {0, 4}), Ruling::fails);
    EXPECT_EQ(judged(dtype, {each, 4 - 4.04 * each}, {0, 4}), Ruling::fails);
    EXPECT_EQ(judged(dtype, {0.99 * drift, 1 - 0.99 * drift}, {0, 1}), Ruling::passes);
    EXPECT_EQ(judged(dtype, {0.99 * drift, 1 + 0.99 * drift}, {0, 1}), Ruling::passes);
    EXPECT_EQ(judged(dtype, {1.01 * drift, 1 + 1.01 * drift}, {0, 1}), Ruling::fails);
  }
  EXPECT_EQ(judged(f16, {kNan, -kInfinity, 1}, {0, kInfinity, 1}), Ruling::passes) << "all 0";
  EXPECT_EQ(
      ruling("CANN precision helper", {.tensor = TensorName::dq, .actual = {9}, .exact = {0}}),
      Ruling::not_compared);
}

TEST(RuleTest, WhatAProjectDoesNotTryIsAFeature) {
  const std::vector<std::string> known = known_features();
  for (const Rule& rule : rules()) {
    for (const std::string& feature : rule.lacks) {
      EXPECT_THAT(known, testing::Contains(feature)) << rule.name;
    }
    EXPECT_THAT(rule.lacks, Not(testing::Contains("backward"))) << "with which most cases come";
  }
}

TEST(RuleTest, GradientsOfSinksHaveLimitsOfTheirOwn) {
  EXPECT_EQ(ruling("aiter", off_by(511, TensorName::dsink)), Ruling::passes) << "0.499";
  EXPECT_EQ(ruling("aiter", off_by(513, TensorName::dsink)), Ruling::fails);
  for (const bool softcap : {false, true}) {
    Given within = off_by(4, TensorName::dsink), beyond = off_by(4.1, TensorName::dsink);
    within.softcap = beyond.softcap = softcap;
    EXPECT_EQ(ruling("flash-attention 3/4", within), Ruling::passes) << "2 times 1, and 2";
    EXPECT_EQ(ruling("flash-attention 3/4", beyond), Ruling::fails);
  }
}

// ---- All of them --------------------------------------------------------------------------------

TEST(RuleTest, EveryRulePassesTheExactValuesAndTheSameInfinity) {
  for (const Rule& rule : rules()) {
    for (const DType dtype : rule.dtypes) {
      for (const TensorName tensor : kReturnedTensors) {
        Given given = {.tensor = tensor, .dtype = dtype, .exact = {1, -0.5, 0}};
        if (tensor == TensorName::lse) given.exact.push_back(-kInfinity);
        given.actual = given.exact;
        EXPECT_NE(ruling(rule.name, given), Ruling::fails) << rule.name << " " << name(tensor);
      }
    }
  }
}

TEST(RuleTest, EveryRuleThatComparesLseFailsAWrongInfinity) {
  for (const Rule& rule : rules()) {
    const Given given = {.tensor = TensorName::lse,
                         .dtype = rule.dtypes[0],
                         .actual = {1, kInfinity},
                         .exact = {1, -kInfinity}};
    const bool zeroes = rule.name == "CANN precision helper";
    EXPECT_NE(ruling(rule.name, given), zeroes ? Ruling::fails : Ruling::passes) << rule.name;
  }
}

// What the table says of NaN is what the rules do.
TEST(RuleTest, NanIsTreatedAsTheTableSays) {
  for (const Rule& rule : rules()) {
    for (const DType dtype : rule.dtypes) {
      const bool passes = rule.nan.starts_with("passes") || rule.nan.starts_with("counts as 0");
      const Given given = {.dtype = dtype, .actual = {1, -1, kNan}, .exact = {1, -1, 0}};
      EXPECT_EQ(ruling(rule.name, given), passes ? Ruling::passes : Ruling::fails) << rule.name;
    }
  }
}

TEST(RuleTest, NamesAreUniqueAndInputsExist) {
  std::set<std::string_view> names, classes;
  for (const InputClass& input_class : input_classes()) classes.insert(input_class.name);
  for (const Rule& rule : rules()) {
    EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
    EXPECT_TRUE(classes.contains(rule.data)) << rule.name;
    EXPECT_FALSE(rule.dtypes.empty()) << rule.name;
  }
  EXPECT_EQ(judges().size(), rules().size() + 2);
}

// ---- The eager run ------------------------------------------------------------------------------

// It has every feature, and errs as much as its format lets it.
TEST(EagerTest, IsCloseToTheReferenceAndOffByRoundings) {
  std::map<DType, double> most;
  for (const Case& c : their_cases()) {
    const Problem& p = c.problem;
    const bool every_format = p.softcap > 0 || p.sink || p.bias_shape;
    if (c.data != "normal" || (p.dtype != f32 && !every_format)) continue;
    Inputs inputs = generate(c);
    if (p.dropout.mode == Dropout::Mode::generated) {
      inputs.keep = {
          p.keep_shape(),
          std::vector<std::uint8_t>(static_cast<std::size_t>(element_count(p.keep_shape())), 1)};
      inputs.keep.kept[5] = 0;
    }
    const EagerOutputs eager = run_eagerly(p, inputs);
    PassesExpected expected = {expect_forward(p, inputs, loosest(p.dtype)), {}};
    if (p.backward) expected.backward = expect_backward(p, inputs, loosest(p.dtype));
    for (const TensorName tensor : kReturnedTensors) {
      const Numbers& actual = eager[tensor];
      const Numbers& values = expected[tensor].value;
      ASSERT_EQ(actual.size(), values.size()) << c.id << " " << name(tensor);
      for (std::size_t i = 0; i < actual.size(); ++i) {
        const double exact = values[i];
        if (actual[i] == exact || std::isnan(exact)) continue;
        const double roundoffs =
            std::abs(actual[i] - exact) / unit_roundoff(p.dtype) / (1 + std::abs(exact));
        EXPECT_LT(roundoffs, 40) << c.id << " " << name(tensor) << " " << i;
        most[p.dtype] = std::max(most[p.dtype], roundoffs);
      }
    }
  }
  for (const DType dtype : {f32, f16, bf16}) {
    fmt::print("{}: at most {:.1f} roundoffs\n", name(dtype), most[dtype]);
    EXPECT_GT(most[dtype], 1);
  }
}

// ---- Inputs -------------------------------------------------------------------------------------

TEST(InputsTest, EveryRuleHasCasesOfItsOwn) {
  const auto cases = their_cases();
  for (const Rule& rule : rules()) {
    for (const DType dtype : rule.dtypes) {
      EXPECT_GE(std::count_if(
                    cases.begin(), cases.end(),
                    [&](const Case& c) { return c.problem.dtype == dtype && c.data == rule.data; }),
                20)
          << rule.name;
    }
  }
}

TEST(InputsTest, TheFirstAndTheLastCaseStandForAnEntry) {
  const auto entry_case = [](int line, DType dtype, const std::string& id, Index len = 4) {
    Case c;
    c.id = id;
    c.file = "a.json";
    c.line = line;
    c.problem = {.dtype = dtype, .query_len = len, .key_len = len};
    return c;
  };
  std::vector<Case> cases = {entry_case(1, f32, "a"),         entry_case(1, f32, "b"),
                             entry_case(1, f32, "c"),         entry_case(1, f16, "d"),
                             entry_case(2, f32, "e"),         entry_case(2, f32, "long", 40000),
                             entry_case(3, DType::f64, "f64")};
  cases.push_back(entry_case(3, f32, "excerpt"));
  cases.back().excerpt = 4;
  cases.push_back(entry_case(4, f32, "recommended"));
  cases.back().clauses = {"HIDE-3"};
  std::string ids;
  for (const Case& c : representatives(cases)) ids += c.id + " ";
  EXPECT_EQ(ids, "a c d e ");
}

// ---- Side by side -------------------------------------------------------------------------------

// A kernel in this process that computes rightly and then spoils what `spoil` says.
class Spoiled {
 public:
  using Spoil = std::function<void(const attest_inputs&, const attest_outputs&)>;

  Spoiled(const std::string& name, bool wrong, const Spoil& spoil) {
    ON_CALL(plugin_, forward)
        .WillByDefault(
            [spoil](const auto& p, const auto& in, const auto& out, const auto& context) {
              const attest_status status = plain::forward(p, in, out, context);
              spoil(in, out);
              return status;
            });
    ON_CALL(plugin_, backward).WillByDefault(plain::backward);
    Description d = {.name = name,
                     .version = "1",
                     .vendor = "test",
                     .profiles = {},
                     .dtypes = {f32},
                     .features = known_features(),
                     .alignment = 4,
                     .arithmetic = {{f32, loosest(f32)}},
                     .declared_arithmetic = {}};
    std::erase(d.features, "strides");
    subject_ = {.testee = {.name = name,
                           .spec = name,
                           .kernel = "mock",
                           .command = {name},
                           .description = d},
                .wrong = wrong,
                .dtypes = {f32},
                .clauses = {"SOFTMAX-1"}};
  }

  const Subject& subject() const { return subject_; }
  NiceMock<MockPlugin>& mock() { return plugin_; }
  void lack(const std::string& feature) {
    std::erase(subject_.testee.description.features, feature);
  }

 private:
  NiceMock<MockPlugin> plugin_;
  Subject subject_;
};

void multiply(const attest_tensor& t, double factor) {
  for (std::int64_t b = 0; b < t.shape[0]; ++b) {
    for (std::int64_t h = 0; h < t.shape[1]; ++h) {
      for (std::int64_t s = 0; s < t.shape[2]; ++s) {
        for (std::int64_t d = 0; d < t.shape[3]; ++d) {
          float& value = plain::element<float>(t, b, h, s, d);
          value = static_cast<float>(value * factor);
        }
      }
    }
  }
}

struct Compared {
  std::vector<std::unique_ptr<Spoiled>> kernels;

  static CaseSet decode() {
    CaseSet set = {.name = "some", .about = "On some", .cases = {}};
    for (Case& c : their_cases()) {
      const bool wanted = c.problem.dtype == f32 && c.id.starts_with("theirs/decode/");
      if (wanted) set.cases.push_back(std::move(c));
    }
    return set;
  }

  Side side(const CaseSet& set = decode()) const {
    std::vector<Subject> subjects;
    for (const auto& kernel : kernels) subjects.push_back(kernel->subject());
    return compare(
        set, subjects, {.jobs = 1},
        [&](const Testee& testee) -> std::unique_ptr<Executor> {
          for (const auto& kernel : kernels) {
            if (kernel->subject().testee.name == testee.name) {
              return std::make_unique<InProcessExecutor>(kernel->mock().plugin());
            }
          }
          throw std::logic_error(testee.name);
        },
        [] {}, [] { return false; });
  }
};

TEST(CompareTest, EachJudgeIsAskedAboutTheSameResults) {
  Compared compared;
  const auto add = [&](const std::string& name, bool wrong, const Spoiled::Spoil& spoil) {
    compared.kernels.push_back(std::make_unique<Spoiled>(name, wrong, spoil));
  };
  add("right", false, [](const auto&, const auto&) {});
  add("o_much", true, [](const auto&, const auto& out) { multiply(out.o, 2); });
  add("o_little", true, [](const auto&, const auto& out) { multiply(out.o, 1.0005); });
  add("lse", true, [](const auto&, const auto& out) {
    if (out.lse.data) multiply(out.lse, 1.4426950408889634);
  });
  const Side side = compared.side();
  EXPECT_EQ(side.cases, 5);  // one of each class of inputs
  const auto caught = [&](const char* judge) { return side.scores.at(judge).at(f32).caught; };
  const std::set<std::string> all = {"lse", "o_little", "o_much"};
  EXPECT_EQ(caught("Attest"), all);
  EXPECT_EQ(caught("Attest, bounds alone"), all);
  EXPECT_EQ(caught("ggml"), std::set<std::string>{"o_much"});
  EXPECT_EQ(caught("JAX splash"), (std::set<std::string>{"lse", "o_much"}));
  EXPECT_EQ(caught("MLX"), (std::set<std::string>{"o_little", "o_much"}));
  for (const auto& [judge, scores] : side.scores) {
    for (const auto& [dtype, score] : scores) {
      EXPECT_TRUE(score.failed.empty()) << judge;
      EXPECT_EQ(score.passed.size(), dtype == f32 ? 1u : 0u) << judge;
      EXPECT_EQ(score.caught.size() + score.missed.size(), dtype == f32 ? 3u : 0u) << judge;
    }
  }
}

TEST(CompareTest, ARuleSeesTheInputsOfItsProjectAlone) {
  Compared compared;
  // "uniform" has no number below 0.
  compared.kernels.push_back(std::make_unique<Spoiled>(
      "negative", true, [](const attest_inputs& in, const attest_outputs& out) {
        bool negative = false;
        for (std::int64_t c = 0; c < in.q.shape[3]; ++c) {
          negative |= plain::element<float>(in.q, 0, 0, 0, c) < 0;
        }
        if (negative) multiply(out.o, 2);
      }));
  CaseSet set = Compared::decode();
  set.own_inputs = true;
  const Side side = compared.side(set);
  const auto caught = [&](const auto& scores, const char* judge) {
    return scores.at(judge).at(f32).caught.size();
  };
  EXPECT_EQ(caught(side.scores, "ggml"), 1u);
  EXPECT_EQ(caught(side.scores, "MLX"), 0u);
  EXPECT_EQ(caught(side.scores, "Attest"), 1u);
  EXPECT_EQ(caught(side.attest_beside, "ggml"), 1u);
  EXPECT_EQ(caught(side.attest_beside, "MLX"), 0u);
  EXPECT_FALSE(side.attest_beside.contains("Attest"));
}

TEST(CompareTest, ARuleSeesTheFeaturesThatItsProjectTriesAlone) {
  Compared compared;
  compared.kernels.push_back(std::make_unique<Spoiled>(
      "doubled", true, [](const auto&, const attest_outputs& out) { multiply(out.o, 2); }));
  CaseSet set = Compared::decode();
  for (Case& c : set.cases) c.problem.softcap = 15;
  const auto caught = [&](const auto& scores, const char* judge) {
    return scores.at(judge).at(f32).caught.size();
  };
  const Side all = compared.side(set);
  EXPECT_EQ(caught(all.scores, "ONNX Runtime"), 1u);
  EXPECT_EQ(caught(all.scores, "xformers"), 1u);
  set.own_inputs = true;
  const Side own = compared.side(set);
  for (const auto* scores : {&own.scores, &own.attest_beside}) {
    EXPECT_EQ(caught(*scores, "ONNX Runtime"), 1u);
    EXPECT_EQ(caught(*scores, "xformers"), 0u) << "which has no softcap";
  }
}

TEST(CompareTest, ARefusalOfWhatIsDeclaredIsSeenByAll) {
  Compared compared;
  compared.kernels.push_back(
      std::make_unique<Spoiled>("refuses", true, [](const auto&, const auto&) {}));
  ON_CALL(compared.kernels[0]->mock(), supports).WillByDefault(testing::Return("not today"));
  const Side side = compared.side();
  for (const auto& [judge, scores] : side.scores) {
    if (!scores.contains(f32)) continue;
    EXPECT_EQ(scores.at(f32).caught.size(), 1u) << judge;
  }
}

TEST(CompareTest, ARefusalOfWhatIsNotDeclaredIsNoFault) {
  Compared compared;
  compared.kernels.push_back(
      std::make_unique<Spoiled>("refuses", false, [](const auto&, const auto&) {}));
  compared.kernels[0]->lack("dropout-generated");
  ON_CALL(compared.kernels[0]->mock(), supports).WillByDefault(testing::Return("no generator"));
  CaseSet set = Compared::decode();
  for (Case& c : set.cases) {
    c.problem.dropout = {.mode = Dropout::Mode::generated, .probability = 0.25};
  }
  const Side side = compared.side(set);
  EXPECT_EQ(side.scores.at("Attest").at(f32).passed.size(), 1u);
  for (const auto& [judge, scores] : side.scores) {
    for (const auto& [dtype, score] : scores) EXPECT_TRUE(score.failed.empty()) << judge;
  }
}

// ---- What is told -------------------------------------------------------------------------------

Comparison sample() {
  Comparison comparison = {
      .suite_version = "1.2.3", .command = "attest criteria", .wall_s = 3, .sides = {Side()}};
  Side& side = comparison.sides[0];
  side.name = "theirs";
  side.about = "On theirs";
  side.cases = 7;
  side.scores["ggml"][f32] = {
      .caught = {"a"}, .missed = {"<b>", "c"}, .failed = {}, .passed = {"x", "y"}};
  side.scores["Attest"][f32] = {
      .caught = {"a", "<b>", "c"}, .missed = {}, .failed = {"x"}, .passed = {"y"}};
  side.attest_beside["ggml"][f32] = side.scores["Attest"][f32];
  return comparison;
}

TEST(CriteriaReportTest, TheTableHasSharesAndDashes) {
  const std::string text = to_text(sample());
  EXPECT_THAT(text, HasSubstr("On theirs (7 cases)"));
  EXPECT_THAT(text, testing::ContainsRegex("ggml +normal +1/3 +- +- +0/2 +- +-"));
  EXPECT_THAT(text, testing::ContainsRegex("Attest +all +3/3 +- +- +1/2 +- +-"));
  EXPECT_THAT(to_markdown(sample()), HasSubstr("| ggml | normal | 1/3 | - | - | 0/2 | - | - |"));
  EXPECT_THAT(
      to_markdown(sample()),
      HasSubstr("| ggml | squared error of O over its squares at most 5e-4 | fails | causal, "));
}

TEST(CriteriaReportTest, JsonHasEveryName) {
  const auto json = parse_json(to_json(sample()));
  EXPECT_EQ(json.at("judges").size(), judges().size());
  for (const auto& row : json.at("sides").at(0).at("judges")) {
    if (row.at("name") != "ggml") continue;
    const auto& score = row.at("scores").at("f32");
    EXPECT_EQ(score.at("caught"), 1);
    EXPECT_EQ(score.at("wrong"), 3);
    EXPECT_EQ(score.at("missed_names"), (std::vector<std::string>{"<b>", "c"}));
    EXPECT_EQ(row.at("attest_on_the_same").at("f32").at("caught"), 3);
  }
}

TEST(CriteriaReportTest, ThePictureHasARowAJudgeAndAColumnAMutant) {
  Side side = sample().sides[0];
  for (auto& [judge, scores] : side.scores) scores[f32].missed.insert("d");  // by all
  const CatchTable table = catches_of(side);
  EXPECT_EQ(table.columns, (std::vector<std::string>{"<b> f32", "a f32", "c f32", "d f32"}));
  EXPECT_EQ(table.rows, (std::vector<std::string>{"ggml", "Attest"}));
  EXPECT_EQ(table.letters, (std::vector<std::string>{"mcmm", "cccm"}));
}

TEST(CriteriaReportTest, ThePageIsByItselfAndEscapes) {
  std::string html = to_html(sample());
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
  EXPECT_THAT(html, HasSubstr("&lt;b&gt;"));
  EXPECT_THAT(html, Not(HasSubstr("<b>")));
  EXPECT_THAT(html, Not(HasSubstr("://"))) << "nothing is fetched";
  // Its own scripts aside, and the data that they read, there is none.
  html.erase(html.find("<script type=\"application/base64\""));
  EXPECT_THAT(html, Not(HasSubstr("<script")));
}

}  // namespace
}  // namespace attest::criteria
