// The backward pass of a block of rows: dQ with its bound B_dQ, and what the rows give to dK, dV,
// dBias and dSink (NUMERICS.md, section 4).
#pragma once

#include <vector>

#include "reference/working/block.h"
#include "reference/working/key_gradients.h"
#include "reference/working/pack.h"

namespace attest::bound::working {

// Of a block that forward_block has been at. What it gives to dK and dV of `keys`, in order, is
// added to `to`. Without dQ, and a bias, rows matter to those keys alone.
template <class Real>
void backward_block(const Context<Real>& context, const KeyHead<Real>& head, bool with_dq,
                    const std::vector<Range>& keys, Block<Real>& block, KeyGradients<Real>& to);

}  // namespace attest::bound::working
