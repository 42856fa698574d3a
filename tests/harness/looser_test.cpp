// Which declarations would admit what came back, on results that lie at a known distance from the
// exact ones.
#include "harness/diagnosis/looser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cases/entry.h"
#include "spec/json_text.h"
#include "tests/harness/asked_tensors.h"

namespace attest {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const auto kUninterrupted = [] { return false; };

Case grouped_case() {
  return read_entry({{"name", "a"},
                     {"clauses", {"SOFTMAX-1"}},
                     {"because", "A test."},
                     {"problem",
                      {{"query_heads", 4},
                       {"key_heads", 1},
                       {"query_len", 9},
                       {"key_len", 13},
                       {"head_dim", 8},
                       {"backward", true}}},
                     {"data", {"normal"}},
                     {"dtypes", {"bf16"}},
                     {"bits", "looser"}},
                    "looser");
}

Description declaring(const nlohmann::json& arithmetic) {
  return parse_description({{"name", "a"},
                            {"version", "1"},
                            {"vendor", "us"},
                            {"profiles", nlohmann::json::array()},
                            {"dtypes", {"bf16"}},
                            {"features", {"backward", "gqa"}},
                            {"arithmetic", {{"bf16", arithmetic}}}});
}

// What is exact but for the middle element of one tensor: it lies at `share` of its bound under
// `arithmetic`, in a format in which that can be told.
Trial trial_at(double share, TensorName off, PreparedCase& prepared, const Arithmetic& arithmetic) {
  Trial trial = asked_tensors(prepared.problem());
  for (Returned& tensor : trial.returned) {
    tensor.dtype = DType::f64;
    const Expected& expected = expected_of(tensor.name, prepared, arithmetic);
    for (std::size_t at = 0; at < expected.value.size(); ++at) {
      const bool is_off = tensor.name == off && at == expected.value.size() / 2;
      const double error = is_off ? share * expected.bound[at] : 0;
      tensor.bits.push_back(encode(DType::f64, expected.value[at] + error));
    }
  }
  return trial;
}

// What is said of a kernel that declares the first and returns what lies just within the bounds of
// the second, in that tensor.
std::vector<std::string> said_of(const nlohmann::json& declared, const nlohmann::json& computed,
                                 TensorName tensor, double share = 0.999) {
  PreparedCase prepared(grouped_case(), 1);
  const Trial trial =
      trial_at(share, tensor, prepared, parse_arithmetic(computed, DType::bf16, ""));
  return looser_declarations(prepared, declaring(declared), trial, kUninterrupted);
}

using nlohmann::json;

TEST(LooserTest, NamesTheKeyThatAKernelLeftOut) {
  EXPECT_THAT(said_of(json::object(), {{"grouped_gradients", "rounded"}}, TensorName::dv),
              testing::Contains("\"grouped_gradients\": \"rounded\""));
}

TEST(LooserTest, NamesTheKeyThatDeclaresTooMuch) {
  EXPECT_THAT(said_of({{"p", "f32"}}, json::object(), TensorName::o),
              testing::Contains("no \"p\""));
}

TEST(LooserTest, NamesAKeyWithTheOneThatItNeeds) {
  EXPECT_THAT(said_of(json::object(), {{"exp_ulp", 1024}, {"key_block", 16}}, TensorName::o),
              testing::Contains("\"exp_ulp\": 1024 and \"key_block\""));
}

TEST(LooserTest, SaysAnythingWhereItTakesSeveral) {
  const json anything = "anything";
  PreparedCase prepared(grouped_case(), 1);
  const Description loosest = declaring(anything);
  const Trial trial = trial_at(0.999, TensorName::dk, prepared, loosest.arithmetic_in(DType::bf16));
  EXPECT_THAT(looser_declarations(prepared, declaring(json::object()), trial, kUninterrupted),
              ElementsAre("\"anything\""));
  EXPECT_THAT(looser_declarations(prepared, loosest, trial, kUninterrupted), IsEmpty());
  EXPECT_THAT(looser_declarations(prepared, declaring(json::object()), trial, [] { return true; }),
              IsEmpty());
}

TEST(LooserTest, SaysNothingOfWhatNoDeclarationAdmits) {
  PreparedCase prepared(grouped_case(), 1);
  const Description loosest = declaring("anything");
  const Trial trial = trial_at(1.5, TensorName::o, prepared, loosest.arithmetic_in(DType::bf16));
  EXPECT_THAT(looser_declarations(prepared, declaring(json::object()), trial, kUninterrupted),
              IsEmpty());
}

TEST(AdmittingTest, WhatAdmitsEachFailureOrAllTogether) {
  Admitting alike;
  EXPECT_THAT(alike.all(), IsEmpty());
  alike.add({"a", "b", "c"});
  alike.add({"c", "b"});
  EXPECT_THAT(alike.all(), ElementsAre("b", "c"));
  alike.add({"d", "a"});
  EXPECT_THAT(alike.all(), ElementsAre("a and c"));
  alike.add({"\"anything\""});
  EXPECT_THAT(alike.all(), ElementsAre("\"anything\""));
  EXPECT_FALSE(alike.is_hopeless());
  alike.add({});
  EXPECT_TRUE(alike.is_hopeless());
  EXPECT_THAT(alike.all(), IsEmpty());
}

}  // namespace
}  // namespace attest
