#include "spec/arithmetic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {
namespace {

// The format in which `dtype` is accumulated and its softmax computed.
DType wide(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

// One unit in the last place of 1, as the error of exp and tanh is counted: 2^-23 for f32.
double ulp(DType dtype) { return 2 * unit_roundoff(wide(dtype)); }

// tanh.approx.f32: a relative error of 2^-11. f64 has only libraries, within 4 ulp.
double tanh_ulp_cap(DType dtype) { return dtype == DType::f64 ? 4 : 4096; }

constexpr double kExpUlpDefault = 2.25;  // ex2.approx: 2 ulp, and the rounded argument's quarter

// Polynomials made for 16-bit results: FlashAttention-4's exp2 of degree 3 comes to 736 units,
// PyTorch's on the CPU to 419. Where results have more digits nobody computes so.
double exp_ulp_cap(DType dtype) { return dtype == wide(dtype) ? kExpUlpDefault : 1024; }

// FlashAttention-4 keeps a maximum until the scores exceed it by 8 in log2.
constexpr double kMaxLagCap = 8;

// PyTorch's flash kernel on the CPU adds dK and dV in the dtype after 32 queries, or more.
constexpr Index kGradientBlockCap = 32;

// To what the operands of a product in f32 are cut on their way into it.
struct Operands {
  std::string_view name;
  double roundoff;
};
constexpr Operands kOperands[] = {{"exact", 0},
                                  {"tf32", 0x1p-11},
                                  {"tf32_truncated", 0x1p-10},
                                  {"bf16", 0x1p-8},
                                  {"bf16_truncated", 0x1p-7}};

Narrowing narrowing(DType dtype) { return {unit_roundoff(dtype), half_smallest_subnormal(dtype)}; }

Product parse_product(const nlohmann::json& json, DType dtype, const std::string& pointer) {
  ObjectReader reader(json, pointer);
  Product product;
  product.truncates = reader.get_or("truncates", true);
  const auto accumulator =
      reader.get_or<std::string>("accumulator", std::string(name(wide(dtype))));
  const auto wide_format = dtype_named(accumulator);
  if (!wide_format || format_of(*wide_format).digits < format_of(wide(dtype)).digits) {
    throw InputError(reader.pointer("accumulator"),
                     fmt::format("an accumulator of \"{}\" is beyond the cap for {}, which is {}",
                                 accumulator, name(dtype), name(wide(dtype))));
  }
  product.accumulator_roundoff = unit_roundoff(*wide_format) * (product.truncates ? 2 : 1);
  const auto operands = reader.get_or<std::string>("operands", "exact");
  const auto format = std::find_if(std::begin(kOperands), std::end(kOperands),
                                   [&](const Operands& each) { return each.name == operands; });
  if (format == std::end(kOperands) || (dtype != DType::f32 && format != std::begin(kOperands))) {
    std::vector<std::string_view> taken;
    for (const Operands& each : kOperands) taken.push_back(each.name);
    if (dtype != DType::f32) taken.resize(1);
    throw InputError(reader.pointer("operands"),
                     fmt::format("operands rounded to \"{}\" are beyond the cap for {}: they are "
                                 "\"{}\"",
                                 operands, name(dtype), fmt::join(taken, "\", \"")));
  }
  product.operand_roundoff = format->roundoff;
  reader.finish();
  return product;
}

Choice parse_choice(ObjectReader& reader, const std::string& key, const std::string& first,
                    const std::string& last) {
  const nlohmann::json* value = reader.find(key);
  if (!value) return Choice::either;
  if (*value == first) return Choice::first;
  if (*value == last) return Choice::last;
  throw InputError(reader.pointer(key), fmt::format("\"{}\" is \"{}\" or \"{}\", not {}", key,
                                                    first, last, json_text(*value)));
}

// Whether a declaration says the second of two things: the one that nobody has by saying nothing.
bool declares(ObjectReader& reader, const std::string& key, const std::string& usual,
              const std::string& other) {
  return parse_choice(reader, key, usual, other) == Choice::last;
}

// A format at least as wide as the dtype; what is as wide as the accumulator is no narrowing.
Narrowing parse_narrowing(ObjectReader& reader, const std::string& key, DType dtype,
                          const Narrowing& undeclared) {
  if (!reader.find(key)) return undeclared;
  const auto text = reader.get<std::string>(key);
  const auto format = dtype_named(text);
  if (!format || (*format != dtype && format_of(*format).digits < format_of(wide(dtype)).digits)) {
    throw InputError(reader.pointer(key),
                     fmt::format("\"{}\" as \"{}\" is beyond the cap for {}: it may be {} or {}",
                                 key, text, name(dtype), name(dtype), name(wide(dtype))));
  }
  return *format == dtype && dtype != wide(dtype) ? narrowing(dtype) : Narrowing{};
}

// P as it is kept where V is stored in 8 bits: in such a format too, so many times as large.
std::optional<Narrowing> parse_stored_p(ObjectReader& declaration, DType dtype) {
  const nlohmann::json* value = declaration.find("stored_p");
  if (!value) return std::nullopt;
  ObjectReader reader(*value, declaration.pointer("stored_p"));
  const auto text = reader.get<std::string>("format");
  const auto format = element_type_named(text);
  const bool is_stored = format == DType::e4m3 || format == DType::e5m2;
  if (!format || dtype == DType::f64 ||
      (!is_stored && *format != dtype && *format != wide(dtype))) {
    throw InputError(reader.pointer("format"),
                     fmt::format("P is kept in e4m3, e5m2, {} or {}, not in \"{}\"", name(dtype),
                                 name(wide(dtype)), text));
  }
  const auto times = reader.get_or<double>("times", 1);
  if (!(times >= 1 && times <= largest_finite(is_stored ? *format : DType::f16))) {
    throw InputError(reader.pointer("times"),
                     fmt::format("P is kept at least once as large as it is, and within the range "
                                 "of its format, not {} times",
                                 times));
  }
  // A weight of 1 is to be kept as it is.
  if (is_stored && round_to(*format, times) != times) {
    throw InputError(reader.pointer("times"),
                     fmt::format("{} times as large, P of 1 is no number of {}", times, text));
  }
  reader.finish();
  if (*format == wide(dtype)) return Narrowing{};
  return Narrowing{unit_roundoff(*format), half_smallest_subnormal(*format) / times};
}

// What goes beyond the default column, each with what must be declared beside it.
void parse_beyond_default(ObjectReader& reader, Arithmetic& result) {
  const auto needs = [&](const std::string& key, bool met, const std::string& what) {
    if (!met)
      throw InputError(reader.pointer(key), fmt::format("\"{}\" as declared needs {}", key, what));
  };
  const std::string a_key_block = "\"key_block\", of at least 1: the roundings count its blocks";
  const std::string a_narrow_p =
      fmt::format("\"p\" declared as a format narrower than {}", name(wide(result.dtype)));
  const bool narrow_p = reader.find("p") && result.p != Narrowing{};
  needs("exp_ulp", result.exp_error <= kExpUlpDefault * ulp(result.dtype) || result.key_block > 0,
        a_key_block);
  if (declares(reader, "exp_zero", "exact", "inexact")) {
    needs("exp_zero", result.key_block > 0, a_key_block);
    result.exp_zero_inexact = true;
  }
  if (declares(reader, "row_sum", "p", "rounded_p")) {
    needs("row_sum", narrow_p, a_narrow_p);
    needs("row_sum", result.p_normalised == Choice::last,
          "\"p_normalised\" declared as \"last\": a P that is normalised first has no other sum");
    result.sums_rounded_p = true;
  }
  if (declares(reader, "p_rounding", "nearest", "truncated")) {
    needs("p_rounding", narrow_p, a_narrow_p);
    result.truncates_p = true;
    result.p.roundoff *= 2;
    result.p.underflow *= 2;
  }
  result.max_lag = reader.get_or("max_lag", 0.0);
  if (!(result.max_lag >= 0 && result.max_lag <= kMaxLagCap)) {
    throw InputError(reader.pointer("max_lag"),
                     fmt::format("max_lag is within 0 and {}, not {}", kMaxLagCap, result.max_lag));
  }
  result.integer_max = declares(reader, "max_rounding", "exact", "integer");
  if (declares(reader, "block_order", "monotone", "any")) {
    needs("block_order", result.key_block > 0, a_key_block);
    result.any_block_order = true;
  }
  result.gradient_block = reader.get_or<Index>("gradient_block", 0);
  if (result.gradient_block != 0 && result.gradient_block < kGradientBlockCap) {
    throw InputError(reader.pointer("gradient_block"),
                     fmt::format("gradient_block is 0 or at least {}, not {}", kGradientBlockCap,
                                 result.gradient_block));
  }
  result.rounds_head_gradients = declares(reader, "grouped_gradients", "wide", "rounded");
  result.rounds_dbias_terms = declares(reader, "dbias_terms", "wide", "rounded");
}

}  // namespace

Arithmetic loosest(DType dtype) {
  const Product product = {.accumulator_roundoff = 2 * unit_roundoff(wide(dtype)),
                           .truncates = true};
  const Narrowing rounded = dtype == wide(dtype) ? Narrowing{} : narrowing(dtype);
  return {
      .dtype = dtype,
      .qk = product,
      .pv = product,
      .dp = product,
      .dv = product,
      .dq = product,
      .dk = product,
      .softmax_roundoff = 2 * unit_roundoff(wide(dtype)),
      .exp_error = kExpUlpDefault * ulp(dtype),
      .tanh_error = tanh_ulp_cap(dtype) * ulp(dtype),
      .p = rounded,
      .ds = rounded,
      .flushes_inputs = true,
      .flushes_outputs = true,
      .output_rounding = Rounding::faithful,
  };
}

Arithmetic with_stored(const Arithmetic& arithmetic, const Problem& problem, const Inputs& inputs) {
  Arithmetic result = arithmetic;
  const auto round_operands = [&](Product& product) {
    // One after the other: scaled operands may be rounded again.
    product.operand_roundoff =
        (1 + product.operand_roundoff) * (1 + arithmetic.unstored_roundoff) - 1;
  };
  if (problem.stored.q || problem.stored.k) round_operands(result.qk);
  if (problem.stored.v) {
    round_operands(result.pv);
    double least = 1;
    for (const double scale : inputs.v_scale.data) least = std::min(least, scale);
    result.p.underflow /= least;
    if (arithmetic.stored_p) result.p = *arithmetic.stored_p;
  }
  return result;
}

void parse_products(const nlohmann::json& products, const std::string& pointer,
                    Arithmetic& result) {
  ObjectReader reader(products, pointer);
  const auto read = [&](const char* key, Product& product) {
    if (const nlohmann::json* value = reader.find(key)) {
      product = parse_product(*value, result.dtype, reader.pointer(key));
    }
  };
  // "default" stands for every product that is not named.
  for (Product* product :
       {&result.qk, &result.pv, &result.dp, &result.dv, &result.dq, &result.dk}) {
    read("default", *product);
  }
  read("qk", result.qk);
  read("pv", result.pv);
  read("dp", result.dp);
  read("dv", result.dv);
  read("dq", result.dq);
  read("dk", result.dk);
  reader.finish();
}

Arithmetic parse_arithmetic(const nlohmann::json& declaration, DType dtype,
                            const std::string& pointer) {
  ObjectReader reader(declaration, pointer);
  Arithmetic result = loosest(dtype);
  if (const nlohmann::json* products = reader.find("products")) {
    parse_products(*products, reader.pointer("products"), result);
  }
  if (reader.find("softmax")) {
    const auto text = reader.get<std::string>("softmax");
    const auto format = dtype_named(text);
    if (!format || format_of(*format).digits < format_of(wide(dtype)).digits) {
      throw InputError(reader.pointer("softmax"),
                       fmt::format("a softmax in \"{}\" is beyond the cap for {}, which is {}",
                                   text, name(dtype), name(wide(dtype))));
    }
    result.softmax_roundoff = unit_roundoff(*format);
  }
  const auto read_ulps = [&](const char* key, double cap, double& error) {
    if (!reader.find(key)) return;
    const auto ulps = reader.get<double>(key);
    if (!(ulps >= 0.5 && ulps <= cap)) {
      throw InputError(reader.pointer(key),
                       fmt::format("{} is within 0.5 and {}, not {}", key, cap, ulps));
    }
    error = ulps * ulp(dtype);
  };
  read_ulps("exp_ulp", exp_ulp_cap(dtype), result.exp_error);
  read_ulps("tanh_ulp", tanh_ulp_cap(dtype), result.tanh_error);
  result.scores = parse_narrowing(reader, "scores", dtype, result.scores);
  result.p = parse_narrowing(reader, "p", dtype, result.p);
  result.ds = parse_narrowing(reader, "ds", dtype, result.ds);
  result.p_normalised = parse_choice(reader, "p_normalised", "first", "last");
  result.ds_scaled = parse_choice(reader, "ds_scaled", "before_rounding", "after_rounding");
  result.ds_from_p = parse_choice(reader, "ds_from", "p", "rounded_p");
  result.kv_splits = reader.get_or<Index>("kv_splits", result.kv_splits);
  result.rescales_output = reader.get_or("rescales_output", result.rescales_output);
  result.key_block = reader.get_or<Index>("key_block", result.key_block);
  if (result.kv_splits < 0 || result.key_block < 0) {
    throw InputError(pointer, "kv_splits and key_block are counts; 0 means unknown");
  }
  result.flushes_inputs =
      parse_choice(reader, "subnormal_inputs", "flushed", "kept") != Choice::last;
  result.flushes_outputs =
      parse_choice(reader, "subnormal_outputs", "flushed", "kept") != Choice::last;
  if (parse_choice(reader, "output_rounding", "nearest", "faithful") == Choice::first) {
    result.output_rounding = Rounding::nearest;
  }
  result.unstored_roundoff = parse_narrowing(reader, "unstored", dtype, {}).roundoff;
  result.stored_p = parse_stored_p(reader, dtype);
  parse_beyond_default(reader, result);
  result.deterministic = reader.get_or("deterministic", false);
  result.thread_invariant = reader.get_or("thread_invariant", false);
  result.batch_invariant = reader.get_or("batch_invariant", false);
  result.form_invariant = reader.get_or("form_invariant", false);
  reader.finish();
  return result;
}

std::vector<std::string> beyond_default(const Arithmetic& a) {
  const Arithmetic usual = loosest(a.dtype);
  std::vector<std::string> words;
  const auto say = [&](bool beyond, std::string text) {
    if (beyond) words.push_back(std::move(text));
  };
  say(a.exp_error > usual.exp_error, fmt::format("exp of {:g} units", a.exp_error / ulp(a.dtype)));
  say(a.exp_zero_inexact, "exp(0) that is not 1");
  say(a.scores != Narrowing{}, fmt::format("scores kept in {}", name(a.dtype)));
  say(a.sums_rounded_p, "a row sum over rounded P");
  say(a.truncates_p, fmt::format("P truncated to {}", name(a.dtype)));
  say(a.max_lag > usual.max_lag, fmt::format("a maximum that lags by {:g} in log2", a.max_lag));
  say(a.integer_max, "a maximum rounded to an integer");
  say(a.any_block_order, "key blocks in any order");
  say(a.gradient_block != 0,
      fmt::format("dK and dV added in {} after {} query rows", name(a.dtype), a.gradient_block));
  say(a.rounds_head_gradients,
      fmt::format("dK and dV of each query head rounded to {}", name(a.dtype)));
  say(a.rounds_dbias_terms, fmt::format("terms of dBias rounded to {}", name(a.dtype)));
  say(a.unstored_roundoff > 0, fmt::format("operands times their scales in {}", name(a.dtype)));
  say(a.stored_p && a.stored_p->roundoff > unit_roundoff(a.dtype), "P in 8 bits");
  say(a.lse.base_2 && !a.lse.apart, "LSE in base 2");
  say(a.lse.apart,
      fmt::format("maximum{} and sum instead of LSE", a.lse.base_2 ? " in base 2" : ""));
  const std::pair<std::string_view, const Product*> products[] = {{"QK", &a.qk},   {"PV", &a.pv},
                                                                  {"dO V", &a.dp}, {"P dO", &a.dv},
                                                                  {"dS K", &a.dq}, {"dS Q", &a.dk}};
  for (const Operands& format : kOperands) {
    std::vector<std::string_view> rounded;
    for (const auto& [product, how] : products) {
      if (how->operand_roundoff == format.roundoff) rounded.push_back(product);
    }
    say(format.roundoff > 0 && !rounded.empty(),
        fmt::format("operands in {} of {}", format.name, fmt::join(rounded, ", ")));
  }
  return words;
}

}  // namespace attest
