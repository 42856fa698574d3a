// What a case must be beyond well formed, so that its verdict says what it seems to.
#pragma once

#include <string>

#include "cases/case.h"

namespace attest {

// Throws InputError if what it hides cannot be hidden, if what it tries is recommended and it does
// not cite that first, or if a law, a check or a statistical verdict could say nothing of it. It
// cites all that it must; `pointer` is its entry's.
void check_case(const Case& test_case, const std::string& pointer);

}  // namespace attest
