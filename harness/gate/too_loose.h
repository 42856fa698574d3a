// What no profile takes by its bare name.
#pragma once

#include <string>
#include <vector>

#include "spec/description.h"

namespace attest {

// The formats in which the arithmetic is such, and what of it, in words (NUM-2); that beyond the
// default column counts unless it is taken as declared.
std::vector<std::string> too_loose(const Description& testee, bool takes_declared);

}  // namespace attest
