// What formats of five bits of exponent hold, and to which number they round another: a statement
// by values, apart from the code that is tested by it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "impl/vendor/triton/floats.h"

namespace attest::vendor::triton {

// The number that a code's fields say: sign, five bits of exponent with a bias of 15, the fraction.
inline double number_of(std::uint32_t code, int fraction_bits) {
  const auto fraction = static_cast<double>(code & ((1u << fraction_bits) - 1));
  const int exponent = static_cast<int>(code >> fraction_bits & 31u);
  const double sign = code >> (fraction_bits + 5) & 1u ? -1 : 1;
  if (exponent == 31) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -14 - fraction_bits);
  return sign * std::ldexp(fraction + std::ldexp(1, fraction_bits), exponent - 15 - fraction_bits);
}

// Of all positive codes in order the nearest, of two as near the even one. The infinity stands
// where the next number would.
class Nearest {
 public:
  explicit Nearest(int fraction_bits) : fraction_bits_(fraction_bits) {
    const std::uint32_t infinity = 31u << fraction_bits;
    for (std::uint32_t code = 0; code < infinity; ++code) {
      values_.push_back(number_of(code, fraction_bits));
    }
    values_.push_back(65536);
  }
  std::uint32_t code(double x) const {
    const std::uint32_t sign = std::signbit(x) ? 1u << (fraction_bits_ + 5) : 0;
    x = std::min(std::abs(x), 65536.0);
    const auto above = static_cast<std::uint32_t>(
        std::lower_bound(values_.begin(), values_.end(), x) - values_.begin());
    if (above == 0 || values_[above] == x) return sign | above;
    const double down = x - values_[above - 1], up = values_[above] - x;
    const bool goes_up = up < down || (up == down && above % 2 == 0);
    return sign | (goes_up ? above : above - 1);
  }
  const std::vector<double>& values() const { return values_; }

 private:
  int fraction_bits_;
  std::vector<double> values_;
};

inline f8e5m2 fp8_of_code(std::uint32_t code) {
  f8e5m2 element;
  element.bits = static_cast<std::uint8_t>(code);
  return element;
}
inline f16 f16_of_code(std::uint32_t code) {
  f16 element;
  element.bits = static_cast<std::uint16_t>(code);
  return element;
}

}  // namespace attest::vendor::triton
