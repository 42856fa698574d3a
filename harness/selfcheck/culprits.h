// Which clause each mutant that was caught is blamed on once its failure is diagnosed.
#pragma once

#include "harness/selfcheck/hunt.h"

namespace attest {

// Of whatever caught one, its case and testee again; writes Hunted::culprit. `cases` and `testees`
// are those of the hunt.
void find_culprits(Hunt& hunt, const std::vector<Case>& cases, const std::vector<Testee>& testees,
                   const RunOptions& options, const MakeExecutor& make_executor,
                   const std::function<bool()>& interrupted);

}  // namespace attest
