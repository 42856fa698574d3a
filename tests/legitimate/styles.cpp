#include "tests/legitimate/styles.h"
#include "spec/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace attest::legitimate {
namespace {

using bounds::Error;
using bounds::Order;
using bounds::Style;

// Beside those of tests/bounds.
std::vector<Style> more_styles() {
  using Scale = Style::Scale;
  using ScaleDs = Style::ScaleDs;
  using Sink = Style::Sink;
  return {
      {.name = "naive, pairwise", .order = Order::pairwise, .d_by_key = true},
      {.name = "naive, reversed, exp2",
       .order = Order::reversed,
       .base_2 = true,
       .scale_ds = ScaleDs::before},
      {.name = "naive, fma, P normalised, dS from narrow P",
       .order = Order::fused,
       .normalises_p = true,
       .scale_ds = ScaleDs::before,
       .ds_from_narrow_p = true},
      {.name = "naive, accumulated wider, P normalised",
       .order = Order::wide,
       .normalises_p = true,
       .outer_order = Order::pairwise},
      {.name = "fa2 2", .block = 2, .base_2 = true, .d_by_key = true},
      {.name = "fa2 8, reversed", .order = Order::reversed, .block = 8, .sink = Sink::last},
      {.name = "fa2 32, exp 2 ulp scattered",
       .order = Order::lanes,
       .block = 32,
       .exp_ulps = 2,
       .exp_error = Error::scattered,
       .scale = Scale::query,
       .outer_order = Order::lanes},
      {.name = "fa2 256, pairwise, exp2",
       .order = Order::pairwise,
       .block = 256,
       .base_2 = true,
       .scale_ds = ScaleDs::operand},
      {.name = "fa2 32, exp2 2 ulp low, scale in Q and K",
       .order = Order::lanes,
       .block = 32,
       .base_2 = true,
       .exp_ulps = 2,
       .exp_error = Error::low,
       .scale = Scale::both},
      {.name = "fa2 64, lagging by 5.5, dropout last",
       .order = Order::lanes,
       .block = 64,
       .lag = 5.5,
       .drops_first = false,
       .folds_d_lse = true},
      {.name = "fa2 128, lagging by 1, not narrowed",
       .order = Order::fused,
       .block = 128,
       .lag = 1,
       .base_2 = true,
       .narrows = false},
      {.name = "fa2 32, cap folded, coarse tanh high",
       .order = Order::fused,
       .block = 32,
       .folds_cap = true,
       .coarse_tanh = true,
       .tanh_error = Error::high,
       .ds_from_narrow_p = true},
      {.name = "fa2 8, bias in the sum, D folded",
       .block = 8,
       .scale = Scale::query,
       .sums_bias = true,
       .folds_d_lse = true,
       .narrows_dbias = true},
      {.name = "fa2 16, accumulated wider, exp2, output truncated",
       .order = Order::wide,
       .block = 16,
       .base_2 = true,
       .truncates_output = true},
      {.name = "fa1 1", .order = Order::fused, .block = 1, .renormalises = true},
      {.name = "fa1 128, exp2",
       .order = Order::lanes,
       .block = 128,
       .renormalises = true,
       .base_2 = true,
       .scale = Scale::both,
       .scale_ds = ScaleDs::operand},
      {.name = "3 splits, reversed", .order = Order::reversed, .block = 32, .splits = 3},
      {.name = "fa2 128, 8-bit P",
       .order = Order::lanes,
       .block = 128,
       .base_2 = true,
       .p_in_8_bits = 16,
       .narrows_unstored = true},
      {.name = "8 splits, scale in Q, exp2",
       .order = Order::lanes,
       .block = 32,
       .splits = 8,
       .base_2 = true,
       .scale = Scale::query,
       .sink = Sink::merged},
      {.name = "5 splits of lagging fa2",
       .order = Order::pairwise,
       .block = 4,
       .lag = 3,
       .splits = 5,
       .merges_by_lse = true,
       .sink = Sink::last,
       .d_by_key = true},
      {.name = "fa2 64, s c - m c in one fma, clamped",
       .order = Order::lanes,
       .block = 64,
       .base_2 = true,
       .scale = Scale::exponent,
       .clamps_exponent = true},
      {.name = "gradients stored every 32 queries",
       .order = Order::fused,
       .block = 32,
       .gradient_block = 32},
      {.name = "all of it, and 32 queries",
       .order = Order::fused,
       .block = 4,
       .lag = 5,
       .whole_maximum = Style::Whole::up,
       .any_order = true,
       .sums_narrow_p = true,
       .base_2 = true,
       .exp_ulps = 2,
       .exp_error = Error::high,
       .narrow_exp_ulps = 1000,
       .exp_zero_inexact = true,
       .truncates_p = true,
       .rounds_dbias_terms = true,
       .gradient_block = 32},
      {.name = "matrix unit of 16, 2 splits, fa2 64",
       .order = Order::truncated_16,
       .block = 64,
       .splits = 2,
       .base_2 = true},
  };
}

// Those that say otherwise than the standard what LSE, rows without keys and windows are.
std::vector<Style> styles_in_dialect() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return {
      {.name = "LSE in base 2, +inf in empty rows, windows exclusive",
       .exp_error = Error::scattered,
       .lse = {.base_2 = true},
       .empty_lse = kInfinity,
       .window = {.left_exclusive = true, .right_exclusive = true}},
      {.name =
           "fa2 16, exp2, LSE in base 2 of empty rows -1e30, O 1, windows exclusive on the left",
       .order = Order::lanes,
       .block = 16,
       .base_2 = true,
       .scale = Style::Scale::query,
       .lse = {.base_2 = true},
       .empty_o = 1,
       .empty_lse = -1e30,
       .window = {.left_exclusive = true, .unbounded = -1}},
      {.name = "3 splits, maximum and sum, windows by their width",
       .order = Order::fused,
       .block = 32,
       .splits = 3,
       .sink = Style::Sink::last,
       .lse = {.apart = true},
       .empty_maximum = -1e30,
       .window = {.centred = true, .unbounded = 0}},
      {.name = "lagging by 3, exp2, maximum in base 2 and sum, 0 and 1 in empty rows",
       .order = Order::pairwise,
       .block = 8,
       .lag = 3,
       .base_2 = true,
       .p_from_sum = true,
       .lse = {.base_2 = true, .apart = true},
       .empty_maximum = 0,
       .empty_sum = 1},
      {.name = "LSE 0 in empty rows", .order = Order::truncated_16, .block = 64, .empty_lse = 0},
  };
}

