// What a "never" objects to, as sizes.
#pragma once

#include <map>
#include <vector>

#include "spec/limits.h"
#include "spec/problem.h"

namespace attest {

// What to avoid of each "never" that the problem meets: its sizes, one of which is to be another.
// None if there is no way out of one of them.
std::map<Size, std::vector<SizeSet>> to_avoid(const KernelLimits& limits, const Problem& problem);

}  // namespace attest
