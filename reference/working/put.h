// Values and bounds, put down where the tensors of the problem hold them.
#pragma once

#include "reference/expected.h"
#include "reference/working/block.h"
#include "reference/working/key_gradients.h"
#include "spec/problem.h"

namespace attest::bound::working {

// A whole tensor, each element `value` with bound 0 unless it is put. `beyond`: some scores may be
// too large for SOFTMAX-2.
void fill(Expected& expected, const Problem& problem, const Shape& shape, double value,
          bool beyond);

// One element. If it is lost, it is unspecified, which is NaN. `beyond`: the bound is that of
// SOFTMAX-3, which is recommended.
template <class Real>
void put(Expected& expected, Index element, bool lost, Real value, Real bound, bool beyond);

// What a row of a tensor is besides its numbers.
template <class Real>
struct Standing {
  bool lost = false, beyond = false;
  Real overflow = 0;  // from there on, the sum of magnitudes makes an element unspecified
};

// A row, from row `row` of value, bound and, unless that is empty, the sums of magnitudes.
template <class Real, class Form>
void put_row(Expected& expected, const Shape& shape, Place place, Index h,
             const Standing<Real>& standing, const Form& value, const Form& bound, const Form& size,
             Index row);

// Of a row or key that sees, or is seen by, nothing.
void put_zeros(Expected& expected, const Shape& shape, Place place, Index h);

// O and LSE of a block's rows, as forward_block leaves them; dQ, as backward_block does.
template <class Real>
void put_forward(const Problem& problem, const Model<Real>& model, const Block<Real>& block,
                 ForwardExpected& result);
template <class Real>
void put_dq(const Problem& problem, const Model<Real>& model, const Block<Real>& block,
            Expected& dq);
// dK and dV of those of `wanted` that lie within the length, once all rows are summed.
template <class Real>
void put_keys(const Problem& problem, const Model<Real>& model, Index b, Index h, Range wanted,
              const KeyGradients<Real>& sum, BackwardExpected& result);

}  // namespace attest::bound::working
