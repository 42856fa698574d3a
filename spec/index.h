// Positions, lengths and sizes: all of them are `Index`, so none ever narrows (a key position held
// in 16 bits is a real defect of real kernels).
#pragma once

#include <cstdint>

namespace attest {

using Index = std::int64_t;

// a / b, rounded up; of a that is not negative.
constexpr Index ceil_div(Index a, Index b) { return a / b + (a % b != 0); }

}  // namespace attest
