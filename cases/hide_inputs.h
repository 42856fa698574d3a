// What a case hides, written over its finished inputs: numbers, NaN and infinities where no result,
// or only some results, may depend on them (Hidden).
#pragma once

#include "cases/random_source.h"
#include "spec/inputs.h"

namespace attest {

void hide(const Case& test_case, const RandomSource& source, Inputs& inputs);

}  // namespace attest
