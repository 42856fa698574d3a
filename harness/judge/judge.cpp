#include "harness/judge/judge.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "spec/assert.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Whether the exact value lies in the cell of `actual`, where that is told in double: nearly always
// (then the difference is exact). If not, rounding_cell has to tell.
bool certainly_in_cell(double actual, double exact, DType dtype, Rounding rounding) {
  const Format format = format_of(dtype);
  const int exponent = exponent_of(actual);
  if (dtype == DType::f64 || exponent < format.min_exponent || exponent > format.max_exponent) {
    return false;
  }
  // Below a power of two the numbers lie twice as dense.
  const bool inwards = (actual > exact) == (actual > 0);
  const bool power = (std::bit_cast<std::uint64_t>(actual) & ((std::uint64_t(1) << 52) - 1)) == 0;
  const int halvings = (rounding == Rounding::nearest ? 1 : 0) + (inwards && power ? 1 : 0);
  return std::abs(actual - exact) <= power_of_two(exponent - (format.digits - 1) - halvings);
}

// How far the exact value lies outside the cell of `actual`; NaN if `actual` is NaN.
long double distance(double actual, long double exact, DType dtype, Rounding rounding) {
  if (std::isnan(actual)) return std::numeric_limits<long double>::quiet_NaN();
  // An exact infinity (LSE of an empty row) is met by itself and by nothing else.
  if (std::isinf(exact)) return actual == exact ? 0 : static_cast<long double>(kInfinity);
  const Cell cell = rounding_cell(dtype, actual, rounding);
  if (exact < cell.low) return cell.low - exact;
  if (exact > cell.high) return exact - cell.high;
  return 0;
}

long double exact_at(const Expected& expected, std::size_t i) {
  return expected.value[i] +
         (expected.rest.empty() ? 0.0L : static_cast<long double>(expected.rest[i]));
}

// In a loop of their own, in which nothing is called: so they stay in registers.
template <DType kDType>
void sum_errors(const std::vector<std::uint64_t>& bits, const Expected& expected,
                TensorEvidence& evidence) {
  long double squares = 0, sum = 0;
  std::size_t finite = 0;
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const double actual = decode(kDType, bits[i]);
    if (!std::isfinite(actual) || !std::isfinite(expected.value[i])) continue;
    const long double error = actual - exact_at(expected, i);
    squares += error * error;
    sum += error;
    ++finite;
  }
  if (finite == 0) return;
  evidence.rms = static_cast<double>(std::sqrt(squares / static_cast<long double>(finite)));
  evidence.mean = static_cast<double>(sum / static_cast<long double>(finite));
}

// Which element is the worst, and how far off.
template <DType kDType>
void describe_worst(const std::vector<std::uint64_t>& bits, const Shape& shape,
                    const Expected& expected, std::size_t worst, TensorEvidence& evidence) {
  const auto place = coordinates(shape, static_cast<Index>(worst));
  const bool beyond = !expected.recommended.empty() && std::isfinite(expected.recommended[worst]);
  evidence.worst = {place.begin(), place.end()};
  evidence.actual = decode(kDType, bits[worst]);
  evidence.exact = expected.value[worst];
  evidence.bound = beyond ? expected.recommended[worst] : expected.bound[worst];
}

