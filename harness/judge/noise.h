// The statistical verdict on one tensor (SPEC.md, NUM-4; NUMERICS.md, section 12): whether any
// element, the rms of all, or their mean is further off than random roundings of the declared
// arithmetic take it. Only for generic random inputs, and only with other seeds to confirm it.
#pragma once

#include <string>
#include <vector>

#include "reference/expected.h"
#include "reference/statistical.h"
#include "spec/dtype.h"
#include "spec/verdict.h"

namespace attest {

// The chance of failing a correct tensor by each of the three numbers, on one seed.
inline constexpr double kNoiseChance = 1e-6;

// Whether the errors are small enough for what P leaves out: of LSE, row by row.
bool small_enough_for_noise(const Expected& lse);

// `returned` are the elements in dense order, of `dtype`; `groups` of them have roundings of their
// own (the rows of O, LSE and dQ). Elements without any allowed error, or with infinite bounds,
// are left out; nothing is compared where none is left.
NoiseEvidence noise_of(const std::vector<double>& returned, DType dtype, const Expected& expected,
                       const Spread& spread, Rounding rounding, double groups);

// What is wrong, in words; empty if nothing is.
std::string complaint_of(const NoiseEvidence& noise);

}  // namespace attest
