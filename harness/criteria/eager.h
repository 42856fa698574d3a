// Attention as a framework runs it operation by operation: every tensor between two operations is
// rounded to the format of the problem, every sum is made in f32. Several rules measure a kernel by
// how far this is from the truth. It is no reference and nobody's kernel.
//
// In this order: K times scale, Q K^T, softcap, bias, ALiBi, mask, softmax, dropout, times V; and
// the gradient of each, backwards. Key heads are repeated for their group, gradients summed over
// it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest::criteria {

// O and LSE, and the gradients if the problem wants them, by their names in records, in dense
// order.
std::map<std::string, std::vector<double>> run_eagerly(const Problem& problem,
                                                       const Inputs& inputs);

}  // namespace attest::criteria
