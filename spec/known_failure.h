// Failures that are known before a run (SPEC.md, chapter "Verdicts", Known failures).
#pragma once

#include <string>
#include <vector>

#include "spec/record.h"

namespace attest {

// Whether an entry speaks of that case and testee, whatever came of them.
bool speaks_of(const KnownFailure& known, const VerdictRecord& verdict);

// The first entry that says just this of the verdict; null if there is none.
const KnownFailure* find_known(const std::vector<KnownFailure>& known,
                               const VerdictRecord& verdict);

// "FAIL (bound)"
std::string text_of(const KnownFailure& known);

}  // namespace attest
