// The numbers of a problem: what a testee reads. Each is exactly representable in problem.dtype, so
// that testee and reference start from the same values (FORMAT-1).
#pragma once

#include "spec/tensor.h"

namespace attest {

struct Inputs {
  Values q, k, v;
  Values d_o = {};  // the gradient with respect to O; empty unless the problem has a backward pass
};

}  // namespace attest
