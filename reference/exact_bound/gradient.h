// One row of the backward pass: section 4 of NUMERICS.md up to t_j, and the terms of dBias and
// dSink; but for the sums over keys and rows.
#pragma once

#include <vector>

#include "reference/exact_bound/row.h"
#include "reference/exact_bound/symbols.h"

namespace attest::exact_bound {

struct Gradient {
  const Row& row;
  Real D = 0, E_D = 0;

  // Of each key that is seen.
  std::vector<Real> dp = {}, xi = {};    // dP and its error
  std::vector<Real> r = {}, psi = {};    // errors of P: relative, and of its rounding
  std::vector<Real> X = {}, f_raw = {};  // dS is p X; f_raw: f without g
  std::vector<Real> ds = {};             // dS g
  std::vector<Real> e = {}, f = {}, sigma = {}, t = {};
};

// Of a row that sees some key.
Gradient gradient_of(const Symbols& symbols, const Row& row);

// A term of a sum over rows, and its error.
struct Term {
  Real value, error;
};
// What a row gives to dBias through the t-th key that it sees: dS, and f + t of that.
Term dbias_term(const Symbols& symbols, const Gradient& of_row, Index t);
// What a row gives to dSink: p_z (lambda - D). D is 0 in a row without keys, and E_D is z.
Term dsink_term(const Symbols& symbols, const Row& row, Real D, Real E_D);

}  // namespace attest::exact_bound
