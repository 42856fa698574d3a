// The mistakes that explain a failure of which nothing is left but the case: it is tried once more.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "cases/case.h"
#include "harness/diagnosis/likeness.h"
#include "harness/process/executor.h"
#include "harness/process/testee.h"
#include "harness/run/run.h"

namespace attest {

// As alike() of likeness.h; nothing if the testee passes now, or if it is not numbers that are
// wrong. `preparing`: threads of ours.
std::optional<std::vector<Likeness>> alike(const Case& failing, const Testee& testee,
                                           Executor& executor, const RunOptions& options,
                                           int preparing, const std::function<bool()>& interrupted);

}  // namespace attest
