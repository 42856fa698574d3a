// The working reference: the exact values and, beside each, the error that the declared arithmetic
// allows (spec/NUMERICS.md). Fast enough that judging is never the slow part; held to `exact` and
// `exact_bound` by the tests.
#pragma once

#include "reference/expected.h"
#include "spec/arithmetic.h"
#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest {

// `problem` must be well formed, and `inputs` of its shapes. The result does not depend on
// `threads`, nor on what of it an excerpt leaves out.
ForwardExpected expect_forward(const Problem& problem, const Inputs& inputs,
                               const Arithmetic& arithmetic, int threads = 1,
                               const Excerpt* excerpt = nullptr,
                               Roundings roundings = Roundings::all);
BackwardExpected expect_backward(const Problem& problem, const Inputs& inputs,
                                 const Arithmetic& arithmetic, int threads = 1,
                                 const Excerpt* excerpt = nullptr,
                                 Roundings roundings = Roundings::all);
// Both, to the same bits, for little more than the latter.
PassesExpected expect_passes(const Problem& problem, const Inputs& inputs,
                             const Arithmetic& arithmetic, int threads = 1,
                             const Excerpt* excerpt = nullptr);

}  // namespace attest
