// Keep-masks that a testee drew itself, as chance has them (SPEC.md, DROP-3): which of their
// elements count, how many of them are kept, and how many of two masks are equal.
//
// Only elements that count are looked at: those of visible keys. All tests of a case together fail
// a testee that keeps its elements independently of each other with a probability of at most 1e-9.
#pragma once

#include <vector>

#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest {

// How likely a case may fail a testee that draws as it should: shared out among its tests.
inline constexpr double kRateChance = 0.5e-9, kPairChance = 0.25e-9, kSeedChance = 0.25e-9;

// Which elements count, in the order of the mask.
std::vector<bool> elements_that_count(const Problem& problem, const Inputs& inputs);

// The rates of keeping that a testee may have.
struct KeepRates {
  double lowest, highest;
};
KeepRates keep_rates(const Dropout& dropout, double quantum);

// How likely two elements that are drawn independently are equal.
KeepRates agreement(const Dropout& dropout, double quantum);

// How many other draws a mask is compared with: those of other seeds and of another offset.
inline constexpr int kOtherDraws = 3;

// Whether a mask has so many elements that count that none of them would be the same by chance.
bool tells_draws(const Problem& problem, const Inputs& inputs, double quantum);

// Whether two masks are the same in all elements that count.
bool same_bits(const Problem& problem, const Inputs& inputs, const Keep& a, const Keep& b);

}  // namespace attest
