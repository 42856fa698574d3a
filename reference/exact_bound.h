// The bounds once more, as NUMERICS.md states them: one loop for each sum, in the order of its
// sections, nothing packed, skipped or shared. They are meant to be read; `working` computes the
// same fast, and is held to this by tests/reference/bound_test. The two have no formula in common,
// but what spec/ says of formats and masks, and roundoff.h.
//
//   exact_bound/symbols   section 1: what follows from problem and declaration alone
//   exact_bound/view      a row's numbers, wherever they lie
//   exact_bound/row       sections 2 and 3: one row forward, B_O and B_L
//   exact_bound/gradient  section 4: one row backward, up to dS
//   exact_bound.cpp       section 4: the sums over keys and rows
//
// Not here: excerpts; of section 8 numbers that are not finite, and sums that may overflow (but for
// an O that may overflow its own format). Where scores are too large for SOFTMAX-2 the bound is
// that of SOFTMAX-3.
#pragma once

#include <vector>

#include "spec/arithmetic.h"
#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest::exact_bound {

using Real = long double;

// The bound B of each element: how far the exact value may lie from the rounding cell of a correct
// result, in the unit of the tensor. Infinity where anything is allowed; 0 of what sees nothing, or
// is not seen. In dense order, of the shapes that Expected (expected.h) has.
struct Forward {
  std::vector<Real> o, lse;
};
struct Backward {
  std::vector<Real> dq, dk, dv;
  std::vector<Real> dbias = {}, dsink = {};  // empty if there is none
};

// `problem` must be well formed, `inputs` of its shapes and what is visible of them finite; no
// error is told. In the time of a few hundred plain kernels.
Forward forward(const Problem& problem, const Inputs& inputs, const Arithmetic& arithmetic);
Backward backward(const Problem& problem, const Inputs& inputs, const Arithmetic& arithmetic);

}  // namespace attest::exact_bound
