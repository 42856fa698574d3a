// How much of a shape is compared.
#pragma once

#include "cases/case.h"

namespace attest {

// All of it, if the reference takes seconds; else an excerpt that takes less than 10 s on two
// cores, most of them for dK and dV: rows of as many heads as possible, and gradients of keys of a
// few, which take all rows of their group; of one at least, so that a large group may take longer.
// An excerpt that the case has already stays. With a `share`, so much of that time.
void choose_excerpt(Case& test_case, double share = 1);

// Adds the law that looks at all elements, "finite", to a case with an excerpt whose results are so
// few that this takes no time, if bounds of all of them can be told.
void choose_laws(Case& test_case);

}  // namespace attest
