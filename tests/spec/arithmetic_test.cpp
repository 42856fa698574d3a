#include "spec/arithmetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "spec/json_reader.h"

namespace attest {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

Arithmetic parse(const json& declaration, DType dtype = DType::f16) {
  return parse_arithmetic(declaration, dtype, "/a");
}

std::string declaration_error(const json& declaration, DType dtype = DType::f16) {
  try {
    parse(declaration, dtype);
  } catch (const InputError& error) {
    return error.pointer() + ": " + error.what();
  }
  return "";
}

TEST(ArithmeticTest, WhatIsNotDeclaredIsTakenAtTheLoosest) {
  for (const DType dtype : kDTypes) EXPECT_EQ(parse(json::object(), dtype), loosest(dtype));
}

TEST(ArithmeticTest, TheLoosestAccumulatesInTheWideFormatAndTruncates) {
  for (const DType dtype : kDTypes) {
    const Arithmetic a = loosest(dtype);
    const double roundoff = std::ldexp(1.0, dtype == DType::f64 ? -52 : -23);
    for (const Product* product : {&a.qk, &a.pv, &a.dp, &a.dv, &a.dq, &a.dk}) {
      EXPECT_EQ(*product, (Product{.accumulator_roundoff = roundoff, .truncates = true}));
    }
    EXPECT_EQ(a.softmax_roundoff, roundoff);
    EXPECT_EQ(a.exp_error, 2.25 * roundoff);
    EXPECT_EQ(a.tanh_error, (dtype == DType::f64 ? 4 : 4096) * roundoff);
    EXPECT_FALSE(a.thread_invariant || a.batch_invariant);
    const bool narrow = dtype == DType::f16 || dtype == DType::bf16;
    EXPECT_EQ(a.p.roundoff, narrow ? unit_roundoff(dtype) : 0);
    EXPECT_EQ(a.p.underflow, narrow ? half_smallest_subnormal(dtype) : 0);
    EXPECT_EQ(a.ds, a.p);
    EXPECT_EQ(a.kv_splits, 0);
    EXPECT_TRUE(a.rescales_output && a.flushes_inputs && a.flushes_outputs && !a.deterministic);
    EXPECT_EQ(a.output_rounding, Rounding::faithful);
    for (const Choice choice : {a.p_normalised, a.ds_scaled, a.ds_from_p}) {
      EXPECT_EQ(choice, Choice::either);
    }
  }
}

TEST(ArithmeticTest, EveryKeyIsRead) {
  const Arithmetic a = parse({{"softmax", "f32"},
                              {"exp_ulp", 1},
                              {"p", "f32"},
                              {"ds", "f16"},
                              {"p_normalised", "last"},
                              {"ds_scaled", "before_rounding"},
                              {"ds_from", "rounded_p"},
                              {"kv_splits", 4},
                              {"rescales_output", false},
                              {"key_block", 64},
                              {"subnormal_inputs", "kept"},
                              {"subnormal_outputs", "kept"},
                              {"output_rounding", "nearest"},
                              {"tanh_ulp", 2},
                              {"deterministic", true},
                              {"thread_invariant", true},
                              {"batch_invariant", true}});
  EXPECT_EQ(a.softmax_roundoff, std::ldexp(1.0, -24));
  EXPECT_EQ(a.exp_error, std::ldexp(1.0, -23));
  EXPECT_EQ(a.p, Narrowing{});
  EXPECT_EQ(a.ds, (Narrowing{std::ldexp(1.0, -11), std::ldexp(1.0, -25)}));
  EXPECT_EQ(a.p_normalised, Choice::last);
  EXPECT_EQ(a.ds_scaled, Choice::first);
  EXPECT_EQ(a.ds_from_p, Choice::last);
  EXPECT_EQ(a.kv_splits, 4);
  EXPECT_FALSE(a.rescales_output);
  EXPECT_EQ(a.key_block, 64);
  EXPECT_FALSE(a.flushes_inputs);
  EXPECT_FALSE(a.flushes_outputs);
  EXPECT_EQ(a.output_rounding, Rounding::nearest);
  EXPECT_EQ(a.tanh_error, std::ldexp(1.0, -22));
  EXPECT_TRUE(a.deterministic && a.thread_invariant && a.batch_invariant);
  EXPECT_EQ(a.dtype, DType::f16);
}

TEST(ArithmeticTest, DeclaringTheLooseSideOfAChoiceChangesNothing) {
  EXPECT_EQ(parse({{"subnormal_inputs", "flushed"},
                   {"subnormal_outputs", "flushed"},
                   {"output_rounding", "faithful"},
                   {"rescales_output", true},
                   {"exp_ulp", 2.25},
                   {"tanh_ulp", 4096},
                   {"thread_invariant", false},
                   {"batch_invariant", false},
                   {"kv_splits", 0},
                   {"key_block", 0},
                   {"p", "f16"},
                   {"deterministic", false}}),
            loosest(DType::f16));
  EXPECT_EQ(parse({{"p_normalised", "first"}}).p_normalised, Choice::first);
  EXPECT_EQ(parse({{"ds_scaled", "after_rounding"}}).ds_scaled, Choice::last);
  EXPECT_EQ(parse({{"ds_from", "p"}}).ds_from_p, Choice::first);
}

TEST(ArithmeticTest, ADefaultHoldsForAllProductsThatAreNotNamed) {
  const json nearest = {{"accumulator", "f32"}, {"truncates", false}};
  const Arithmetic a = parse({{"products", {{"default", nearest}, {"pv", {{"truncates", true}}}}}});
  for (const Product* product : {&a.qk, &a.dp, &a.dv, &a.dq, &a.dk}) {
    EXPECT_EQ(*product, (Product{.accumulator_roundoff = std::ldexp(1.0, -24)}));
  }
  EXPECT_EQ(a.pv, loosest(DType::f16).pv);
}

TEST(ArithmeticTest, EachProductHasItsName) {
  const std::map<std::string, Product Arithmetic::*> products = {
      {"qk", &Arithmetic::qk}, {"pv", &Arithmetic::pv}, {"dp", &Arithmetic::dp},
      {"dv", &Arithmetic::dv}, {"dq", &Arithmetic::dq}, {"dk", &Arithmetic::dk}};
  for (const auto& [name, product] : products) {
    Arithmetic expected = loosest(DType::f32);
    (expected.*product) = {.accumulator_roundoff = std::ldexp(1.0, -53)};
    EXPECT_EQ(
        parse({{"products", {{name, {{"accumulator", "f64"}, {"truncates", false}}}}}}, DType::f32),
        expected)
        << name;
  }
}

TEST(ArithmeticTest, NobodyDeclaresBeyondTheCaps) {
  const auto beyond = [](const json& declaration, DType dtype, const char* pointer) {
    EXPECT_THAT(declaration_error(declaration, dtype),
                HasSubstr(std::string("/a") + pointer + ": "))
        << declaration << " " << name(dtype);
  };
  for (const char* narrow : {"f16", "bf16", "fp8", ""}) {
    for (const DType dtype : kDTypes) {
      beyond({{"products", {{"qk", {{"accumulator", narrow}}}}}}, dtype,
             "/products/qk/accumulator");
      beyond({{"softmax", narrow}}, dtype, "/softmax");
    }
  }
  beyond({{"softmax", "f32"}}, DType::f64, "/softmax");
  beyond({{"products", {{"default", {{"accumulator", "f32"}}}}}}, DType::f64,
         "/products/default/accumulator");
  beyond({{"products", {{"qk", {{"operands", "tf32"}}}}}}, DType::f32, "/products/qk/operands");
  beyond({{"exp_ulp", 2.26}}, DType::f32, "/exp_ulp");
  beyond({{"exp_ulp", 0.25}}, DType::f32, "/exp_ulp");
  beyond({{"tanh_ulp", 4097}}, DType::f32, "/tanh_ulp");
  beyond({{"tanh_ulp", 5}}, DType::f64, "/tanh_ulp");
  beyond({{"tanh_ulp", 0.25}}, DType::f32, "/tanh_ulp");
  beyond({{"p", "bf16"}}, DType::f16, "/p");
  beyond({{"p", "f16"}}, DType::f32, "/p");
  beyond({{"ds", "f16"}}, DType::bf16, "/ds");
  beyond({{"ds", "f32"}}, DType::f64, "/ds");
  beyond({{"kv_splits", -1}}, DType::f32, "");
  beyond({{"key_block", -1}}, DType::f32, "");
}

TEST(ArithmeticTest, IsReadStrictly) {
  EXPECT_THAT(declaration_error({{"exp_ulps", 2}}), HasSubstr("/a/exp_ulps: unknown key"));
  EXPECT_THAT(declaration_error({{"products", {{"kq", json::object()}}}}),
              HasSubstr("/a/products/kq: unknown key"));
  EXPECT_THAT(declaration_error({{"products", {{"qk", {{"width", 3}}}}}}),
              HasSubstr("/a/products/qk/width: unknown key"));
  EXPECT_THAT(declaration_error({{"exp_ulp", "nan"}}), HasSubstr("/a/exp_ulp: "));
  EXPECT_THAT(declaration_error({{"p_normalised", "never"}}), HasSubstr("\"first\" or \"last\""));
  EXPECT_THAT(declaration_error({{"deterministic", 1}}), HasSubstr("/a/deterministic: "));
  EXPECT_THAT(declaration_error(json::array()), HasSubstr("expected an object"));
}

}  // namespace
}  // namespace attest
