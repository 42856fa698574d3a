#include "harness/laws/known.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "reference/roundoff.h"

namespace attest::laws {
namespace {

constexpr long double kInfinite = std::numeric_limits<long double>::infinity();
constexpr long double kNothing = std::numeric_limits<long double>::quiet_NaN();
// More than the rounding error of one operation, and of a few for exp and log.
constexpr long double kRounding = 32 * kRoundoff<long double>;

Known outwards(long double value, long double low, long double high) {
  return {value, low - kRounding * std::abs(low), high + kRounding * std::abs(high)};
}

// 0 times an unknown number is 0.
long double times(long double a, long double b) { return a == 0 || b == 0 ? 0 : a * b; }

// log(exp a + exp b), where both may be -inf.
long double log_of_sum(long double a, long double b) {
  const long double most = std::max(a, b);
  return std::isinf(most) ? most : most + std::log1p(std::exp(std::min(a, b) - most));
}

long double logistic(long double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

bool Known::tells_nothing() const { return low == -kInfinite && high == kInfinite; }

Known exactly(long double value) { return {value, value, value}; }
Known nothing_known() { return {0, -kInfinite, kInfinite}; }

Known returned(DType dtype, double value, double bound, Rounding rounding) {
  if (!std::isfinite(bound)) return {value, -kInfinite, kInfinite};
  if (std::isnan(value)) return {kNothing, kNothing, kNothing};
  const Cell cell = rounding_cell(dtype, value, rounding);
  return outwards(value, cell.low - bound, cell.high + bound);
}

Known operator+(const Known& a, const Known& b) {
  return outwards(a.value + b.value, a.low + b.low, a.high + b.high);
}
Known operator-(const Known& a, const Known& b) { return a + -1 * b; }

Known operator*(long double factor, const Known& a) {
  const long double ends[] = {times(factor, a.low), times(factor, a.high)};
  return outwards(times(factor, a.value), std::min(ends[0], ends[1]), std::max(ends[0], ends[1]));
}

Known operator*(const Known& a, const Known& b) {
  const auto ends = std::minmax(
      {times(a.low, b.low), times(a.low, b.high), times(a.high, b.low), times(a.high, b.high)});
  return outwards(times(a.value, b.value), ends.first, ends.second);
}

Known widened(Known a, long double slack) {
  return outwards(a.value, a.low - slack, a.high + slack);
}

Known log_sum_exp(const Known& a, const Known& b) {
  return outwards(log_of_sum(a.value, b.value), log_of_sum(a.low, b.low),
                  log_of_sum(a.high, b.high));
}

Known exp_of_difference(const Known& a, const Known& b) {
  // The error of an exponential grows with its argument.
  const auto exp_of = [](long double x, int side) {
    return std::exp(x + side * kRounding * std::min(std::abs(x), 1e5L));
  };
  return outwards(std::exp(a.value - b.value), exp_of(a.low - b.high, -1),
                  exp_of(a.high - b.low, 1));
}

Known weight_beside(const Known& a, const Known& b) {
  const Known difference = a - b;
  const auto weight = [](long double x) { return std::isnan(x) ? 0.5L : logistic(x); };
  const long double slack = kRounding * (1 + std::min(std::abs(difference.value), 1e5L));
  return {weight(difference.value), std::max(0.0L, weight(difference.low) - slack),
          std::min(1.0L, weight(difference.high) + slack)};
}

Known mixture(const Known& weight, const Known& a, const Known& b) {
  // Linear in each of the three: the extremes lie at their ends.
  std::array<long double, 8> ends;
  for (unsigned n = 0; n < ends.size(); ++n) {
    const long double w = n & 1 ? weight.high : weight.low;
    ends[n] = times(w, n & 2 ? a.high : a.low) + times(1 - w, n & 4 ? b.high : b.low);
  }
  const auto [low, high] = std::minmax_element(ends.begin(), ends.end());
  const long double slack = kRounding * (std::max(std::abs(a.low), std::abs(a.high)) +
                                         std::max(std::abs(b.low), std::abs(b.high)));
  return widened({times(weight.value, a.value) + times(1 - weight.value, b.value), *low, *high},
                 slack);
}

Gap gap_between(const Known& a, const Known& b) {
  if (a.tells_nothing() || b.tells_nothing()) return {0, kInfinite, 0};
  const bool compatible = a.low <= b.high && b.low <= a.high;
  const long double apart = a.value == b.value ? 0 : std::abs(a.value - b.value);
  const long double allowed = a.value < b.value ? (a.high - a.value) + (b.value - b.low)
                                                : (b.high - b.value) + (a.value - a.low);
  const long double share = apart == 0                            ? 0
                            : allowed > 0 && std::isfinite(apart) ? apart / allowed
                                                                  : kInfinite;
  const auto ratio = static_cast<double>(share);
  return {apart, allowed,
          compatible ? std::min(ratio, 1.0) : std::max(ratio, std::nextafter(1.0, 2.0))};
}

}  // namespace attest::laws
