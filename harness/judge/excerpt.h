// Which part of a long case is compared (CONTRIBUTING.md, "excerpt").
#pragma once

#include <optional>

#include "cases/case.h"
#include "reference/working.h"

namespace attest {

// Groups of queries and of keys, as many as the case asks for and its lengths have: the first and
// the last, and others drawn from its id. Nothing of a case that is compared whole.
std::optional<Excerpt> excerpt_of(const Case& test_case);

}  // namespace attest
