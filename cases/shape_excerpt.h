// How much of a shape is compared.
#pragma once

#include "cases/case.h"

namespace attest {

// All of it, if the reference takes seconds; else an excerpt that takes about 10 s on two cores, 3
// of 4 parts of them for dK and dV: rows of as many heads as possible, and gradients of keys of a
// few, which take all rows of their group. An excerpt that the case has already stays.
void choose_excerpt(Case& test_case);

}  // namespace attest
