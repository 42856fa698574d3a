// The inputs that other projects try: their features, one after the other, on shapes like theirs
// scaled down, with the random numbers that each of them draws.
//
// A rule is given the features that its project has tests of, and the class of numbers that its
// project uses. What their suites try beside, such as hundreds of shapes, is not here: this
// compares rules, not suites.
//
// And of Attest's own cases, those that stand for all.
#pragma once

#include <vector>

#include "cases/case.h"

namespace attest::criteria {

// A case for every feature, format and class of numbers that some rule is about.
std::vector<Case> their_cases();

// Of each entry of a case file and each of the three formats that rules are about, the first case
// and the last; nothing that takes long, nothing of which only an excerpt is compared, and nothing
// that is recommended: who does without it is right.
std::vector<Case> representatives(const std::vector<Case>& cases);

}  // namespace attest::criteria
