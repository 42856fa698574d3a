// Who is judged: the suite's own kernels, wrong and right, or whoever is named.
#pragma once

#include <filesystem>
#include <vector>

#include "harness/criteria/compare.h"

namespace attest::criteria {

// Those of `testees` that a comparison is about. Kernels of the plug-in `mutants` are wrong where
// its catalogue says so, and concern the formats that it says; equivalent ones are left out. All
// others are right, in the formats that they have.
std::vector<Subject> subjects_of(const std::vector<Testee>& testees,
                                 const std::filesystem::path& mutants);

}  // namespace attest::criteria
