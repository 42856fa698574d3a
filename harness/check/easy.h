// The problems by which a new kernel's glue is tried: a few that nothing is hard about.
#pragma once

#include <vector>

#include "cases/case.h"

namespace attest {

// Of the cases that a testee is asked, as they are or fitted to it: up to four that need little
// and hide nothing, small, but with several heads and lengths that differ where there are such. The
// second is causal, or needs another feature than the first; the third has a backward pass or
// another format, if the testee takes such.
std::vector<Case> easy_cases(const std::vector<Case>& asked);

}  // namespace attest
