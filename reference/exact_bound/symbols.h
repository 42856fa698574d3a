// Section 1 of NUMERICS.md, name by name, and what sections 5 and 6 say of them: what follows from
// the problem and the declaration alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "reference/exact_bound.h"

namespace attest::exact_bound {

inline constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
inline constexpr Real kSlack = 1 + 0x1p-18L;  // of kappa, kappa' and of every bound

inline std::size_t at(Index i) { return static_cast<std::size_t>(i); }

// term(0) + ... + term(n - 1).
template <class Term>
Real sum(Index n, const Term& term) {
  Real total = 0;
  for (Index t = 0; t < n; ++t) total += term(t);
  return total;
}

Real gamma_of(Real k, Real u);
Real growth(Real x);  // E
Real steps(const Product& product, Index k, Index span);
Real share(const Product& product, Real k, Real u);  // G_k

struct Symbols {
  Symbols(const Problem& problem, const Arithmetic& arithmetic);

  const Problem& p;
  const Arithmetic a;
  Real u_ref;
  Real tau, z;
  Real stored_qk;  // how many of Q and K are stored in fewer bits
  Real u_s, e_x, e_t;
  Real m_lambda;
  Real scale_share = 0;  // of a subnormal scale
  Real u_out, eta_out;
  Real u_l;                    // of LSE's format
  Real theta = 0, u_zeta = 0;  // of dropout
  Real slack = kSlack;         // of outputs
  // Section 6.
  bool flushes;                 // anything
  Real small, small_qk;         // below them V and dO, and Q and K, may count as 0
  Real flush = 0, flush_l = 0;  // what a flushed output adds, and LSE

  Real kept() const { return 1 / (1 - theta); }
  Real u(const Product& product) const { return Real(product.accumulator_roundoff) + u_ref; }
  Real widest(const Product& product) const { return std::max(u(product), u_s); }

  // K_k(x; f) of "Scores that are stored".
  Real stored(int times, Real x, Real f) const;
  // rho(x) for a magnitude in [low, high]; eta counts `factor` times.
  Real rho(const Narrowing& to, Real factor, Real low, Real high) const;
  // The rounding of an output that is known up to `bound`.
  Real rho_out(Real x, Real bound) const;
  // A sum that is complete, with the 3 u_s that are for scaling, dividing or merging it, and more.
  Real complete(Real bound, Real value, Real more) const {
    return (bound + (3 * u_s + more) * (std::abs(value) + bound)) * slack;
  }
};

}  // namespace attest::exact_bound
