// A block: kRows neighbouring query rows of one head, which all sums are made for together, and
// what is known of each of them. The passes fill it in order: scores.h, forward_bound.h,
// backward_bound.h. The symbols are those of NUMERICS.md.
//
// What belongs to keys comes in two forms: side by side, for the keys that a row sees (Seen,
// ForwardErrors, BackwardErrors), where single elements are worked on; and by row and key, 0 for
// keys that are not seen (Rows), where sums are made.
#pragma once

#include <array>
#include <vector>

#include "reference/bound.h"
#include "reference/working/pack.h"
#include "reference/working/products.h"

namespace attest::bound::working {

template <class Real>
struct Context {
  const Problem& problem;
  const Inputs& inputs;
  const Model<Real>& model;

  bool drops() const { return problem.dropout.mode != Dropout::Mode::none; }
};

// An element of dBias or dSink, or a part of one.
template <class Real>
struct Sum {
  Real value = 0, size = 0, bound = 0;  // size: the sum of the magnitudes of what is added up
  bool seen = false, lost = false, beyond = false;

  void add(const Sum& other) {
    value += other.value;
    size += other.size;
    bound += other.bound;
    seen |= other.seen;
    lost |= other.lost;
    beyond |= other.beyond;
  }
};

// The keys that a row sees, side by side.
template <class Real>
struct Seen {
  std::vector<Index> key;      // j, rising
  std::vector<Real> s, eps;    // the score, and the error that it comes with
  std::vector<Real> p;         // without dropout
  std::vector<Real> g, eps_g;  // the derivative of the softcap, and its error; empty without one
  std::vector<Real> zeta;      // 0 or 1 / (1 - theta) of dropout; empty without it
};

// What is known of a row besides: the reference's LSE and its bound, and what sums need.
template <class Real>
struct RowState : Row<Real> {
  bool lost = false;     // unspecified: O, LSE, and all gradients that the row is part of
  bool ds_lost = false;  // the same of dQ: something may overflow on the way
  bool beyond = false;   // its scores are too large for SOFTMAX-2
  Real eps_ref = 0;      // what the reference's own scores may err by
  Real p_z = 0;          // the sink's share
  Real Y = 0;
  Real Y_of_zeros = 0;  // of Y, what belongs to v = 0: the sink and the dropped keys
  // How far beyond the hull of V the output may lie, as a share of max |v|; infinite where nothing
  // is known of the weights (NUMERICS.md, section 3, "Large errors of the scores").
  Real hull_share = 0;
  Real lse_bound = 0;  // B_L, of LSE as it is judged
  Real lse_error = 0;  // as the backward pass reads it
  Real ds_k_size = 0;  // no sum of dS k is larger on its way
  Seen<Real> seen;
};

// Of each key that the row at hand sees, in a forward pass.
template <class Real>
struct ForwardErrors {
  std::vector<Real> kappa;     // bound on the error that numerator and denominator share
  std::vector<Real> growth;    // 1 + E(kappa)
  std::vector<Real> y;         // p E(kappa)
  std::vector<Real> v_weight;  // what is not shared: the weight of |v| in S
};

// The same in a backward pass.
template <class Real>
struct BackwardErrors {
  std::vector<Real> dp, xi;  // dP and its error
  std::vector<Real> p_r;     // p r, the error of P
  std::vector<Real> psi;     // of rounding P
};

template <class Real>
struct Block {
  Index b = 0, h = 0, begin = 0, count = 0;
  Operand<Rows<Real>> q;
  Range keys;  // all that any of the rows sees lies within
  std::array<RowState<Real>, kRows> rows;

  // Scores: sums of q k and of |q||k|, and those of products that may be flushed.
  Rows<Real> dot, size, small_dot, small_size;

  // Forward, by row and key, as dropout leaves them: P, and the weights of |v - O| and |v| in S.
  ForwardErrors<Real> forward;
  Rows<Real> p, y, v_weight;
  Rows<Real> w;       // p + y; only where V may be flushed
  Rows<Real> centre;  // what v is compared with: O as it would be without 1 / (1 - theta)
  Rows<Real> o, o_bound, o_flushed;
  Rows<Real> o_size;  // sums of magnitudes, where any may overflow; else empty

  // Backward, by row and key: dP and sum |dO||v|, dS g scaled, the same with its errors.
  BackwardErrors<Real> backward;
  Operand<Rows<Real>> d_o;
  Rows<Real> dp, dp_size, ds, ds_size;
  Rows<Real> small_dp_v, small_dp_o;           // of what may be flushed; empty if nothing is
  Rows<Real> p_g;                              // P g, without dropout; empty where it is p
  Rows<Real> dq_weight, dk_weight, dv_weight;  // of |k|, |q| and |dO| in B_dQ, B_dK and B_dV
  Rows<Real> dv_size;                          // zeta (p + p r + psi + z)
  Rows<Real> dq, dq_bound, p_g_k, dq_flushed;
  Rows<Real> dq_size;             // as o_size
  Rows<Real> dbias, dbias_bound;  // what each key gives to the bias; empty without one
  Sum<Real> dsink;
  Real G_dK = 0, G_dV = 0, G_b = 0;
};

}  // namespace attest::bound::working
