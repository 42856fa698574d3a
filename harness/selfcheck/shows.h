// Where a fault shows at all: a narrow kernel has no place for most faults of the catalogue. Told
// by what calls come to beside those of the same kernel without the fault, not by any verdict.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cases/case.h"
#include "harness/process/testee.h"
#include "harness/run/run.h"
#include "harness/selfcheck/catalogue.h"

namespace attest {

// By mutant, as it stands in the catalogue, and format: the first problem in which it refuses,
// fails, touches memory or returns bits as its control doesn't. What isn't there shows in none.
using Shows = std::map<std::pair<std::size_t, DType>, std::string>;

// Tries each mutant, and its control, on all of `random`, and on those `asked` that try a clause
// which it violates: by turns with one thread and three, with tensors flush against either guard.
// `testees` are the kernels of one plug-in, with the names that the catalogue has.
Shows where_faults_show(const std::vector<Case>& random, const std::vector<Case>& asked,
                        const Catalogue& catalogue, const std::vector<Testee>& testees,
                        const RunOptions& options, const MakeExecutor& make_executor,
                        const std::function<bool()>& interrupted);

}  // namespace attest
