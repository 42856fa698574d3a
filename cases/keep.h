// The keep-mask that Attest hands to a testee under dropout (DROP-1).
#pragma once

#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest {

// One bit for each element of P, from the problem's probability and seed alone.
Keep make_keep(const Problem& problem);

}  // namespace attest
