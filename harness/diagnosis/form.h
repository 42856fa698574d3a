// Failures of different forms tell mistakes apart that those of one form may not.
#pragma once

#include <string>

#include "spec/problem.h"

namespace attest {

// What decides which mistakes a failure can tell apart: the forms of its mask, and which sizes are
// one, or alike.
std::string form_of(const Problem& p);

}  // namespace attest
