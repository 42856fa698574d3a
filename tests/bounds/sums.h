// Sums of products as hardware and libraries do them: the orders, with and without fma, and matrix
// units that align, add and truncate.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
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
  fused_lanes,   // lanes with fma
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

// One step of a matrix unit: aligns the accumulator and `count` products, 16 at most, to the
// largest of them, cuts off what lies below its last bit, adds, and cuts the sum. The integers
// below are those of the aligned adder.
template <class T>
Wider<T> truncating_step(Wider<T> sum, const T* x, const T* y, Index count) {
  constexpr int kDigits = std::numeric_limits<T>::digits;
  using Wide = Wider<T>;
  std::array<Wide, 17> terms;
  terms[0] = sum;
  const auto n = static_cast<std::size_t>(count) + 1;
  for (std::size_t t = 1; t < n; ++t) terms[t] = Wide(x[t - 1]) * y[t - 1];
  Wide largest = 0, plain = 0;
  for (std::size_t t = 0; t < n; ++t) {
    largest = std::max(largest, std::abs(terms[t]));
    plain += terms[t];
  }
  if (largest == 0 || !std::isfinite(plain)) return plain;  // nothing to align; infinity or NaN
  int exponent;
  if constexpr (std::is_same_v<Wide, double>) {
    exponent = static_cast<int>(std::bit_cast<std::uint64_t>(largest) >> 52) - 1023;  // normal
  } else {
    exponent = std::ilogb(largest);
  }
  const int last = std::max(exponent - kDigits + 1,
                            std::numeric_limits<T>::min_exponent - kDigits);  // of the subnormals
  Wide scale;
  if constexpr (std::is_same_v<Wide, double>) {
    scale = power_of_two(-last);
  } else {
    scale = std::ldexp(Wide(1), -last);  // beyond the range of double
  }
  std::int64_t total = 0;
  for (std::size_t t = 0; t < n; ++t) total += static_cast<std::int64_t>(terms[t] * scale);
  const bool negative = total < 0;
  auto magnitude = static_cast<std::uint64_t>(negative ? -total : total);
  const int beyond = std::max(static_cast<int>(std::bit_width(magnitude)) - kDigits, 0);
  magnitude >>= beyond;
  const Wide unit = power_of_two(beyond) / scale;
  return negative ? -Wide(magnitude) * unit : Wide(magnitude) * unit;
}

constexpr Index step_of(Order order) {
  return order == Order::truncated_4 ? 4 : order == Order::truncated_8 ? 8 : 16;
}

template <class T>
T truncating_dot(const T* x, const T* y, Index n, Index step) {
  Wider<T> sum = 0;
  for (Index t = 0; t < n; t += step) {
    sum = truncating_step(sum, x + t, y + t, std::min(step, n - t));
  }
  return static_cast<T>(sum);
}

template <class T>
T fused(T sum, T x, T y) {
  if constexpr (std::is_same_v<T, float>) {  // the same but for 2^-53, and faster
    return static_cast<float>(double(x) * double(y) + double(sum));
  } else {
    return std::fma(x, y, sum);
  }
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
      for (Index t = 0; t < n; ++t) sum = fused(sum, x[t], y[t]);
      return sum;
    case Order::reversed:
      for (Index t = n; t-- > 0;) sum += x[t] * y[t];
      return sum;
    case Order::pairwise:
      return pairwise_dot(x, y, n);
    case Order::lanes: {
      std::array<T, 16> lane = {};
      Index t = 0;
      for (; t + 16 <= n; t += 16) {
        for (std::size_t l = 0; l < 16; ++l) lane[l] += x[t + Index(l)] * y[t + Index(l)];
      }
      for (std::size_t l = 0; t < n; ++l, ++t) lane[l] += x[t] * y[t];
      for (const T each : lane) sum += each;
      return sum;
    }
    case Order::truncated_4:
    case Order::truncated_8:
    case Order::truncated_16:
      return truncating_dot(x, y, n, step_of(order));
    case Order::fused_lanes: {
      std::array<T, 16> lane = {};
      for (Index t = 0; t < n; ++t) {
        T& each = lane[static_cast<std::size_t>(t % 16)];
        each = fused(each, x[t], y[t]);
      }
      for (const T each : lane) sum += each;
      return sum;
    }
    case Order::wide: {
      Wider<T> wide = 0;
      for (Index t = 0; t < n; ++t) wide += Wider<T>(x[t]) * y[t];
      return static_cast<T>(wide);
    }
  }
  return sum;
}

// The sums of a vector x with every column of a matrix y, whose n rows are `pitch` apart: `count`
// of them, each with the bits that dot() has. Side by side, as wide as the processor is.
void dots(Order order, const float* x, const float* y, Index pitch, Index n, Index count,
          float* out);
void dots(Order order, const double* x, const double* y, Index pitch, Index n, Index count,
          double* out);

}  // namespace attest::bounds
