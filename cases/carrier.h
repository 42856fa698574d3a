// Which sizes carry a clause (SPEC.md, chapter "Limits"): what a fitted case must have kept of the
// case to say anything about the clause.
#pragma once

#include <string>
#include <string_view>

#include "cases/case.h"

namespace attest {

// An entry may try both corners of a mask, and cites MASK-2 of the one, MASK-3 of the other and of
// offsets: takes from what one case of it cites that of which its mask has nothing. One stays.
void strike_other_corner(Case& test_case);

// Takes from what a fitted case cites what its problem no longer carries, as `base` did.
void strike_uncarried(Case& fitted, const Problem& base);

// Of the first that was struck, what it speaks of and was there: "groups". Empty if none was.
std::string lost_in(const Problem& fitted, const Case& base);

// Whether a clause may have nothing to say of a kernel for its limits' sake: it speaks of a form
// that these exclude, or is a law, whose other problems they may exclude.
bool may_lie_outside(std::string_view clause);

}  // namespace attest
