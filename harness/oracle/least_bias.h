// A bias of the least finite number, by which callers hide keys that -inf would hide.
#pragma once

#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest {

// Makes -inf (MASK-14) of a bias of half of the least number of its format, or less, where every
// row that has it, and sees a key, sees one besides: the weight of its key is 0 in either case, and
// then what the row computes is specified, in whatever format scores are kept. Where some row sees
// nothing else it becomes the least number of the softmax's format, which leaves open what the row
// holds: kernels differ there. Where K or V is not finite, or scores are as large as that, all
// stays as it is.
void hide_by_least_bias(const Problem& problem, Inputs& inputs);

}  // namespace attest