// Gradients that are stored more often than every 32 queries are beyond the caps, as is a maximum
// that lags by more than 8 in log2.
bool is_legitimate(const Style& style) {
  return style.lag <= 5.5 && (style.gradient_block == 0 || style.gradient_block >= 32);
}

// Drawn at random from all that is legal, so that choices meet which no list brings together.
std::vector<Style> mixtures(std::size_t count) {
  std::vector<Style> styles;
  bounds::Random random(1, 0);
  while (styles.size() < count) {
    Style style = bounds::mixed_style(random);
    if (style.gradient_block > 0) style.gradient_block = 32;
    if (!is_legitimate(style) || style.operand_digits > 0) continue;
    style.name = fmt::format("mixture {}", styles.size() + 1);
    styles.push_back(std::move(style));
  }
  return styles;
}

}  // namespace

std::vector<Style> legitimate_styles() {
  std::vector<Style> styles = bounds::correct_styles();
  std::erase_if(styles, [](const Style& style) { return !is_legitimate(style); });
  for (const std::vector<Style>& more : {more_styles(), mixtures(24), styles_in_dialect()}) {
    styles.insert(styles.end(), more.begin(), more.end());
  }
  return styles;
}

// Operands of a product are rounded further in f32 alone.
Style in_format(Style style, DType dtype) {
  if (dtype != DType::f32) style.operand_digits = 0;
  return style;
}

