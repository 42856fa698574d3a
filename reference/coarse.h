// Bounds that hold for every element of a problem of any length: never below B, and made of norms
// instead of scores, in the time that it takes to read the inputs (NUMERICS.md, "Coarse bounds").
// No value comes with them.
//
// They are as sharp as B where all scores are 0, and useful for O and LSE wherever scores are
// moderate. dK and dV of single keys are hopeless elsewhere, since any row might see that key
// alone; what is known then is how far their sum over all keys may be off.
#pragma once

#include <vector>

#include "reference/expected.h"
#include "spec/arithmetic.h"
#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest {

// At least the sum of B over all keys of a batch element and key head, for each channel, in dense
// order of [batch, key head, channel].
struct KeySums {
  std::vector<double> dk, dv;
};

struct CoarseBackward {
  BackwardExpected each;
  KeySums sums;
};

// Of all tensors `value` is empty, and `bound` is infinite where nothing is known: everywhere, of
// problems with a softcap, bias, ALiBi, sink or dropout, and of inputs that are not finite.
ForwardExpected coarse_forward(const Problem& problem, const Inputs& inputs,
                               const Arithmetic& arithmetic);
CoarseBackward coarse_backward(const Problem& problem, const Inputs& inputs,
                               const Arithmetic& arithmetic);

}  // namespace attest
