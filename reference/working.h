// The working reference: the exact values and, beside each, the error that the declared arithmetic
// allows (spec/NUMERICS.md). Fast enough that judging is never the slow part; held to `exact` by
// the tests.
#pragma once

#include <vector>

#include "spec/arithmetic.h"
#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest {

// What a tensor must be, element by element, in dense order.
struct Expected {
  std::vector<double> value;
  // What `value` leaves of the exact value; empty unless the dtype is f64, whose results double
  // cannot judge.
  std::vector<double> rest = {};
  // The bound B on the distance between the exact value and the rounding cell of a correct result.
  // 0 demands the value itself; infinity admits anything, which makes a verdict inconclusive.
  std::vector<double> bound = {};
};

struct ForwardExpected {
  Expected o;    // problem.o_shape()
  Expected lse;  // problem.lse_shape(); -inf for a row that sees nothing, not even a sink
};

struct BackwardExpected {
  Expected dq;     // problem.q_shape()
  Expected dk;     // problem.k_shape()
  Expected dv;     // problem.v_shape()
  Expected dbias;  // problem.bias_shape; empty if there is none
  Expected dsink;  // problem.sink_shape(), f32; empty if there is none
};

// `problem` must be well formed, and `inputs` of its shapes. The result does not depend on
// `threads`.
ForwardExpected expect_forward(const Problem& problem, const Inputs& inputs,
                               const Arithmetic& arithmetic, int threads = 1);
BackwardExpected expect_backward(const Problem& problem, const Inputs& inputs,
                                 const Arithmetic& arithmetic, int threads = 1);

}  // namespace attest
