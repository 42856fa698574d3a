// How large inputs are, and what is made of them at most.
#pragma once

#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest {

// The largest magnitude; NaN if one is not finite.
double largest_in(const Values& values);

// No score is larger under that scale, before a bias is added; NaN if Q, K or a slope is not
// finite.
double largest_score(const Problem& problem, const Inputs& inputs, double scale);

}  // namespace attest
