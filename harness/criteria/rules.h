// The rules of all projects, in the order in which they are told.
#pragma once

#include <vector>

#include "harness/criteria/rule.h"

namespace attest::criteria {

const std::vector<Rule>& rules();

}  // namespace attest::criteria
