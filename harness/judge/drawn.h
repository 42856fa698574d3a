// The keep-masks that a testee drew itself, against chance (SPEC.md, DROP-3).
//
// Only elements that count are looked at: those of visible keys. All tests of a case together fail
// a testee that keeps its elements independently of each other with a probability of at most 1e-9.
#pragma once

#include <optional>

#include "harness/judge/finding.h"
#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest {

// What is wrong with the masks that two equal calls returned, flush with the end and the start of
// their pages: they differ, or lack bytes; the rate is not 1-p, give or take the quantum, in all of
// it, in a head or in a batch element; elements depend on each other.
std::optional<Finding> keep_defect(const Problem& problem, const Inputs& inputs, double quantum,
                                   const Keep& first, const Keep& second);

// How many other draws a mask is compared with: those of other seeds and of another offset.
inline constexpr int kOtherDraws = 3;

// Whether a mask has so many elements that count that none of them would be the same by chance.
bool tells_draws(const Problem& problem, const Inputs& inputs, double quantum);

// Whether two masks are the same in all elements that count.
bool same_bits(const Problem& problem, const Inputs& inputs, const Keep& a, const Keep& b);

}  // namespace attest
