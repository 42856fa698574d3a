// A mask of attest_plugin.h, an array of nodes, as a Mask.
#pragma once

#include "spec/attest_plugin.h"
#include "spec/mask.h"
#include "spec/problem.h"

namespace attest {

// Of a problem whose sizes and lengths are known; `shape` has them. Throws InputError at
// "problem.mask[n]" for nodes that are malformed, and for more parts than a mask may have here.
Mask given_mask(const attest_problem& given, const Problem& shape);

}  // namespace attest
