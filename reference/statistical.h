// The statistical bound (NUMERICS.md, section 12): drift + Lambda * deviation. Roundings to the
// nearest are taken for independent random numbers of mean 0 there, so that their errors add up as
// roots of sums of squares; what is systematic keeps its place in the sums of B.
//
// It holds with the probability that Lambda is made for, and only if the roundings are as good as
// independent: on generic random inputs. Never judge a single testee by it on anything else.
#pragma once

#include <vector>

#include "spec/arithmetic.h"
#include "spec/inputs.h"
#include "spec/per_tensor.h"
#include "spec/problem.h"

namespace attest {

// Of each element, in dense order.
struct Spread {
  std::vector<double> drift;      // B of what is not random
  std::vector<double> deviation;  // of the sum of what is: the root of its variance proxy
};

using ForwardSpread = PerForward<Spread>;
using BackwardSpread = PerGradient<Spread>;

// As expect_forward and expect_backward; plain loops, for problems of a few million products.
ForwardSpread spread_forward(const Problem& problem, const Inputs& inputs,
                             const Arithmetic& arithmetic, int threads = 1);
BackwardSpread spread_backward(const Problem& problem, const Inputs& inputs,
                               const Arithmetic& arithmetic, int threads = 1);

// Lambda: none of `elements` exceeds so many deviations but with a probability of `chance`, as each
// is sub-Gaussian, and exceeds x deviations at most 2 exp(-x^2 / 2) of the time.
double deviations_of(double elements, double chance);

// How large the mean of (error / predicted)^2 over elements in `groups` independent groups may be,
// but with a probability of `chance`: the mean of `groups` squares of sub-Gaussian numbers with
// variance proxy 1, by Chernoff's bound.
double mean_square_limit(double groups, double chance);

}  // namespace attest
