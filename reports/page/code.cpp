#include "reports/page/code.h"

#include <algorithm>
#include <cmath>

namespace attest::page {
namespace {

constexpr int kLeast = -40, kMost = 40;  // exponents

int code_of(int exponent, int digits) { return (exponent - kLeast) * 90 + digits - 10 + 1; }

}  // namespace

int code_of(double value) {
  if (std::isnan(value)) return -1;
  value = std::abs(value);
  if (std::isinf(value)) return -2;
  if (value == 0) return 0;
  int exponent = static_cast<int>(std::floor(std::log10(value)));
  if (exponent < kLeast) return code_of(kLeast, 10);
  if (exponent > kMost) return code_of(kMost, 99);
  // A little less, because the quotient is rounded too.
  int digits = static_cast<int>(std::ceil(value / std::pow(10.0, exponent - 1) - 1e-9));
  digits = std::max(digits, 10);
  if (digits > 99) {
    ++exponent;
    digits = 10;
  }
  const int code = code_of(exponent, digits);
  return value > 1 ? std::max(code, code_of(0, 11)) : code;
}

}  // namespace attest::page
