// Which clause a fault is blamed on: the first that whoever mends the kernel should read.
//
// A case cites several clauses, and what came back tells more than their order: which tensor left
// its bounds first, in which rows, what was hidden there. The blame decides no outcome. Source:
// SPEC.md, chapter "Verdicts".
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "harness/judge/finding.h"
#include "harness/judge/subject.h"
#include "harness/judge/trial.h"

namespace attest {

// Of what was found in a case, in one of two trials; empty if nothing is blamed.
std::string blamed_clause(const Subject& subject, const Finding& finding, const Trial& first,
                          const Trial& second);

// The clauses of the forward pass, in the order in which they are suspected where O is wrong and
// nothing else tells: what few problems have before what many have, for a fault of the latter shows
// in a simpler case.
std::span<const std::string_view> suspects();

}  // namespace attest
