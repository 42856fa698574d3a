// The forward pass of a block of rows: O, LSE and their bounds B_O and B_L (NUMERICS.md, section
// 3).
#pragma once

#include "reference/working/block.h"
#include "reference/working/pack.h"

namespace attest::bound::working {

// For the rows that b, h, begin and count name.
template <class Real>
void forward_block(const Context<Real>& context, const KeyHead<Real>& head, Block<Real>& block);

}  // namespace attest::bound::working
