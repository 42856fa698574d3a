// Which sizes carry a clause (SPEC.md, chapter "Limits"): what a fitted case must have kept of the
// case to say anything about the clause.
#pragma once

#include "cases/case.h"

namespace attest {

// Takes from what a fitted case cites what its problem no longer carries, as `base` did.
void strike_uncarried(Case& fitted, const Problem& base);

}  // namespace attest
