// Attention as a framework runs it operation by operation: every tensor between two operations is
// rounded to the format of the problem, every sum is made in f32. Several rules measure a kernel by
// how far this is from the truth. It is no reference and nobody's kernel.
//
// In this order: K times scale, Q K^T, softcap, bias, ALiBi, mask, softmax, dropout, times V; and
// the gradient of each, backwards. Key heads are repeated for their group, gradients summed over
// it.
#pragma once

#include <vector>

#include "spec/inputs.h"
#include "spec/per_tensor.h"
#include "spec/problem.h"

namespace attest::criteria {

// In dense order; empty where the problem wants none.
using EagerOutputs = PerTensor<std::vector<double>>;
EagerOutputs run_eagerly(const Problem& problem, const Inputs& inputs);

}  // namespace attest::criteria
