// The numbers that are not finite, for tests.
#pragma once

#include <limits>

namespace attest {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace attest
