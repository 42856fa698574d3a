// What correct attention kernels differ in. Each style declares its arithmetic truthfully; those
// with a Fault do not.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "spec/arithmetic.h"
#include "spec/dialect.h"
#include "tests/bounds/random.h"
#include "tests/bounds/sums.h"

namespace attest::bounds {

enum ProductIndex { kQk, kPv, kDp, kDv, kDq, kDk };

// The error of a function, as a share of what is declared for it.
enum class Error {
  rounded,    // the nearest number
  scattered,  // anything within
  high,       // always as large as may be
  low,
};

struct Style {
  std::string name;

  // Products and sums.
  Order order = Order::sequential;
  int operand_digits = 0;            // to which operands of products are rounded; 0: not at all
  unsigned rounded_products = 0x3f;  // which: a bit for each ProductIndex

  // Softmax.
  Index block = 0;            // keys of a step of the online softmax; 0: the whole row at once
  bool renormalises = false;  // O in every step, as FlashAttention-1
  double lag = 0;             // O is rescaled only when the maximum has grown by more than this
  // The maximum as a whole number of powers of two, where scores are in units of log 2.
  enum class Whole { no, up, down } whole_maximum = Whole::no;
  bool any_order = false;      // blocks of keys: every second, and then the others, backwards
  bool sums_narrow_p = false;  // the row sum is that of P as it is narrowed
  Index splits = 1;            // parts of the keys, merged by their LSE
  bool merges_by_lse = false;  // parts weigh exp(LSE_part - LSE), rather than a share of their sum
  bool merges_natural_lse = false;  // each of these two in natural units first
  bool base_2 = false;              // scores in units of log 2
  double exp_ulps = 0.5;
  Error exp_error = Error::rounded;
  double narrow_exp_ulps = 0;     // of 16-bit formats, where it is another
  bool exp_zero_inexact = false;  // exp(0) is off as much as any other
  bool stores_scores = false;     // after each step, in the format of the inputs
  bool adds_masks = false;        // of -inf to the scores of masked keys, as to any other
  bool narrows = true;            // P and dS to a 16-bit format
  bool normalises_p = false;      // before it is narrowed
  bool truncates_p = false;       // where it is narrowed
  // Where V is stored in 8 bits: P in e4m3, so many times as large; 0: as elsewhere.
  double p_in_8_bits = 0;
  bool narrows_unstored = false;  // what is stored so, times its scale, to the problem's format
  // What the scale multiplies; `exponent`: s c - m c in one fma, c the scale times log2(e), where
  // nothing comes between the product and the softmax, and c = log2(e) otherwise.
  enum class Scale { product, query, both, exponent } scale = Scale::product;
  // That exponent is 0 for the largest score and never above: m c is rounded, and at large scores
  // so far that s c - m c alone is anything but 0.
  bool clamps_exponent = false;
  bool sums_bias = false;     // bias and ALiBi as terms of the sum q k, if that is scaled before
  bool divides_bias = false;  // or not: they are divided by the scale
  enum class Sink { first, last, merged } sink = Sink::first;
  bool merges_lone_sink = false;  // with the keys, even where these are not split
  bool keeps_maximum = false;     // a sink that comes last is the maximum only if far above it
  bool folds_cap = false;         // scale / softcap as one factor
  bool slope_from_score = false;  // the derivative of the softcap, from the score that it leaves
  bool coarse_tanh = false;       // within the cap
  Error tanh_error = Error::rounded;
  bool drops_first = true;  // 1 / (1 - p) multiplies P before it is narrowed; else the sum
  bool drops_sums = false;  // not dP either, but D, dQ, dK and the terms of dBias

  // Formats.
  bool flushes_inputs = false;
  bool flushes_outputs = false;
  bool truncates_output = false;

  // Backward.
  bool d_by_key = false;    // D = sum P dP rather than sum dO O
  bool p_from_sum = false;  // exp(s - m) / l rather than exp(s - L)
  enum class ScaleDs { before, after, operand } scale_ds = ScaleDs::after;  // narrowing, or K and Q
  bool ds_from_narrow_p = false;
  bool folds_d_lse = false;         // dP - (D - dLSE)
  bool narrows_dbias = false;       // the dS that it is the sum of; not if they are scaled before
  bool rounds_dbias_terms = false;  // the same to the format of the bias, whatever dS is
  Index gradient_block = 0;         // query rows, after which dK and dV are stored; 0: all
  bool rounds_head_gradients = false;     // dK and dV of each query head, before they are added up
  Order outer_order = Order::sequential;  // of dBias and dSink

  // What it says otherwise than the standard: LSE, rows without keys, the ends of windows.
  LseForm lse = {};
  std::optional<double> empty_o = {}, empty_lse = {}, empty_maximum = {}, empty_sum = {};
  WindowEnds window = {};

  // Breaks what is declared.
  enum class Fault {
    none,
    exp_error,
    sum_in_bf16,
    unscaled_dropout,
    sink_twice,
    no_cap_slope,
    no_rescale,    // of O and the sum, when the maximum grows
    capped_bias,   // adds it before the softcap
    half_of_dbias  // without every other row
  };
  Fault fault = Fault::none;
};

// The named ones; those with a fault, which are not correct; and any mixture of what is allowed.
std::vector<Style> correct_styles();
std::vector<Style> faulty_styles();
Style mixed_style(Random& random);

// The choices of a style, for a reader who wants to know what a mixture was.
std::string describe(const Style& style);

Arithmetic declared(const Style& style, DType dtype);

}  // namespace attest::bounds
