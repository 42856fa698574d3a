// One row of the forward pass: sections 2 and 3 of NUMERICS.md.
#pragma once

#include <vector>

#include "reference/exact_bound/symbols.h"
#include "reference/exact_bound/view.h"

namespace attest::exact_bound {

struct Row {
  View view;

  // Of each key that is seen, by t from 0 to n - 1.
  std::vector<Index> key = {};  // j
  std::vector<Real> s = {}, eps = {}, g = {}, eps_g = {}, zeta = {}, p = {};
  std::vector<Real> kappa = {}, y = {}, pi = {};  // pi: of rounding P
  bool exact = false;  // every weight is exactly 1, and every sum is exact
  bool guess = false;  // the reference's own scores may be off by 2^-6
  Real p_z = 0, y_z = 0, kappa_z = 0, chi = 0;

  Real m = 0, l = 0, L = 0;
  Real R = 0, h = 0, G = 0, G_sum = 0, U = 0, W = 0, w_m = 1;  // G_sum: G'
  Real Y = 0, den = 0;
  std::vector<Real> o = {}, b_o = {};  // by channel; 0 of a row that sees no key
  Real b_l = 0;                        // as LSE is judged
  Real b_l_read = 0;                   // as the backward pass reads it

  Index n() const { return static_cast<Index>(key.size()); }
  Index span() const { return key.back() - key.front() + 1; }
  Index terms() const { return n() + (view.p.sink ? 1 : 0); }  // n'
  Real v(Index t, Index c) const;                              // zeta v
};

Row row_of(const Symbols& symbols, const View& view);

}  // namespace attest::exact_bound
