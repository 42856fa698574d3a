// Correct attention kernels, as different as real ones are, in one small simulation: what varies is
// its Style.
//
// The arithmetic is done in float, or in double for f64, by the processor itself; errors that are
// allowed to functions (exp within 2 ulp, a coarse tanh) are put in, a hash of the argument
// deciding how much of what is allowed.
#pragma once

#include <cstdint>
#include <vector>

#include "spec/inputs.h"
#include "spec/problem.h"
#include "tests/bounds/style.h"

namespace attest::bounds {

// Dense, as Expected. LSE, or the maximum and the sum in its place, as the style has it.
struct Outputs {
  std::vector<double> o, lse, dq, dk, dv, dbias, dsink, maximum, sum;
};

// Which elements of keep_shape() take part (a bias of -inf hides its key).
std::vector<std::uint8_t> visible_elements(const Problem& problem, const Inputs& inputs);

// With gradients if the problem asks for them; then from the O and LSE of `forward`, if that is
// given, and without returning them again.
Outputs run_kernel(const Problem& problem, const Inputs& inputs,
                   const std::vector<std::uint8_t>& visible, const Style& style,
                   const Outputs* forward = nullptr);

}  // namespace attest::bounds
