// What a kernel returns that makes a mistake: values and bounds, by the working reference.
#pragma once

#include "harness/diagnosis/mistake.h"
#include "reference/expected.h"
#include "spec/arithmetic.h"

namespace attest {

// Of the setting as a whole: a kernel that computes it in both passes. Without a backward pass its
// gradients are empty.
PassesExpected expect_altered(const Setting& setting, const Arithmetic& arithmetic);

// The gradients of a kernel whose forward pass is right, and which computes the setting in its
// backward pass, with the O of the forward pass, the D that follows from it, and the LSE of the
// forward pass or, where it takes none, its own.
PassesExpected expect_altered_backward(const Setting& setting, const ForwardExpected& right,
                                       bool takes_lse, const Arithmetic& arithmetic);

}  // namespace attest
