// One case, one testee: asks, calls, looks for damage, judges. The whole of a verdict but the line
// that repeats it.
#pragma once

#include <string>

#include "harness/judge/prepared.h"
#include "harness/judge/trial.h"
#include "harness/process/executor.h"
#include "spec/description.h"
#include "spec/verdict.h"

namespace attest {

struct Examination {
  Verdict verdict = {};
  Trial trial = {};  // the first, as far as it came; for dumps
};

Examination examine(PreparedCase& prepared, const Description& testee, const std::string& kernel,
                    Executor& executor, int threads);

// The same of outputs that are there already. What takes further calls is not looked at, and no
// clause of that is cited: a case that has no other is UNSUPPORTED.
Examination examine_outputs(PreparedCase& prepared, const Description& testee, Trial trial);

// Why nothing that outputs are tells of a case, in words: it is about what the testee does not
// promise. Empty if they tell.
std::string untold_by_outputs(const Case& test_case, const Description& testee);

}  // namespace attest
