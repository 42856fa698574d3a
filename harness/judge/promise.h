// Promises that a case is about, and a testee may or may not give.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cases/case.h"
#include "spec/description.h"

namespace attest {

// How a verdict begins that says so, before the key.
inline constexpr std::string_view kNoPromise = "does not declare ";

// The key by which the testee would promise what the case is about, if it doesn't; else empty.
// `clauses`, those of the case, lose what is not promised.
std::string promise_missing(const Case& c, const Description& testee,
                            std::vector<std::string>& clauses);

}  // namespace attest
