// The inputs as the sums of products.h read them: the rows of one head side by side, beside them
// their magnitudes, and what of them may count as 0 (NUMERICS.md, section 6).
//
// Numbers that are not finite are replaced by 0, and their rows noted. A query that sees such a row
// is lost (section 8); all others see numbers alone.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/bound.h"
#include "reference/working/products.h"
#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest::bound::working {

template <class Real>
void clear(Rows<Real>& rows, Index count, Index columns) {
  rows.count = count;
  rows.width = padded(columns);
  rows.data.assign(at(count * rows.width), Real(0));
}

template <class Real>
void clear(Strips<Real>& strips, Index count, Index columns) {
  strips = Strips<Real>(count, columns);
}

// Where an element of an input may count as 0, its magnitude is in `small`; a whole input without
// any leaves that empty. `Form` is Rows for a few queries, Strips for the keys.
template <class Form>
struct Operand {
  Form value, size, small;         // size: |value|
  std::vector<std::uint8_t> lost;  // rows that hold something not finite; they are 0 above
  bool any_lost = false;
};

// Query rows.begin to rows.end of head h of Q or dO.
template <class Real>
void pack_queries(const Problem& problem, const Values& values, Index b, Index h, Range rows,
                  Real tiny, Operand<Rows<Real>>& to);

// What all query rows share that read one key head.
template <class Real>
struct KeyHead {
  Operand<Strips<Real>> k, v;
  Panels<Real> k_panels, k_small_panels, v_panels, v_small_panels;  // of V for a backward pass
  std::vector<Real> k_sum;                                          // sum_c |k_jc|
  std::vector<Real> k_most;                                         // max_c |k_jc|
  Real k_channel = 0, v_channel = 0;  // the largest sum_j |k_jc|, sum_j |v_jc| of any channel
  bool small_integers = true;         // so that all sums of columns of V are exact in f32
};

template <class Real>
KeyHead<Real> pack_key_head(const Problem& problem, const Inputs& inputs, const Model<Real>& model,
                            Index b, Index h);

template <class Real>
Real largest_of(const Rows<Real>& rows, Index r) {
  Real most = 0;
  for (Index c = 0; c < rows.width; ++c) most = std::max(most, rows.row(r)[c]);
  return most;
}

}  // namespace attest::bound::working
