// attest verify: holds a record to what it should be, and repeats some of its verdicts (SPEC.md,
// chapter "Records").
#pragma once

#include "harness/options.h"

namespace attest {

// The exit code. Throws InputError if there is no record, or a testee that is needed cannot be
// found.
int verify(const Options& options);

}  // namespace attest
