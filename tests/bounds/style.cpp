#include "tests/bounds/style.h"

#include <cmath>
#include <numbers>

namespace attest::bounds {

Arithmetic declared(const Style& style, DType dtype) {
  const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
  const double u = unit_roundoff(wide);
  const double widest = wide == DType::f64 ? 0x1p-64 : 0x1p-53;
  const auto product = [&](int index) {
    const bool rounds = style.operand_digits > 0 && (style.rounded_products >> index & 1);
    return Product{.operand_roundoff = rounds ? std::ldexp(1.0, -style.operand_digits) : 0,
                   .accumulator_roundoff = style.order == Order::wide ? widest
                                           : truncates(style.order)   ? 2 * u
                                                                      : u,
                   .truncates = truncates(style.order)};
  };
  const bool narrow_format = dtype != wide, narrows = style.narrows && narrow_format;
  const Narrowing narrowing = narrows ? Narrowing{.roundoff = unit_roundoff(dtype),
                                                  .underflow = half_smallest_subnormal(dtype)}
                                      : Narrowing{};
  const double cut = narrows && style.truncates_p ? 2 : 1;
  const bool whole = style.base_2 && style.whole_maximum != Style::Whole::no &&
                     style.scale != Style::Scale::exponent;
  return {
      .dtype = dtype,
      .qk = product(kQk),
      .pv = product(kPv),
      .dp = product(kDp),
      .dv = product(kDv),
      .dq = product(kDq),
      .dk = product(kDk),
      .softmax_roundoff = u,
      .exp_error =
          (narrow_format && style.narrow_exp_ulps > 0 ? style.narrow_exp_ulps : style.exp_ulps) *
          2 * u,
      .tanh_error = style.coarse_tanh ? loosest(dtype).tanh_error : 2 * u,
      .scores = style.stores_scores && narrow_format
                    ? Narrowing{unit_roundoff(dtype), half_smallest_subnormal(dtype)}
                    : Narrowing{},
      .p = {cut * narrowing.roundoff, cut * narrowing.underflow},
      .p_normalised = style.normalises_p ? Choice::first : Choice::last,
      .ds = narrowing,
      .ds_scaled = style.scale_ds == Style::ScaleDs::before ? Choice::first : Choice::last,
      .ds_from_p = style.ds_from_narrow_p ? Choice::last : Choice::first,
      .kv_splits = style.splits,
      .rescales_output = style.renormalises,
      .key_block = style.block == 0 ? Index(1) << 30 : style.block,  // all of them at once
      .exp_zero_inexact = style.exp_zero_inexact,
      .sums_rounded_p = narrows && style.sums_narrow_p,
      .truncates_p = cut == 2,
      .max_lag = style.lag * std::numbers::log2e,
      .integer_max = whole,
      .any_block_order = style.any_order,
      .gradient_block = style.gradient_block,
      .rounds_head_gradients = style.rounds_head_gradients,
      .rounds_dbias_terms = style.rounds_dbias_terms,
      .flushes_inputs = style.flushes_inputs,
      .flushes_outputs = style.flushes_outputs,
      .unstored_roundoff = style.narrows_unstored && narrow_format ? unit_roundoff(dtype) : 0,
      .stored_p =
          style.p_in_8_bits > 0 && dtype != DType::f64
              ? std::optional(Narrowing{unit_roundoff(DType::e4m3),
                                        half_smallest_subnormal(DType::e4m3) / style.p_in_8_bits})
              : std::nullopt,
      .output_rounding = style.truncates_output ? Rounding::faithful : Rounding::nearest,
      .lse = style.lse,
  };
}

}  // namespace attest::bounds
