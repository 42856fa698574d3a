// The arithmetic that a testee declares, and the worst that it may declare (SPEC.md, NUM-2;
// NUMERICS.md, sections 2 and 9). The allowed error is computed from it.
//
// A testee describes itself once for each dtype, in JSON:
//
//   "f16": {
//     "products": {"qk": {"accumulator": "f32", "truncates": true}, "pv": {...}, ...},
//     "softmax": "f32",  "exp_ulp": 2,  "p": "f16",  "p_normalised": "last",  ...
//   }
//
// There are two columns. What it leaves out is taken at the *default*, the loosest that nobody has
// to declare. What it declares may go further, up to the *cap*, and is then named beside every
// profile that it meets; beyond the cap it is refused: nobody declares his way to a pass.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "spec/dtype.h"
#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest {

// Rounding to a narrower format: |error| <= max(roundoff |x|, min(underflow, |x|)). Both 0: none.
struct Narrowing {
  double roundoff = 0;   // u_p: 2^-8 for bf16
  double underflow = 0;  // eta_p: half the smallest subnormal, 2^-25 for f16
  friend bool operator==(const Narrowing&, const Narrowing&) = default;
};

// One matrix product: how its operands are rounded beyond their own format (TF32: 2^-11), which
// lies beyond the default column, and the roundoff of its accumulator: 2^-24 for f32 to the
// nearest, 2^-23 if it truncates.
struct Product {
  double operand_roundoff = 0;
  double accumulator_roundoff = 0;
  bool truncates = false;
  friend bool operator==(const Product&, const Product&) = default;
};

// What a testee returns in place of LSE (SPEC.md, chapter "Description", "Dialects").
struct LseForm {
  bool base_2 = false;  // LSE, or the maximum, is in base 2
  bool apart = false;   // a maximum m and a sum l relative to it: LSE = m + log l
  friend bool operator==(const LseForm&, const LseForm&) = default;
};

// What may be declared one way, the other, or not at all.
enum class Choice { first, last, either };

struct Arithmetic {
  DType dtype = DType::f32;
  // The forward products QK^T and PV, and the backward's dO.V^T, P^T.dO, dS.K and dS^T.Q.
  Product qk, pv, dp, dv, dq, dk;
  double softmax_roundoff = 0;           // u_s: of each operation of the softmax
  double exp_error = 0;                  // e_x: largest relative error of the exponential function
  double tanh_error = 0;                 // e_tanh: largest relative error of tanh, of a softcap
  Narrowing scores = {};                 // of scores, after each step of them; beyond the default
  Narrowing p = {};                      // rounding of P before PV (and before P^T.dO)
  Choice p_normalised = Choice::either;  // P divided by its sum before PV (first) or after (last)
  Narrowing ds = {};                     // rounding of dS before its products
  Choice ds_scaled = Choice::either;  // the scale is applied before dS is rounded (first) or after
  Choice ds_from_p = Choice::either;  // dS formed from P (first) or from the rounded P (last)
  Index kv_splits = 0;          // 1: one pass over the keys; n: at most n, merged by LSE; 0: any
  bool rescales_output = true;  // O renormalised in every block, as FlashAttention-1 does
  Index key_block = 0;          // keys in one step of an online softmax; 0: unknown
  // What is declared or not done: nobody is allowed these by saying nothing.
  bool exp_zero_inexact = false;  // exp(0) is off by as much as exp is anywhere
  bool sums_rounded_p = false;    // the row sum is that of the rounded P
  bool truncates_p = false;       // P is cut to its format; `p` says how much that is
  double max_lag = 0;             // log2 of how far the largest score may pass the running maximum
  bool integer_max = false;       // the running maximum is rounded to an integer, in log2
  bool any_block_order = false;   // key blocks come in any order, not up or down alone
  Index gradient_block = 0;  // query rows after which dK and dV are stored in the dtype; 0: all
  bool rounds_head_gradients = false;  // dK and dV of each query head, before the group's sum
  bool rounds_dbias_terms = false;     // each dS to the dtype, before they are summed to dBias
  bool flushes_inputs = false;         // subnormal inputs are taken as 0
  bool flushes_outputs = false;        // subnormal results become 0
  // Of problems whose operands are stored in fewer bits: in which format a number is kept that is
  // multiplied by its scale, and P where V is stored so. None: in that of the softmax, and as `p`.
  double unstored_roundoff = 0;
  std::optional<Narrowing> stored_p = {};
  Rounding output_rounding = Rounding::nearest;
  LseForm lse = {};               // declared of all formats at once
  bool deterministic = false;     // the same call gives the same bits (DET-1)
  bool thread_invariant = false;  // the same bits for any number of threads (DET-3)
  bool batch_invariant = false;   // and whatever else is in the batch (DET-2)
  bool form_invariant = false;    // and in whichever form it is asked (DET-4 to DET-7)
  friend bool operator==(const Arithmetic&, const Arithmetic&) = default;
};

// The loosest arithmetic that `dtype` has by saying nothing: the column "default" of NUMERICS.md.
Arithmetic loosest(DType dtype);

// The same where some operands of `problem` are stored in fewer bits: what it says of such becomes
// what it says of P and of products. P in 16 bits may be rounded once it is multiplied by the
// scales of V.
Arithmetic with_stored(const Arithmetic& arithmetic, const Problem& problem, const Inputs& inputs);

// What of an arithmetic lies beyond the default column, in words: "exp of 736 units".
std::vector<std::string> beyond_default(const Arithmetic& arithmetic);

// Reads a declaration for `dtype`. Throws InputError, with a pointer below `pointer`, for unknown
// keys, malformed values, whatever exceeds the caps, and what lacks a key that it needs beside it.
Arithmetic parse_arithmetic(const nlohmann::json& declaration, DType dtype,
                            const std::string& pointer);

}  // namespace attest
