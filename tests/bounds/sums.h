// Sums of products as hardware and libraries do them: the orders, with and without fma, and matrix
// units that align, add and truncate.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "spec/dtype.h"
#include "spec/index.h"

namespace attest::bounds {

enum class Order {
  sequential,
  fused,     // fma
  reversed,  // from the last term to the first
  pairwise,
  lanes,         // 16 sums side by side, then their sum
  truncated_4,   // a matrix unit that adds so many products at once, and cuts off what does not
  truncated_8,   // fit the accumulator
  truncated_16,  //
  wide,          // accumulated in a wider type, and rounded once
};

constexpr bool truncates(Order order) {
  return order == Order::truncated_4 || order == Order::truncated_8 || order == Order::truncated_16;
}

// Holds a product of two T exactly, or, for double, far more exactly than T.
template <class T>
using Wider = std::conditional_t<std::is_same_v<T, float>, double, long double>;

template <class T>
T pairwise_dot(const T* x, const T* y, Index n) {
  if (n == 1) return x[0] * y[0];
  const Index half = n / 2;
  return pairwise_dot(x, y, half) + pairwise_dot(x + half, y + half, n - half);
}

// Each step aligns the accumulator and `width` products to the largest of them, cuts off what lies
// below its last bit, adds, and cuts the sum. The integers below are those of the aligned adder.
template <class T>
T truncating_dot(const T* x, const T* y, Index n, Index width) {
  constexpr int kDigits = std::numeric_limits<T>::digits;
  using Wide = Wider<T>;
  Wide sum = 0;
  for (Index begin = 0; begin < n; begin += width) {
    std::array<Wide, 17> terms;
    std::size_t count = 0;
    terms[count++] = sum;
    for (Index t = begin; t < std::min(begin + width, n); ++t) terms[count++] = Wide(x[t]) * y[t];
    Wide largest = 0, plain = 0;
    for (std::size_t t = 0; t < count; ++t) {
      largest = std::max(largest, std::abs(terms[t]));
      plain += terms[t];
    }
    if (largest == 0 || !std::isfinite(plain)) {  // nothing to align, an infinity or NaN
      sum = plain;
      continue;
    }
    const int last = std::max(std::ilogb(largest) - kDigits + 1,
                              std::numeric_limits<T>::min_exponent - kDigits);  // of the subnormals
    Wide scale;
    if constexpr (std::is_same_v<Wide, double>) {
      scale = power_of_two(-last);
    } else {
      scale = std::ldexp(Wide(1), -last);  // beyond the range of double
    }
    Wide unit = 1 / scale;
    std::int64_t total = 0;
    for (std::size_t t = 0; t < count; ++t) total += static_cast<std::int64_t>(terms[t] * scale);
    const bool negative = total < 0;
    auto magnitude = static_cast<std::uint64_t>(negative ? -total : total);
    for (; magnitude >> kDigits != 0; magnitude >>= 1) unit *= 2;
    sum = negative ? -Wide(magnitude) * unit : Wide(magnitude) * unit;
  }
  return static_cast<T>(sum);
}

template <class T>
T dot(Order order, const T* x, const T* y, Index n) {
  T sum = 0;
  if (n == 0) return sum;
  switch (order) {
    case Order::sequential:
      for (Index t = 0; t < n; ++t) sum += x[t] * y[t];
      return sum;
    case Order::fused:
      for (Index t = 0; t < n; ++t) {
        if constexpr (std::is_same_v<T, float>) {  // the same but for 2^-53, and faster
          sum = static_cast<float>(double(x[t]) * double(y[t]) + double(sum));
        } else {
          sum = std::fma(x[t], y[t], sum);
        }
      }
      return sum;
    case Order::reversed:
      for (Index t = n; t-- > 0;) sum += x[t] * y[t];
      return sum;
    case Order::pairwise:
      return pairwise_dot(x, y, n);
    case Order::lanes: {
      std::array<T, 16> lane = {};
      for (Index t = 0; t < n; ++t) lane[static_cast<std::size_t>(t % 16)] += x[t] * y[t];
      for (const T each : lane) sum += each;
      return sum;
    }
    case Order::truncated_4:
      return truncating_dot(x, y, n, 4);
    case Order::truncated_8:
      return truncating_dot(x, y, n, 8);
    case Order::truncated_16:
      return truncating_dot(x, y, n, 16);
    case Order::wide: {
      Wider<T> wide = 0;
      for (Index t = 0; t < n; ++t) wide += Wider<T>(x[t]) * y[t];
      return static_cast<T>(wide);
    }
  }
  return sum;
}

}  // namespace attest::bounds
