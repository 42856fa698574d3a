// NumPy, torch, JAX.
#pragma once

#include <string>

#include "harness/script/failure.h"
#include "harness/script/language.h"

namespace attest::scripts {

std::string python(ScriptLanguage language, const Failure& failure);

}  // namespace attest::scripts
