// Which keys a block's rows see, their scores s_j with the errors eps_j, and which of them dropout
// keeps (NUMERICS.md, section 2, "The score" to "Bias and ALiBi").
#pragma once

#include "reference/working/block.h"
#include "reference/working/pack.h"

namespace attest::bound::working {

// Fills seen.key of each row and block.keys: the only place where the mask is asked. Block.q must
// be packed.
template <class Real>
void look(const Context<Real>& context, const KeyHead<Real>& head, Block<Real>& block);

// s_j and its error before the softmax; products that may be flushed count in full. Where nothing
// shapes the scores and nothing joins them, rows of zeros are exact.
template <class Real>
void score(const Context<Real>& context, const KeyHead<Real>& head, Block<Real>& block);

// Which of the keys that row r sees dropout keeps: zeta_j.
template <class Real>
void drop(const Context<Real>& context, const Block<Real>& block, Index r, Seen<Real>& seen);

}  // namespace attest::bound::working
