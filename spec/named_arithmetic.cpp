#include "spec/named_arithmetic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {
namespace {

constexpr NamedArithmetic kNamed[] = {
    {.name = "exact-f32",
     .what = "computed in f32 (f64 of f64), rounded to the nearest, nothing narrower on the way",
     .f64 = R"({"products": {"default": {"truncates": false}}, "softmax": "f64",
                "subnormal_inputs": "kept", "subnormal_outputs": "kept",
                "output_rounding": "nearest"})",
     .f32 = R"({"products": {"default": {"truncates": false}}, "softmax": "f32",
                "subnormal_inputs": "kept", "subnormal_outputs": "kept",
                "output_rounding": "nearest"})",
     .f16 = R"({"products": {"default": {"truncates": false}}, "softmax": "f32",
                "p": "f32", "ds": "f32", "subnormal_inputs": "kept",
                "subnormal_outputs": "kept", "output_rounding": "nearest"})",
     .bf16 = R"({"products": {"default": {"truncates": false}}, "softmax": "f32",
                 "p": "f32", "ds": "f32", "subnormal_inputs": "kept",
                 "subnormal_outputs": "kept", "output_rounding": "nearest"})",
     .why = "IEEE 754, as processors and NumPy have it; exp is the default's, which is looser than "
            "that of libraries"},
    {.name = "gpu-16bit",
     .what = "f16 and bf16 on tensor cores: f32 accumulators that truncate, P and dS in 16 bits",
     .f64 = "",
     .f32 = "",
     .f16 = R"({"key_block": 16, "block_order": "any", "max_lag": 8,
                "grouped_gradients": "rounded", "dbias_terms": "rounded"})",
     .bf16 = R"({"key_block": 16, "block_order": "any", "max_lag": 8,
                 "grouped_gradients": "rounded", "dbias_terms": "rounded"})",
     .why = "the default column; FlashAttention-4's maximum that lags by 8, FlexAttention's order "
            "of blocks, the gradients of flash-attention 2 and cuDNN, autograd's bias. Not the "
            "polynomials for exp (736 units in FlashAttention-4): those are declared"},
    {.name = "gpu-tf32",
     .what = "f32 on tensor cores: operands cut to TF32, all else in f32",
     .f64 = "",
     .f32 = R"({"products": {"default": {"operands": "tf32_truncated"}}, "key_block": 16,
                "block_order": "any", "grouped_gradients": "rounded"})",
     .f16 = "",
     .bf16 = "",
     .why = "Triton's input_precision is tf32 unless told otherwise; FlexAttention takes partial "
            "blocks first, of 16 keys or more"},
    {.name = "npu-16bit",
     .what = "matrix units that take 16 bits alone: exp by a polynomial, integer maxima, f32 cut "
             "to bf16",
     .f64 = "",
     .f32 = R"({"products": {"default": {"operands": "bf16_truncated"}}, "key_block": 64,
                "max_rounding": "integer", "grouped_gradients": "rounded"})",
     .f16 = R"({"exp_ulp": 1024, "key_block": 64, "max_rounding": "integer",
                "grouped_gradients": "rounded", "dbias_terms": "rounded"})",
     .bf16 = R"({"exp_ulp": 1024, "key_block": 64, "max_rounding": "integer",
                 "grouped_gradients": "rounded", "dbias_terms": "rounded"})",
     .why = "XLA's default precision on a TPU is one pass in bf16; AMLA rescales by adding to "
            "exponents; polynomials made for 16 bits; tiles of 64 keys or more"},
    {.name = "anything",
     .what = "whatever may be declared, up to the caps: what fails here is wrong on any hardware",
     .f64 = R"({"key_block": 16, "exp_zero": "inexact", "max_lag": 8, "max_rounding": "integer",
                "block_order": "any", "gradient_block": 32, "grouped_gradients": "rounded",
                "dbias_terms": "rounded"})",
     .f32 = R"({"products": {"default": {"operands": "bf16_truncated"}}, "key_block": 16,
                "stored_p": {"format": "e5m2"},
                "exp_zero": "inexact", "max_lag": 8, "max_rounding": "integer",
                "block_order": "any", "gradient_block": 32, "grouped_gradients": "rounded",
                "dbias_terms": "rounded"})",
     .f16 = R"({"scores": "f16", "unstored": "f16", "stored_p": {"format": "e5m2"},
                 "exp_ulp": 1024, "key_block": 16, "exp_zero": "inexact",
                "p": "f16", "p_rounding": "truncated", "max_lag": 8, "max_rounding": "integer",
                "block_order": "any", "gradient_block": 32, "grouped_gradients": "rounded",
                "dbias_terms": "rounded"})",
     .bf16 = R"({"scores": "bf16", "unstored": "bf16", "stored_p": {"format": "e5m2"},
                  "exp_ulp": 1024, "key_block": 16, "exp_zero": "inexact",
                 "p": "bf16", "p_rounding": "truncated", "max_lag": 8, "max_rounding": "integer",
                 "block_order": "any", "gradient_block": 32, "grouped_gradients": "rounded",
                 "dbias_terms": "rounded"})",
     .why = "the caps, but for a row sum over the rounded P, which excludes the other order; steps "
            "of 16 keys or more"},
};

// The names that say something of that format.
std::vector<std::string> names_for(DType dtype) {
  std::vector<std::string> names;
  for (const NamedArithmetic& each : kNamed) {
    if (!each.of(dtype).empty()) names.emplace_back(each.name);
  }
  return names;
}

}  // namespace

std::string_view NamedArithmetic::of(DType dtype) const {
  switch (dtype) {
    case DType::f64:
      return f64;
    case DType::f32:
      return f32;
    case DType::f16:
      return f16;
    case DType::bf16:
      return bf16;
    case DType::e4m3:
    case DType::e5m2:
    case DType::int8:
      break;  // no problem is of these
  }
  return {};
}

std::span<const NamedArithmetic> named_arithmetics() { return kNamed; }

nlohmann::json declaration_named(std::string_view name, DType dtype) {
  for (const NamedArithmetic& each : kNamed) {
    if (each.name != name) continue;
    if (!each.of(dtype).empty()) return parse_json(each.of(dtype));
    throw InputError("", fmt::format("{} says nothing of {}; what does: {}", name,
                                     attest::name(dtype), fmt::join(names_for(dtype), ", ")));
  }
  throw InputError(
      "", fmt::format("no arithmetic is called \"{}\"; for {} there are {}, or JSON as "
                      "a description has it",
                      name.substr(0, 40), attest::name(dtype), fmt::join(names_for(dtype), ", ")));
}

}  // namespace attest
