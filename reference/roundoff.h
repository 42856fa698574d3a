// The unit roundoff of the types that exact values are computed in, as bounds and laws count it
// (NUMERICS.md, section 5): the same on every processor.
#pragma once

#include <limits>

namespace attest {

// double, or long double, of which 64 digits are counted, as x87 has them, however wide it is:
// AArch64 has 113.
template <class Real>
inline constexpr Real kRoundoff = Real(0x1p-53);
template <>
inline constexpr long double kRoundoff<long double> = 0x1p-64L;

static_assert(std::numeric_limits<double>::digits == 53);
static_assert(std::numeric_limits<long double>::digits >= 64,
              "results in f64 cannot be judged without a wider type");

}  // namespace attest