// The format is known to the compiler, because every element asks for it.
template <DType kDType>
TensorVerdict judge_as(const std::vector<std::uint64_t>& bits, const Shape& shape,
                       const Expected& expected, Rounding rounding) {
  TensorVerdict verdict;
  TensorEvidence& evidence = verdict.evidence;
  evidence.elements = static_cast<Index>(bits.size());
  sum_errors<kDType>(bits, expected, evidence);
  std::size_t worst = 0;
  double worst_ratio = -1;
  bool worst_is_advice = false;
  const bool some_beyond = !expected.recommended.empty();
  for (std::size_t i = 0; i < bits.size(); ++i) {
    if (std::isnan(expected.value[i])) {
      evidence.unspecified += std::isinf(expected.bound[i]);  // else it was not looked at
      continue;
    }
    ++evidence.compared;
    const double actual = decode(kDType, bits[i]);
    // Where nothing is required, what is recommended.
    const bool beyond = some_beyond && std::isfinite(expected.recommended[i]);
    const double bound = beyond ? expected.recommended[i] : expected.bound[i];
    // Nearer still to its cell: it passes, and there is worse. (A little less than the worst, so
    // that no rounding of this product decides what is recorded.)
    const bool known = worst_ratio >= 0 && std::isfinite(bound);
    if (known && kDType != DType::f64) {  // in double, which nearly always tells
      const double least = std::min(worst_ratio, 1.0) * bound;
      const bool normal = least > 0x1p-1000;
      if (normal && std::abs(actual - expected.value[i]) <= least * (1 - 0x1p-39)) continue;
    }
    const long double exact = exact_at(expected, i), error = actual - exact;
    const long double least = std::min(worst_ratio, 1.0) * static_cast<long double>(bound);
    if (known && std::abs(error) <= least * (1 - 0x1p-40L)) continue;
    const bool in_cell = certainly_in_cell(actual, expected.value[i], kDType, rounding);
    const long double away = in_cell ? 0 : distance(actual, exact, kDType, rounding);
    const bool within = away <= bound;
    const bool advice = !within && beyond;
    const bool vacuous = !std::isfinite(bound);  // infinite, or NaN from infinity times 0
    if (vacuous) {
      verdict.conclusive = false;
    } else if (advice) {
      verdict.advised = false;
    } else if (!within) {
      verdict.passed = false;
      verdict.nonfinite |= !std::isfinite(actual);
    }
    // What the ratio hides: 0/0 is met exactly, x/0 and NaN are infinitely far off.
    const double ratio = away == 0 || vacuous               ? 0
                         : within                           ? static_cast<double>(away / bound)
                         : bound > 0 && std::isfinite(away) ? static_cast<double>(away / bound)
                                                            : kInfinity;
    // What breaks a requirement is worse than any other.
    const bool first_broken = !within && !vacuous && !advice && worst_is_advice;
    const bool hides_broken = advice && !verdict.passed;
    if (first_broken || (ratio > worst_ratio && !hides_broken)) {
      worst_ratio = ratio;
      worst_is_advice = advice;
      worst = i;
    }
  }
  if (evidence.compared == 0) {
    verdict.conclusive = bits.empty();
    return verdict;
  }
  evidence.max_ratio = worst_ratio;
  describe_worst<kDType>(bits, shape, expected, worst, evidence);
  return verdict;
}

}  // namespace

TensorVerdict judge(const std::vector<std::uint64_t>& bits, DType dtype, const Shape& shape,
                    const Expected& expected, Rounding rounding) {
  ATTEST_ASSERT(bits.size() == expected.value.size() && bits.size() == expected.bound.size());
  return with_constant(
      dtype, [&](auto format) { return judge_as<format()>(bits, shape, expected, rounding); });
}

std::vector<double> ratios_to_bounds(const std::vector<std::uint64_t>& bits, DType dtype,
                                     const Expected& expected, Rounding rounding) {
  std::vector<double> ratios(bits.size(), -1);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const double bound = expected.bound[i];
    if (std::isnan(expected.value[i]) || !std::isfinite(bound)) continue;
    const long double away =
        distance(decode(dtype, bits[i]), exact_at(expected, i), dtype, rounding);
    ratios[i] = away == 0                          ? 0
                : bound > 0 && std::isfinite(away) ? static_cast<double>(away / bound)
                                                   : kInfinity;
  }
  return ratios;
}

std::vector<std::size_t> beyond_bounds(const std::vector<std::uint64_t>& bits, DType dtype,
                                       const Expected& expected, Rounding rounding) {
  std::vector<std::size_t> beyond;
  for (std::size_t i = 0; i < bits.size(); ++i) {
    if (std::isnan(expected.value[i]) || !std::isfinite(expected.bound[i])) continue;
    const double actual = decode(dtype, bits[i]);
    const bool within = distance(actual, exact_at(expected, i), dtype, rounding) <=
                        static_cast<long double>(expected.bound[i]);
    if (!within) beyond.push_back(i);
  }
  return beyond;
}

}  // namespace attest
