#include "spec/tensor_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "spec/inputs.h"
#include "spec/per_tensor.h"
#include "spec/problem.h"

namespace attest {
namespace {

using ::testing::ElementsAre;

// All of them: those that are read, and those that are returned.
std::vector<TensorName> all_names() {
  std::vector<TensorName> all = {TensorName::keep};
  all.insert(all.end(), kInputValues.begin(), kInputValues.end());
  all.insert(all.end(), kReturnedTensors.begin(), kReturnedTensors.end());
  return all;
}

TEST(TensorNameTest, EveryNameIsReadBackAsWhatItNames) {
  std::set<TensorName> read;
  for (const TensorName tensor : all_names()) {
    EXPECT_EQ(tensor_named(name(tensor)), tensor) << name(tensor);
    read.insert(tensor);
  }
  // All but `maximum` and `sum`.
  EXPECT_EQ(read.size(), static_cast<std::size_t>(TensorName::v_scale) + 1 - 2);
}

TEST(TensorNameTest, NoTwoTensorsAreSpelledAlike) {
  std::set<std::string> spellings, on_the_wire;
  for (const TensorName tensor : all_names()) {
    EXPECT_TRUE(spellings.insert(std::string(name(tensor))).second) << name(tensor);
    EXPECT_TRUE(on_the_wire.insert(wire_name(tensor)).second) << name(tensor);
  }
}

TEST(TensorNameTest, WhatNoTensorIsCalledNamesNone) {
  for (const char* text : {"", "P", "dP", "DQ", "d_bias", "dbias", "O ", "evidence"}) {
    EXPECT_EQ(tensor_named(text), std::nullopt) << text;
  }
}

// As the tables of SPEC.md have them, chapters "Worker" and "Records".
TEST(TensorNameTest, SpellingsAreThoseOfTheStandard) {
  std::vector<std::string> wire, paper;
  for (const TensorName tensor : kInputValues) wire.push_back(wire_name(tensor));
  EXPECT_THAT(wire, ElementsAre("q", "k", "v", "bias", "slopes", "sink", "d_o", "d_lse", "q_scale",
                                "k_scale", "v_scale"));
  wire.clear();
  for (const TensorName tensor : kReturnedTensors) {
    wire.push_back(wire_name(tensor));
    paper.emplace_back(name(tensor));
  }
  EXPECT_THAT(wire, ElementsAre("o", "lse", "dq", "dk", "dv", "dbias", "dsink"));
  EXPECT_THAT(paper, ElementsAre("O", "LSE", "dQ", "dK", "dV", "dBias", "dSink"));
  EXPECT_EQ(wire_name(TensorName::keep), "keep");
}

TEST(TensorNameTest, GradientsAreWhatTheBackwardPassReturns) {
  for (const TensorName tensor : all_names()) {
    const bool returned = is_among(tensor, kReturnedTensors);
    const bool forward = tensor == TensorName::o || tensor == TensorName::lse;
    EXPECT_EQ(is_gradient(tensor), returned && !forward) << name(tensor);
  }
}

TEST(TensorNameTest, ReturnedTensorsHaveRowsOfQueriesOrKeysOrNeither) {
  for (const TensorName tensor : kReturnedTensors) {
    const bool neither = tensor == TensorName::dbias || tensor == TensorName::dsink;
    EXPECT_EQ(is_of_queries(tensor) + is_of_keys(tensor), neither ? 0 : 1) << name(tensor);
  }
}

TEST(PerTensorTest, ANameFindsTheMemberOfThatName) {
  PerTensor<int> numbers = {{10, 20}, {30, 40, 50, 60, 70}};
  std::vector<int> found;
  for (const TensorName tensor : kReturnedTensors) found.push_back(numbers[tensor]++);
  EXPECT_THAT(found, ElementsAre(10, 20, 30, 40, 50, 60, 70));
  const PerTensor<int>& after = numbers;
  EXPECT_EQ(after[TensorName::lse], 21);
  EXPECT_EQ(after.forward.o, 11);
  EXPECT_EQ(after.backward.dsink, 71);
}

TEST(PerTensorDeathTest, WhatIsReadIsNotAmongWhatIsReturned) {
  const PerTensor<int> numbers = {};
  EXPECT_DEATH(static_cast<void>(numbers[TensorName::q]), "lse");
  EXPECT_DEATH(static_cast<void>(numbers.backward[TensorName::o]), "dsink");
}

TEST(TensorNameTest, FindsLayoutsAndInputs) {
  Layouts layouts;
  for (const TensorName tensor : kLaidOut) layouts[tensor] = Layout::parse("bshd");
  EXPECT_EQ(layouts.q, Layout::parse("bshd"));
  for (Layout Layouts::*member : {&Layouts::q, &Layouts::k, &Layouts::v, &Layouts::o, &Layouts::d_o,
                                  &Layouts::dq, &Layouts::dk, &Layouts::dv, &Layouts::bias}) {
    EXPECT_EQ(layouts.*member, Layout::parse("bshd"));
  }
  Inputs inputs;
  std::vector<const Values*> found;
  for (const TensorName tensor : kInputValues) found.push_back(&inputs[tensor]);
  EXPECT_THAT(found, ElementsAre(&inputs.q, &inputs.k, &inputs.v, &inputs.bias, &inputs.slopes,
                                 &inputs.sink, &inputs.d_o, &inputs.d_lse, &inputs.q_scale,
                                 &inputs.k_scale, &inputs.v_scale));
}

}  // namespace
}  // namespace attest
