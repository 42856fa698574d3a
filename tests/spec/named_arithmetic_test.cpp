// Arithmetics that have a name: what they say can be declared, and the documents know them.
#include "spec/named_arithmetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "spec/description_text.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

using ::testing::HasSubstr;

const Arithmetic& of(const Description& description, DType dtype) {
  return description.arithmetic.at(dtype);
}

std::string error_of(const std::string& text, DType dtype) {
  try {
    description_by(text, dtype);
  } catch (const InputError& error) {
    return error.pointer() + ": " + error.what();
  }
  return "";
}

TEST(NamedArithmeticTest, EachCanBeDeclaredAndNoneIsLooserThanAnything) {
  for (const NamedArithmetic& each : named_arithmetics()) {
    for (const DType dtype : kDTypes) {
      if (each.of(dtype).empty()) continue;
      const Description named = description_by(each.name, dtype);
      const Description declared = description_by(each.of(dtype), dtype);
      EXPECT_EQ(of(named, dtype), of(declared, dtype)) << each.name;
      const Arithmetic &a = of(named, dtype), most = of(description_by("anything", dtype), dtype);
      EXPECT_LE(a.qk.operand_roundoff, most.qk.operand_roundoff) << each.name;
      EXPECT_LE(a.qk.accumulator_roundoff, most.qk.accumulator_roundoff) << each.name;
      EXPECT_LE(a.exp_error, most.exp_error) << each.name;
      EXPECT_LE(a.p.roundoff, most.p.roundoff) << each.name;
      EXPECT_LE(a.max_lag, most.max_lag) << each.name;
      EXPECT_LE(a.integer_max, most.integer_max) << each.name;
      EXPECT_LE(a.rounds_head_gradients, most.rounds_head_gradients || each.name == "exact-f32");
    }
  }
}

TEST(NamedArithmeticTest, EveryFormatHasOneAndAnythingHasAll) {
  for (const DType dtype : kDTypes) {
    EXPECT_FALSE(named_arithmetics().back().of(dtype).empty()) << name(dtype);
    EXPECT_FALSE(named_arithmetics().front().of(dtype).empty()) << name(dtype);
  }
}

TEST(NamedArithmeticTest, WhatIsNoneIsToldWithThoseThatThereAre) {
  EXPECT_THAT(error_of("gpu", DType::f16), HasSubstr("exact-f32, gpu-16bit, npu-16bit, anything"));
  EXPECT_THAT(error_of("gpu-tf32", DType::f16), HasSubstr("gpu-tf32 says nothing of f16"));
  EXPECT_THAT(error_of("", DType::f16), HasSubstr("no arithmetic is called"));
  EXPECT_THAT(error_of("{", DType::f16), HasSubstr("neither a name nor JSON"));
  EXPECT_THAT(error_of(R"({"p": "f64x"})", DType::f16), HasSubstr("/p: "));
}

TEST(NamedArithmeticTest, JsonMayBeOfOneFormatOfAllOrAWholeDescription) {
  const Description one = description_by(R"({"exp_ulp": 1})", DType::f16);
  const Description all = description_by(R"({"f32": {}, "f16": {"exp_ulp": 1}})", DType::f16);
  EXPECT_EQ(of(one, DType::f16), of(all, DType::f16));
  EXPECT_THAT(error_of(R"({"f32": {}})", DType::f16), HasSubstr("no arithmetic for f16"));
  EXPECT_THAT(error_of(R"({"f32": {}, "fp": {}})", DType::f32),
              HasSubstr("no format is called fp"));
  const std::string whole = R"({"name": "k", "version": "1", "vendor": "v", "profiles": [],
      "dtypes": ["f16", "bf16"], "features": ["lse"], "lse": {"base": 2},
      "beyond_caps": {"bf16": "P in 4 bits"}, "arithmetic": {"f16": {"exp_ulp": 1}}})";
  EXPECT_TRUE(description_by(whole, DType::f16).dialect.lse.base_2);
  EXPECT_THAT(error_of(whole, DType::f32), HasSubstr("it declares no f32"));
  EXPECT_THAT(error_of(whole, DType::bf16), HasSubstr("P in 4 bits"));
}

TEST(NamedArithmeticTest, NumericsNamesThem) {
  std::ifstream file(std::string(ATTEST_SOURCE_DIR) + "/spec/NUMERICS.md");
  std::ostringstream text;
  text << file.rdbuf();
  for (const NamedArithmetic& each : named_arithmetics()) {
    EXPECT_THAT(text.str(), HasSubstr("`" + std::string(each.name) + "`"));
  }
}

TEST(NamedArithmeticTest, AKeyThatStandsTwiceIsAMistake) {
  EXPECT_EQ(error_of(R"({"exp_ulp": 1, "exp_ulp": 2})", DType::f32),
            ": it has the key \"exp_ulp\" twice");
  EXPECT_THAT(error_of("\xEF\xBB\xBF{\"exp_ulp\": 1}", DType::f32),
              HasSubstr("it begins with a byte order mark"));
}

}  // namespace
}  // namespace attest
