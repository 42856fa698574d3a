// An index of the problem as one of the library's containers, for the fast forms of the bounds.
#pragma once

#include <cstddef>

#include "spec/index.h"

namespace attest::bound {

inline std::size_t at(Index i) { return static_cast<std::size_t>(i); }

}  // namespace attest::bound
