// C++.
#pragma once

#include <string>

#include "harness/script/failure.h"

namespace attest::scripts {

// A program of one file, without the kernel.
std::string cpp(const Failure& failure);

}  // namespace attest::scripts