std::string dialect_json(const Style& style) {
  nlohmann::json json = nlohmann::json::object();
  if (style.lse.base_2) json["lse"]["base"] = 2;
  if (style.lse.apart) json["lse"]["as"] = "maximum_and_sum";
  const auto say = [&](const char* key, double value) {
    nlohmann::json& to = json["empty_rows"][key];
    if (std::isinf(value)) {
      to = value > 0 ? "inf" : "-inf";
    } else {
      to = value;
    }
  };
  if (style.empty_o) say("o", *style.empty_o);
  if (style.empty_lse) say("lse", *style.empty_lse);
  if (style.empty_maximum) say("maximum", *style.empty_maximum);
  if (style.empty_maximum) say("sum", style.empty_sum.value_or(0));
  const WindowEnds usual, &ends = style.window;
  if (ends.left_exclusive) json["window"]["left"] = "exclusive";
  if (ends.right_exclusive) json["window"]["right"] = "exclusive";
  if (ends.centred) json["window"]["said_by"] = "width";
  if (ends.unbounded != usual.unbounded) json["window"]["unbounded"] = ends.unbounded;
  return json_text(json);
}

std::string arithmetic_json(const Style& given, DType dtype) {
  const Style style = in_format(given, dtype);
  const std::string wide(name(dtype == DType::f64 ? DType::f64 : DType::f32));
  const std::string narrow(style.narrows ? name(dtype) : wide);
  nlohmann::json json = {
      {"products",
       {{"default",
         {{"accumulator", style.order == Order::wide ? "f64" : wide},
          {"truncates", bounds::truncates(style.order)}}}}},
      {"softmax", wide},
      {"p", narrow},
      {"ds", narrow},
      {"p_normalised", style.normalises_p ? "first" : "last"},
      {"ds_scaled",
       style.scale_ds == Style::ScaleDs::before ? "before_rounding" : "after_rounding"},
      {"ds_from", style.ds_from_narrow_p ? "rounded_p" : "p"},
      {"kv_splits", style.splits},
      {"rescales_output", style.renormalises},
      {"key_block", style.block == 0 ? Index(1) << 30 : style.block},  // 0: all of them at once
      {"subnormal_inputs", style.flushes_inputs ? "flushed" : "kept"},
      {"subnormal_outputs", style.flushes_outputs ? "flushed" : "kept"},
      {"output_rounding", style.truncates_output ? "faithful" : "nearest"},
      {"deterministic", true},
      {"thread_invariant", true},
      {"batch_invariant", true}};
  if (!style.coarse_tanh) json["tanh_ulp"] = 1;  // else as coarse as any may be
  // What is declared or not done.
  const Arithmetic said = bounds::declared(style, dtype);
  if (style.stores_scores) json["scores"] = name(dtype);
  json["exp_ulp"] = said.exp_error / (2 * unit_roundoff(dtype == DType::f64 ? dtype : DType::f32));
  if (said.exp_zero_inexact) json["exp_zero"] = "inexact";
  if (said.sums_rounded_p) json["row_sum"] = "rounded_p";
  if (said.truncates_p) json["p_rounding"] = "truncated";
  if (said.unstored_roundoff > 0) json["unstored"] = name(dtype);
  if (said.stored_p && dtype != DType::f64) {
    json["stored_p"] = {{"format", "e4m3"}, {"times", style.p_in_8_bits}};
  }
  if (said.max_lag > 0) json["max_lag"] = said.max_lag;
  if (said.integer_max) json["max_rounding"] = "integer";
  if (said.any_block_order) json["block_order"] = "any";
  if (said.gradient_block > 0) json["gradient_block"] = said.gradient_block;
  if (said.rounds_head_gradients) json["grouped_gradients"] = "rounded";
  if (said.rounds_dbias_terms) json["dbias_terms"] = "rounded";
  for (const auto& [product, how] : {std::pair{"qk", &said.qk},
                                     {"pv", &said.pv},
                                     {"dp", &said.dp},
                                     {"dv", &said.dv},
                                     {"dq", &said.dq},
                                     {"dk", &said.dk}}) {
    if (how->operand_roundoff == 0) continue;
    json["products"][product] = json["products"]["default"];
    json["products"][product]["operands"] = style.operand_digits == 11 ? "tf32" : "bf16";
  }
  return json_text(json);
}

}  // namespace attest::legitimate
