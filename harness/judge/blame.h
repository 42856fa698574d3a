// Which clause a fault is blamed on: the first that whoever mends the kernel should read.
//
// A case cites several clauses, and what came back tells more than their order (misses.h): which
// tensor left its bounds first, in which rows, heads and batch elements, and which way.
//
//   LSE alone, one gradient alone       the clause of that tensor
//   rows without keys, beyond lengths   EMPTY-1 to EMPTY-4, MASK-6
//   overflow; slight errors             SOFTMAX-1, SOFTMAX-2, NUM-3, if cited
//   all else                            of what is cited and not cleared, what few problems have
//
// A clause is cleared by what cannot follow from its breach: scores are right where LSE is, dropout
// leaves LSE alone, a mask treats all heads alike. What is not cited is blamed only where the place
// of the errors is what the clause speaks of. The blame decides no outcome; diagnosis/culprit.h
// knows more, after the run. Source: SPEC.md, chapter "Verdicts".
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
