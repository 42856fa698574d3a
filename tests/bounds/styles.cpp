#include <fmt/format.h>

#include <array>

#include "tests/bounds/kernel.h"

namespace attest::bounds {

std::vector<Style> correct_styles() {
  using Scale = Style::Scale;
  using ScaleDs = Style::ScaleDs;
  using Sink = Style::Sink;
  return {
      {.name = "naive"},
      {.name = "naive, P normalised, exp(s-m)/l, D by key",
       .order = Order::pairwise,
       .normalises_p = true,
       .d_by_key = true,
       .p_from_sum = true,
       .ds_from_narrow_p = true,
       .narrows_dbias = true},
      {.name = "naive, sqrt(scale) on Q and K",
       .order = Order::reversed,
       .normalises_p = true,
       .scale = Scale::both,
       .sums_bias = true,
       .scale_ds = ScaleDs::operand,
       .outer_order = Order::pairwise},
      {.name = "fa2 1", .order = Order::fused, .block = 1, .scale_ds = ScaleDs::before},
      {.name = "fa2 16, exp2", .order = Order::lanes, .block = 16, .base_2 = true},
      {.name = "fa2 64, exp2 2 ulp, scale in Q",
       .order = Order::reversed,
       .block = 64,
       .base_2 = true,
       .exp_ulps = 2,
       .exp_error = Error::scattered,
       .scale = Scale::query,
       .coarse_tanh = true,
       .tanh_error = Error::scattered,
       .drops_first = false,
       .scale_ds = ScaleDs::before,
       .ds_from_narrow_p = true},
      {.name = "fa2 128, exp 2 ulp high",
       .order = Order::fused,
       .block = 128,
       .exp_ulps = 2,
       .exp_error = Error::high,
       .sink = Sink::last,
       .coarse_tanh = true,
       .tanh_error = Error::high},
      {.name = "fa2 16, exp2 2 ulp low",
       .block = 16,
       .base_2 = true,
       .exp_ulps = 2,
       .exp_error = Error::low,
       .folds_cap = true,
       .coarse_tanh = true,
       .tanh_error = Error::low,
       .drops_first = false,
       .folds_d_lse = true},
      {
          .name = "fa2 64, exp2(s c - m c)",
          .order = Order::fused,
          .block = 64,
          .base_2 = true,
          .scale = Scale::exponent,
          .sink = Sink::last,
      },
      {.name = "fa2 16, lagging maximum",
       .order = Order::fused,
       .block = 16,
       .lag = 5.5,
       .base_2 = true},
      {.name = "fa1 16", .block = 16, .renormalises = true, .sink = Sink::last, .d_by_key = true},
      {.name = "fa1 64",
       .order = Order::pairwise,
       .block = 64,
       .renormalises = true,
       .drops_first = false,
       .p_from_sum = true},
      {.name = "2 splits", .order = Order::fused, .block = 16, .splits = 2, .sink = Sink::last},
      {.name = "4 splits, exp2",
       .order = Order::lanes,
       .block = 16,
       .splits = 4,
       .base_2 = true,
       .drops_first = false},
      {.name = "16 splits, sink merged",
       .order = Order::pairwise,
       .splits = 16,
       .sink = Sink::merged},
      {.name = "4 splits, weights exp(LSE_part - LSE)",
       .order = Order::fused,
       .block = 16,
       .splits = 4,
       .merges_by_lse = true,
       .sink = Sink::merged},
      {.name = "matrix unit of 4",
       .order = Order::truncated_4,
       .block = 16,
       .base_2 = true,
       .exp_ulps = 2,
       .exp_error = Error::scattered,
       .coarse_tanh = true,
       .tanh_error = Error::scattered},
      {.name = "matrix unit of 8",
       .order = Order::truncated_8,
       .block = 64,
       .base_2 = true,
       .scale = Scale::query,
       .drops_first = false,
       .d_by_key = true,
       .scale_ds = ScaleDs::before},
      {.name = "matrix unit of 16, fa1",
       .order = Order::truncated_16,
       .block = 16,
       .renormalises = true},
      {.name = "matrix unit of 16, naive", .order = Order::truncated_16, .normalises_p = true},
      {.name = "accumulated wider", .order = Order::wide, .block = 16},
      {.name = "P and dS not narrowed", .order = Order::fused, .block = 16, .narrows = false},
      {.name = "scores stored, masks added, P normalised",
       .order = Order::pairwise,
       .stores_scores = true,
       .adds_masks = true,
       .normalises_p = true},
      {.name = "scores stored in base 2, scale in Q",
       .order = Order::truncated_8,
       .block = 64,
       .base_2 = true,
       .stores_scores = true,
       .scale = Scale::query,
       .slope_from_score = true},
      {.name = "scores stored, 4 splits, lagging maximum, flushed",
       .order = Order::fused,
       .block = 16,
       .lag = 5.5,
       .any_order = true,
       .splits = 4,
       .merges_by_lse = true,
       .stores_scores = true,
       .scale = Scale::exponent,
       .sink = Sink::merged,
       .coarse_tanh = true,
       .flushes_inputs = true,
       .flushes_outputs = true,
       .d_by_key = true},
      {.name = "operands of 11 digits", .order = Order::fused, .operand_digits = 11, .block = 16},
      {.name = "operands of 8 digits",
       .order = Order::lanes,
       .operand_digits = 8,
       .block = 64,
       .scale = Scale::query,
       .d_by_key = true},
      {.name = "operands of 11 digits in QK and dP",
       .operand_digits = 11,
       .rounded_products = 0b000101,
       .normalises_p = true,
       .p_from_sum = true},
      {.name = "subnormals flushed",
       .order = Order::fused,
       .block = 16,
       .flushes_inputs = true,
       .flushes_outputs = true},
      {.name = "subnormal inputs flushed, P normalised",
       .order = Order::pairwise,
       .normalises_p = true,
       .flushes_inputs = true,
       .d_by_key = true},
      {.name = "subnormal outputs flushed, scale in Q",
       .block = 64,
       .scale = Scale::query,
       .flushes_outputs = true,
       .scale_ds = ScaleDs::before},
      {.name = "output truncated", .order = Order::lanes, .block = 16, .truncates_output = true},
      {.name = "fa2 4, lagging by 18",  // in units of log 2, which is beyond the caps
       .order = Order::fused,
       .block = 4,
       .lag = 12.4,
       .base_2 = true,
       .narrows = false},
      // What is declared or not done.
      {.name = "sums over rounded P",
       .order = Order::fused,
       .block = 64,
       .sums_narrow_p = true,
       .base_2 = true},
      {.name = "exp of 736 units in 16 bits",
       .order = Order::fused,
       .block = 64,
       .base_2 = true,
       .exp_ulps = 2,
       .exp_error = Error::scattered,
       .narrow_exp_ulps = 736},
      {.name = "exp of 419 units low, exp(0) too",
       .order = Order::lanes,
       .block = 16,
       .exp_ulps = 2,
       .exp_error = Error::low,
       .narrow_exp_ulps = 419,
       .exp_zero_inexact = true},
      {.name = "P truncated", .order = Order::lanes, .block = 16, .truncates_p = true},
      {.name = "maximum rounded up",
       .order = Order::fused,
       .block = 16,
       .whole_maximum = Style::Whole::up,
       .base_2 = true},
      {.name = "maximum rounded down, lagging, 2 splits",
       .order = Order::pairwise,
       .block = 16,
       .lag = 5,
       .whole_maximum = Style::Whole::down,
       .splits = 2,
       .base_2 = true,
       .sink = Sink::last},
      {.name = "blocks in any order", .order = Order::truncated_8, .block = 1, .any_order = true},
      {.name = "gradients stored every 3 queries",
       .order = Order::fused,
       .block = 16,
       .gradient_block = 3},
      {.name = "gradients of each head rounded",
       .order = Order::lanes,
       .block = 64,
       .base_2 = true,
       .rounds_head_gradients = true},
      {.name = "terms of dBias rounded",
       .order = Order::pairwise,
       .narrows = false,
       .rounds_dbias_terms = true},
      {.name = "all of it",
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
       .gradient_block = 2},
  };
}

std::vector<Style> faulty_styles() {
  using Fault = Style::Fault;
  return {
      {.name = "fault: exp 64 ulp, declared 0.5",
       .exp_error = Error::high,
       .fault = Fault::exp_error},
      {.name = "fault: row sum in bf16", .block = 16, .fault = Fault::sum_in_bf16},
      {.name = "fault: dropout without 1/(1-p)",
       .drops_first = false,
       .fault = Fault::unscaled_dropout},
      {.name = "fault: the sink in every split", .splits = 4, .fault = Fault::sink_twice},
      {.name = "fault: no derivative of the softcap", .fault = Fault::no_cap_slope},
  };
}

Style mixed_style(Random& random) {
  const auto coin = [&] { return random.chance(0.5); };
  constexpr std::array kOrders = {Order::sequential,  Order::fused,        Order::reversed,
                                  Order::pairwise,    Order::lanes,        Order::truncated_4,
                                  Order::truncated_8, Order::truncated_16, Order::wide};
  constexpr std::array kOuterOrders = {Order::sequential, Order::reversed, Order::pairwise,
                                       Order::lanes};
  constexpr std::array kErrors = {Error::rounded, Error::scattered, Error::high, Error::low};
  Style style = {.name = "any mixture"};
  style.order = random.pick(kOrders);
  if (random.chance(0.1)) {
    style.operand_digits = coin() ? 11 : 8;
    style.rounded_products = static_cast<unsigned>(random.below(64));
  }
  style.block = random.pick(std::array<Index, 6>{0, 1, 4, 16, 64, 128});
  style.renormalises = random.chance(0.25);
  if (!style.renormalises && style.block > 0 && random.chance(0.2)) style.lag = 5.5;
  style.splits = random.pick(std::array<Index, 6>{1, 1, 1, 2, 4, 16});
  style.merges_by_lse = coin();
  style.base_2 = coin();
  if (coin()) {
    style.exp_ulps = 2;
    style.exp_error = random.pick(kErrors);
  }
  style.narrows = random.chance(0.9);
  style.normalises_p = style.block == 0 && !style.renormalises && coin();
  style.scale = random.pick(std::array{Style::Scale::product, Style::Scale::query,
                                       Style::Scale::both, Style::Scale::exponent});
  // P that is normalised has to know the sink beforehand.
  style.sink =
      style.normalises_p
          ? Style::Sink::first
          : random.pick(std::array{Style::Sink::first, Style::Sink::last, Style::Sink::merged});
  style.sums_bias = style.operand_digits == 0 && coin();
  style.folds_cap = coin();
  if (coin()) {
    style.coarse_tanh = true;
    style.tanh_error = random.pick(kErrors);
  }
  style.drops_first = coin();
  style.flushes_inputs = random.chance(0.2);
  style.flushes_outputs = random.chance(0.2);
  style.truncates_output = random.chance(0.1);
  style.d_by_key = coin();
  style.p_from_sum = coin();
  style.scale_ds = random.pick(
      std::array{Style::ScaleDs::before, Style::ScaleDs::after, Style::ScaleDs::operand});
  style.ds_from_narrow_p = coin();
  style.folds_d_lse = coin();
  style.narrows_dbias = style.scale_ds != Style::ScaleDs::before && coin();
  style.outer_order = random.pick(kOuterOrders);
  // Dropped P, of up to ten times 16, stays within the range.
  if (style.lag == 0 && coin()) style.p_in_8_bits = random.pick(std::array{1.0, 16.0});
  style.narrows_unstored = coin();
  if (random.chance(0.7)) return style;
  // What is declared or not done.
  const auto seldom = [&] { return random.chance(0.25); };
  style.any_order = style.block > 0 && seldom();
  style.sums_narrow_p = style.narrows && !style.normalises_p && seldom();
  style.truncates_p = seldom();
  if (style.base_2 && seldom()) {
    style.whole_maximum = coin() ? Style::Whole::up : Style::Whole::down;
  }
  if (style.block > 0 && seldom()) style.narrow_exp_ulps = 1000;
  style.exp_zero_inexact = style.block > 0 && seldom();
  if (seldom()) style.gradient_block = random.pick(std::array<Index, 4>{1, 2, 5, 32});
  style.rounds_head_gradients = style.gradient_block == 0 && seldom();
  style.rounds_dbias_terms = seldom();
  return style;
}

std::string describe(const Style& style) {
  constexpr std::array kOrders = {"sequential", "fused",       "reversed",    "pairwise",
                                  "lanes",      "truncated 4", "truncated 8", "truncated 16",
                                  "wide",       "fused lanes"};
  constexpr std::array kErrors = {"", " scattered", " high", " low"};
  constexpr std::array kScales = {"", ", scale in Q", ", scale in Q and K",
                                  ", scale in the exponent"};
  constexpr std::array kSinks = {"", ", sink last", ", sink merged"};
  constexpr std::array kScaleDs = {", dS scaled before", "", ", K and Q scaled"};
  const auto pick = [](const auto& list, auto value) {
    return list[static_cast<std::size_t>(value)];
  };
  std::string text = fmt::format("{}, block {}", pick(kOrders, style.order), style.block);
  const auto add = [&](bool does, const char* what) {
    if (does) text += fmt::format(", {}", what);
  };
  if (style.operand_digits > 0) {
    text += fmt::format(", operands of {} digits (products {:#x})", style.operand_digits,
                        style.rounded_products);
  }
  add(style.renormalises, "renormalises");
  if (style.lag > 0) text += fmt::format(", lag {}", style.lag);
  if (style.splits > 1) text += fmt::format(", {} splits", style.splits);
  add(style.splits > 1 && style.merges_by_lse, "merges by LSE");
  add(style.merges_natural_lse, "in natural units");
  add(style.base_2, "base 2");
  text += fmt::format(", exp {} ulp{}", style.exp_ulps, pick(kErrors, style.exp_error));
  add(style.narrow_exp_ulps > 0, "1000 or fewer in 16 bits");
  add(style.exp_zero_inexact, "exp(0) inexact");
  add(style.whole_maximum == Style::Whole::up, "maximum rounded up");
  add(style.whole_maximum == Style::Whole::down, "maximum rounded down");
  add(style.any_order, "blocks in any order");
  add(style.stores_scores, "scores stored");
  add(style.adds_masks, "masks added");
  add(style.sums_narrow_p, "sums over narrow P");
  add(style.truncates_p, "P truncated");
  add(style.p_in_8_bits > 0, "P in e4m3");
  add(style.narrows_unstored, "scaled numbers narrowed");
  add(style.gradient_block > 0, "gradients stored");
  add(style.rounds_head_gradients, "gradients of heads rounded");
  add(style.rounds_dbias_terms, "terms of dBias rounded");
  add(!style.narrows, "P and dS not narrowed");
  add(style.normalises_p, "P normalised");
  text += fmt::format("{}{}", pick(kScales, style.scale), pick(kSinks, style.sink));
  add(style.sums_bias, "bias in the sum");
  add(style.divides_bias, "bias divided by the scale");
  add(style.folds_cap, "cap folded");
  add(style.slope_from_score, "slope of the cap from the score");
  if (style.coarse_tanh) text += fmt::format(", coarse tanh{}", pick(kErrors, style.tanh_error));
  add(!style.drops_first, "dropout scaled last");
  add(style.drops_sums, "in the gradients too");
  add(style.keeps_maximum, "which rarely is the maximum");
  add(style.flushes_inputs, "flushes inputs");
  add(style.flushes_outputs, "flushes outputs");
  add(style.truncates_output, "truncates output");
  add(style.d_by_key, "D by key");
  add(style.p_from_sum, "P from sum");
  text += pick(kScaleDs, style.scale_ds);
  add(style.ds_from_narrow_p, "dS from narrow P");
  add(style.folds_d_lse, "dLSE folded");
  add(style.narrows_dbias, "dBias from narrow dS");
  return text + fmt::format(", outer {}", pick(kOrders, style.outer_order));
}

}  // namespace attest::bounds
