// What a kernel returns that makes a mistake: values and bounds, by the working reference.
#pragma once

#include "harness/diagnosis/mistake.h"
#include "reference/expected.h"
#include "spec/arithmetic.h"

namespace attest {

// Of the setting as a whole: a kernel that computes it in every pass that its problem has. An
// excerpt is of a setting without key heads of its own.
PassesExpected expect_altered(const Setting& setting, const Arithmetic& arithmetic,
                              const Excerpt* excerpt = nullptr);

// What the forward pass of a setting leaves to its backward pass: its own, and that of a kernel
// whose forward pass is right.
struct Left {
  ForwardExpected own;
  const ForwardExpected& right;
};

// The gradients of a kernel whose forward pass is right, and which computes the setting in its
// backward pass, with the O of the forward pass, the D that follows from it, and the LSE of the
// forward pass or, where it takes none, its own. `own` is what expect_altered says of the setting.
PassesExpected expect_altered_backward(const Setting& setting, PassesExpected own, const Left& left,
                                       bool takes_lse, const Arithmetic& arithmetic,
                                       const Excerpt* excerpt = nullptr);

}  // namespace attest
