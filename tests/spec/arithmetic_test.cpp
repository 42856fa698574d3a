#include "spec/arithmetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "spec/json_reader.h"

namespace attest {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
    const bool narrow = format_of(dtype).bytes == 2;
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

// The default column, written out: what a kernel is judged by that declares nothing. It may grow
// tighter, never looser.
TEST(ArithmeticTest, TheDefaultColumnIsBitForBitWhatItWas) {
  const auto column = [](DType dtype, double u, double exp, double tanh, Narrowing narrow) {
    const Product product = {0, u, true};
    return Arithmetic{.dtype = dtype,
                      .qk = product,
                      .pv = product,
                      .dp = product,
                      .dv = product,
                      .dq = product,
                      .dk = product,
                      .softmax_roundoff = u,
                      .exp_error = exp,
                      .tanh_error = tanh,
                      .p = narrow,
                      .p_normalised = Choice::either,
                      .ds = narrow,
                      .ds_scaled = Choice::either,
                      .ds_from_p = Choice::either,
                      .kv_splits = 0,
                      .rescales_output = true,
                      .key_block = 0,
                      .exp_zero_inexact = false,
                      .sums_rounded_p = false,
                      .truncates_p = false,
                      .max_lag = 0,
                      .integer_max = false,
                      .any_block_order = false,
                      .gradient_block = 0,
                      .rounds_head_gradients = false,
                      .rounds_dbias_terms = false,
                      .flushes_inputs = true,
                      .flushes_outputs = true,
                      .output_rounding = Rounding::faithful,
                      .deterministic = false,
                      .thread_invariant = false,
                      .batch_invariant = false};
  };
  EXPECT_EQ(loosest(DType::f64), column(DType::f64, 0x1p-52, 0x1.2p-51, 0x1p-50, {}));
  EXPECT_EQ(loosest(DType::f32), column(DType::f32, 0x1p-23, 0x1.2p-22, 0x1p-11, {}));
  EXPECT_EQ(loosest(DType::f16),
            column(DType::f16, 0x1p-23, 0x1.2p-22, 0x1p-11, {0x1p-11, 0x1p-25}));
  EXPECT_EQ(loosest(DType::bf16),
            column(DType::bf16, 0x1p-23, 0x1.2p-22, 0x1p-11, {0x1p-8, 0x1p-134}));
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

TEST(ArithmeticTest, WhatLiesBeyondTheDefaultIsReadKeyByKey) {
  const auto with = [](const json& declaration, const auto& change) {
    Arithmetic expected = loosest(DType::bf16);
    change(expected);
    EXPECT_EQ(parse(declaration, DType::bf16), expected) << declaration;
  };
  const auto key_block = [](Arithmetic& a) { a.key_block = 64; };
  with({{"exp_ulp", 1024}, {"key_block", 64}}, [&](Arithmetic& a) {
    key_block(a);
    a.exp_error = 0x1p-13;
  });
  with({{"exp_zero", "inexact"}, {"key_block", 64}}, [&](Arithmetic& a) {
    key_block(a);
    a.exp_zero_inexact = true;
  });
  with({{"row_sum", "rounded_p"}, {"p", "bf16"}, {"p_normalised", "last"}}, [](Arithmetic& a) {
    a.p_normalised = Choice::last;
    a.sums_rounded_p = true;
  });
  with({{"p_rounding", "truncated"}, {"p", "bf16"}}, [](Arithmetic& a) {
    a.truncates_p = true;
    a.p = {0x1p-7, 0x1p-133};
  });
  with({{"scores", "bf16"}}, [](Arithmetic& a) { a.scores = {0x1p-8, 0x1p-134}; });
  with({{"max_lag", 8}}, [](Arithmetic& a) { a.max_lag = 8; });
  with({{"max_lag", 5.5}}, [](Arithmetic& a) { a.max_lag = 5.5; });
  with({{"max_rounding", "integer"}}, [](Arithmetic& a) { a.integer_max = true; });
  with({{"block_order", "any"}, {"key_block", 64}}, [&](Arithmetic& a) {
    key_block(a);
    a.any_block_order = true;
  });
  with({{"gradient_block", 32}}, [](Arithmetic& a) { a.gradient_block = 32; });
  with({{"grouped_gradients", "rounded"}}, [](Arithmetic& a) { a.rounds_head_gradients = true; });
  with({{"dbias_terms", "rounded"}}, [](Arithmetic& a) { a.rounds_dbias_terms = true; });
}

TEST(ArithmeticTest, DeclaringTheUsualOfWhatMayGoBeyondChangesNothing) {
  for (const DType dtype : kDTypes) {
    EXPECT_EQ(parse({{"scores", dtype == DType::f64 ? "f64" : "f32"},
                     {"exp_zero", "exact"},
                     {"row_sum", "p"},
                     {"p_rounding", "nearest"},
                     {"max_lag", 0},
                     {"max_rounding", "exact"},
                     {"block_order", "monotone"},
                     {"gradient_block", 0},
                     {"grouped_gradients", "wide"},
                     {"dbias_terms", "wide"}},
                    dtype),
              loosest(dtype));
  }
}

TEST(ArithmeticTest, WhatLiesBeyondTheDefaultNamesWhatItsBoundNeeds) {
  const auto needs = [](const json& declaration, const char* key, const char* needed,
                        DType dtype = DType::f16) {
    EXPECT_THAT(declaration_error(declaration, dtype),
                AllOf(HasSubstr(std::string("/a/") + key + ": "), HasSubstr(needed)))
        << declaration << " " << name(dtype);
  };
  needs({{"exp_ulp", 2.5}}, "exp_ulp", "\"key_block\"");
  needs({{"exp_ulp", 736}, {"key_block", 0}}, "exp_ulp", "\"key_block\"");
  needs({{"exp_zero", "inexact"}}, "exp_zero", "\"key_block\"");
  needs({{"block_order", "any"}}, "block_order", "\"key_block\"");
  needs({{"row_sum", "rounded_p"}, {"p_normalised", "last"}}, "row_sum", "\"p\" declared");
  needs({{"row_sum", "rounded_p"}, {"p", "f32"}, {"p_normalised", "last"}}, "row_sum",
        "narrower than f32");
  needs({{"row_sum", "rounded_p"}, {"p", "f32"}, {"p_normalised", "last"}}, "row_sum",
        "narrower than f32", DType::f32);
  needs({{"row_sum", "rounded_p"}, {"p", "f16"}}, "row_sum", "\"p_normalised\"");
  needs({{"row_sum", "rounded_p"}, {"p", "f16"}, {"p_normalised", "first"}}, "row_sum",
        "\"p_normalised\"");
  needs({{"p_rounding", "truncated"}}, "p_rounding", "\"p\" declared");
  needs({{"p_rounding", "truncated"}, {"p", "f64"}}, "p_rounding", "narrower than f64", DType::f64);
}

TEST(ArithmeticTest, WhatLiesBeyondTheDefaultIsSaidInWords) {
  for (const DType dtype : kDTypes) EXPECT_THAT(beyond_default(loosest(dtype)), IsEmpty());
  // What is tighter than the default is not beyond it, and what says how is not either.
  EXPECT_THAT(beyond_default(parse({{"exp_ulp", 0.5}, {"p", "f32"}, {"key_block", 64}})),
              IsEmpty());
  EXPECT_THAT(beyond_default(parse({{"exp_ulp", 736},
                                    {"exp_zero", "inexact"},
                                    {"key_block", 128},
                                    {"row_sum", "rounded_p"},
                                    {"p", "bf16"},
                                    {"p_normalised", "last"},
                                    {"p_rounding", "truncated"},
                                    {"max_lag", 5.5},
                                    {"max_rounding", "integer"},
                                    {"block_order", "any"},
                                    {"gradient_block", 32},
                                    {"grouped_gradients", "rounded"},
                                    {"dbias_terms", "rounded"}},
                                   DType::bf16)),
              ElementsAre("exp of 736 units", "exp(0) that is not 1", "a row sum over rounded P",
                          "P truncated to bf16", "a maximum that lags by 5.5 in log2",
                          "a maximum rounded to an integer", "key blocks in any order",
                          "dK and dV added in bf16 after 32 query rows",
                          "dK and dV of each query head rounded to bf16",
                          "terms of dBias rounded to bf16"));
}

TEST(ArithmeticTest, OperandsOfF32MayBeRoundedIfThatIsSaid) {
  const json tf32 = {{"operands", "tf32"}}, cut = {{"operands", "bf16_truncated"}};
  const Arithmetic a = parse({{"products", {{"qk", tf32}, {"pv", tf32}, {"dk", cut}}}}, DType::f32);
  EXPECT_EQ(a.qk.operand_roundoff, 0x1p-11);
  EXPECT_EQ(a.dk.operand_roundoff, 0x1p-7);
  EXPECT_EQ(a.dp, loosest(DType::f32).dp);
  EXPECT_THAT(beyond_default(a),
              ElementsAre("operands in tf32 of QK, PV", "operands in bf16_truncated of dS Q"));
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

TEST(ArithmeticTest, WhatIsSaidOfNumbersOf8BitsHoldsWhereThereAreSome) {
  const Arithmetic a = parse(
      {{"p", "f32"}, {"unstored", "bf16"}, {"stored_p", {{"format", "e4m3"}, {"times", 256}}}},
      DType::bf16);
  Problem problem = {.dtype = DType::bf16};
  EXPECT_EQ(with_stored(a, problem, {}), a);
  problem.stored = {.q = Stored{}, .k = Stored{}};
  Arithmetic of_scores = a;
  of_scores.qk.operand_roundoff = 0x1p-8;
  EXPECT_EQ(with_stored(a, problem, {}), of_scores);
  problem.stored = {.k = Stored{}, .v = Stored{}};
  Arithmetic of_both = of_scores;
  of_both.pv.operand_roundoff = 0x1p-8;
  of_both.p = {0x1p-4, 0x1p-10 / 256};
  EXPECT_EQ(with_stored(a, problem, {}), of_both);
  // Who says nothing has P as elsewhere, and operands in f32.
  const Arithmetic silent = parse({{"p", "bf16"}}, DType::bf16);
  EXPECT_EQ(with_stored(silent, problem, {}), silent);
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
  for (const DType dtype : {DType::f64, DType::f16, DType::bf16}) {
    beyond({{"products", {{"qk", {{"operands", "tf32"}}}}}}, dtype, "/products/qk/operands");
  }
  beyond({{"products", {{"qk", {{"operands", "fp8"}}}}}}, DType::f32, "/products/qk/operands");
  beyond({{"exp_ulp", 2.26}}, DType::f32, "/exp_ulp");
  beyond({{"exp_ulp", 0.25}}, DType::f32, "/exp_ulp");
  for (const DType dtype : {DType::f32, DType::f64}) {
    beyond({{"exp_ulp", 2.5}, {"key_block", 64}}, dtype, "/exp_ulp");
  }
  for (const DType dtype : {DType::f16, DType::bf16}) {
    beyond({{"exp_ulp", 1025}, {"key_block", 64}}, dtype, "/exp_ulp");
  }
  beyond({{"unstored", "f16"}}, DType::bf16, "/unstored");
  beyond({{"unstored", "e4m3"}}, DType::bf16, "/unstored");
  beyond({{"stored_p", {{"format", "f16"}}}}, DType::bf16, "/stored_p/format");
  beyond({{"stored_p", {{"format", "e4m3"}}}}, DType::f64, "/stored_p/format");
  beyond({{"stored_p", {{"format", "e4m3"}, {"times", 449}}}}, DType::f16, "/stored_p/times");
  beyond({{"stored_p", {{"format", "e4m3"}, {"times", 0.5}}}}, DType::f16, "/stored_p/times");
  beyond({{"max_lag", 8.01}}, DType::f16, "/max_lag");
  beyond({{"max_lag", -1}}, DType::f16, "/max_lag");
  beyond({{"gradient_block", 31}}, DType::f16, "/gradient_block");
  beyond({{"gradient_block", -32}}, DType::f16, "/gradient_block");
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
  for (const char* key : {"exp_zero", "row_sum", "p_rounding", "max_lag", "max_rounding",
                          "block_order", "gradient_block", "grouped_gradients", "dbias_terms"}) {
    EXPECT_THAT(declaration_error({{key, "perhaps"}}), HasSubstr(std::string("/a/") + key + ": "));
    EXPECT_THAT(declaration_error({{key, true}}), HasSubstr(std::string("/a/") + key + ": "));
  }
  EXPECT_THAT(declaration_error(json::array()), HasSubstr("expected an object"));
}

}  // namespace
}  // namespace attest
