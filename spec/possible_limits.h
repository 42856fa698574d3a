// Whether limits leave something to be asked.
#pragma once

#include <span>
#include <string>

#include "spec/limits.h"

namespace attest {

// Of limits at `pointer`, of a kernel that declares those formats and features. Throws InputError
// where no problem meets the terms of all problems, of a pass or of a format, and where a "never"
// is met by every problem. What it takes for possible may still be empty: sizes that meet far out,
// and several "never" together, are not looked at.
void check_possible(const KernelLimits& limits, const std::string& pointer,
                    std::span<const DType> dtypes, std::span<const std::string> features);

}  // namespace attest
