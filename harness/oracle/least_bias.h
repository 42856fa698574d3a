// A bias of the least finite number, by which callers hide keys that -inf would hide.
#pragma once

#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest {

// Makes -inf of it (MASK-14) where every row that has this bias, and sees a key, sees one besides:
// its key has no weight in either case, and then what the row computes is specified. Where some row
// sees nothing else it stays: what the row holds is for each kernel to choose.
void hide_by_least_bias(const Problem& problem, Values& bias);

}  // namespace attest
