// dK and dV as sums over the query rows that read a key head. Parts are summed apart, then in
// order, so that no bit depends on the number of threads; at last each sum is completed to a bound
// (NUMERICS.md, section 4).
#pragma once

#include <cstdint>
#include <vector>

#include "reference/bound.h"
#include "reference/working/products.h"
#include "spec/problem.h"

namespace attest::bound::working {

// dK and dV of one key head, summed over some of the rows that read it.
template <class Real>
struct KeyGradients {
  Strips<Real> dk, dk_bound, dv, dv_bound;
  // Sums of magnitudes, once they are finished before they are scaled or after, whichever is more;
  // empty unless asked for. `most` is at least the largest of all of them.
  Strips<Real> dk_size, dv_size;
  Real most = 0;
  std::vector<std::uint8_t> seen, lost;  // by any row; by a lost row
  std::vector<std::uint8_t> dk_lost;     // by a row whose dS is
  std::vector<std::uint8_t> beyond;      // by a row whose scores are beyond SOFTMAX-2

  // What is summed up besides the flags: nothing of a head whose gradients are not wanted.
  enum class Sums { none, values, sizes_too };
  KeyGradients(const Problem& problem, Index key_len, Sums sums);
  void add(const KeyGradients& other);
};

// Where each query head's dK and dV are rounded to their format before the group's sum, one head's.
template <class Real>
void round_head(const Problem& problem, const Model<Real>& model, Index b,
                KeyGradients<Real>& sums);

// Completes the sums over all rows to the bounds of dK and dV.
template <class Real>
void finish(const Problem& problem, const Model<Real>& model, Index b, KeyGradients<Real>& sums);

}  // namespace attest::bound::working
