// The numbers of a kernel of tests/bounds, and what its style makes of them: roundings, functions
// that are off by as much as is declared, sums.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <type_traits>
#include <vector>

#include "spec/dtype.h"
#include "spec/problem.h"
#include "tests/bounds/style.h"

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace attest::bounds {

inline std::size_t at(Index i) { return static_cast<std::size_t>(i); }

// The processor flushes subnormal operands or results, as long as this lives.
class Flushing {
 public:
#ifdef __SSE2__
  Flushing(bool inputs, bool outputs) : saved_(_mm_getcsr()) {
    constexpr unsigned kInputs = 0x0040, kOutputs = 0x8000;
    _mm_setcsr(saved_ | (inputs ? kInputs : 0) | (outputs ? kOutputs : 0));
  }
  ~Flushing() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#else
  Flushing(bool, bool) {}  // only what Kernel does by itself
#endif
  Flushing(const Flushing&) = delete;
  Flushing& operator=(const Flushing&) = delete;
};

template <class T>
struct Matrix {
  Index rows = 0, columns = 0;
  std::vector<T> data = {};

  Matrix() = default;
  Matrix(Index r, Index c, T value = 0) : rows(r), columns(c), data(at(r * c), value) {}
  T* row(Index r) { return data.data() + r * columns; }
  const T* row(Index r) const { return data.data() + r * columns; }

  Matrix transposed() const {
    Matrix result(columns, rows);
    for (Index r = 0; r < rows; ++r) {
      for (Index c = 0; c < columns; ++c) result.row(c)[r] = row(r)[c];
    }
    return result;
  }
};

template <class T>
class Numbers {
 protected:
  static constexpr T kInfinity = std::numeric_limits<T>::infinity();
  using Vector = std::vector<T>;

  Numbers(const Problem& problem, const Style& style)
      : p_(problem),
        style_(style),
        scale_(static_cast<T>(problem.scale)),
        cap_(static_cast<T>(problem.softcap)),
        unit_(static_cast<T>(style.base_2 ? std::numbers::log2e : 1.0)),
        fused_(style.scale == Style::Scale::exponent),
        smallest_(static_cast<T>(smallest_normal(problem.dtype))),
        softmax_roundoff_(unit_roundoff(problem.lse_dtype())),
        exp_error_(declared(style, problem.dtype).exp_error),
        tanh_error_(declared(style, problem.dtype).tanh_error),
        ones_(at(std::max(problem.key_len, problem.query_heads * problem.query_len)), T(1)) {
    if (style.fault == Style::Fault::exp_error) exp_error_ *= 128;
    if (!fused_) return;
    // A negative scale would turn the maximum of q k into the minimum.
    const bool bare = cap_ == 0 && !p_.bias_shape && !p_.slopes_shape && !p_.sink && scale_ > 0;
    to_natural_ = bare ? scale_ : T(1);
    to_units_ = to_natural_ * unit_;
  }

  T flushed(T x) const { return std::abs(x) < smallest_ ? T(0) : x; }
  T input(double value) const {
    const bool narrows = style_.narrows_unstored && p_.stored.any();
    const T x = static_cast<T>(narrows ? round_to(p_.dtype, value) : value);
    return style_.flushes_inputs ? flushed(x) : x;
  }
  // As a P or dS that is kept in the problem's format.
  T narrow(T x) const {
    return style_.narrows ? flushed_result(static_cast<T>(round_to(p_.dtype, double(x)))) : x;
  }
  T stored_score(T x) const {
    return style_.stores_scores ? flushed_result(static_cast<T>(round_to(p_.dtype, double(x)))) : x;
  }
  T narrow_p(T x) const {
    if (p_.stored.v && style_.p_in_8_bits > 0) {
      const double times = style_.p_in_8_bits;
      return static_cast<T>(round_to(DType::e4m3, double(x) * times) / times);
    }
    if (!style_.truncates_p || !style_.narrows) return narrow(x);
    double result = round_to(p_.dtype, double(x));
    if (result > double(x)) result = decode(p_.dtype, encode(p_.dtype, result) - 1);
    return flushed_result(static_cast<T>(result));
  }
  T flushed_result(T result) const {
    const bool flushes = style_.flushes_inputs || style_.flushes_outputs;
    return flushes && p_.dtype != p_.lse_dtype() ? flushed(result) : result;
  }
  double output(T x, DType dtype) const {
    double result = round_to(dtype, static_cast<double>(x));
    if (style_.truncates_output && std::isfinite(result) &&
        std::abs(result) > std::abs(static_cast<double>(x))) {
      result = decode(dtype, encode(dtype, result) - 1);  // towards zero
    }
    return style_.flushes_outputs && std::abs(result) < smallest_normal(dtype) ? 0 : result;
  }
  Matrix<T> operands(Matrix<T> from, ProductIndex product) const {
    round_operands(from.data.data(), Index(from.data.size()), product);
    return from;
  }
  void round_operands(T* x, Index n, ProductIndex product) const {
    if (style_.operand_digits == 0 || !(style_.rounded_products >> product & 1)) return;
    constexpr int kDigits = std::numeric_limits<Wider<T>>::digits;
    const Wider<T> factor = std::ldexp(Wider<T>(1), kDigits - style_.operand_digits) + 1;
    for (Index t = 0; t < n; ++t) {  // Veltkamp's splitting: what is left rounds to the digits
      const Wider<T> large = factor * x[t];
      x[t] = static_cast<T>(large - (large - x[t]));
    }
  }

  // How far the value of a function at x is off, within [-1, 1].
  static double share(Error error, T x) {
    switch (error) {
      case Error::rounded:
        return 0;
      case Error::scattered:
        return static_cast<double>(
                   static_cast<std::int64_t>(scramble(std::bit_cast<std::uint64_t>(double(x))))) *
               0x1p-63;
      case Error::high:
        return 1;
      case Error::low:
        return -1;
    }
    return 0;
  }
  T with_error(double exact, Error error, double most, T x) const {
    // What is left of it after the result is rounded to T.
    const double left = std::max(0.0, most - 1.01 * softmax_roundoff_);
    return static_cast<T>(exact * (1 + share(error, x) * left));
  }
  // In units of unit_; 1 at 0, as every exponential function has it.
  T power(T x) const {
    if (x == 0 && !style_.exp_zero_inexact) return 1;
    const double exact = style_.base_2 ? std::exp2(double(x)) : std::exp(double(x));
    return with_error(exact, style_.exp_error, exp_error_, x);
  }
  T tanh(T x) const { return with_error(std::tanh(double(x)), style_.tanh_error, tanh_error_, x); }
  T fma(T x, T y, T z) const {  // of floats but for 2^-53
    if constexpr (std::is_same_v<T, float>) return static_cast<T>(double(x) * y + z);
    return std::fma(x, y, z);
  }
  // exp of the difference of two scores, and of a score and LSE.
  T weight(T s, T m) const {
    if (!fused_) return power(s - m);
    if (style_.clamps_exponent && s == m) return 1;
    return power(clamped(fma(s, to_units_, -(m * to_units_))));
  }
  T clamped(T exponent) const { return style_.clamps_exponent && exponent > 0 ? T(0) : exponent; }
  // From one running maximum to the next: the difference comes first, or else roundings of m would
  // add up from step to step.
  T rescale(T m, T next) const { return power(fused_ ? (m - next) * to_units_ : m - next); }
  T weight_by_lse(T s, T lse) const {
    return power(fused_ ? clamped(fma(s, to_units_, -(lse * unit_))) : s - lse * unit_);
  }
  T log_of(T x) const {
    return static_cast<T>(style_.base_2 ? std::log2(double(x)) : std::log(double(x)));
  }
  T natural(T x) const { return style_.base_2 ? x * static_cast<T>(std::numbers::ln2) : x; }

  T sum(Order order, const Vector& terms) {
    if (ones_.size() < terms.size()) ones_.resize(terms.size(), T(1));
    return dot(order, terms.data(), ones_.data(), Index(terms.size()));
  }
  T sum(const T* terms, Index n) const { return dot(style_.order, terms, ones_.data(), n); }

  const Problem& p_;
  const Style& style_;
  T scale_, cap_, unit_;
  bool fused_;                       // scores are multiplied in the exponent:
  T to_natural_ = 1, to_units_ = 1;  // what they are then multiplied with

 private:
  T smallest_;
  double softmax_roundoff_, exp_error_, tanh_error_;
  Vector ones_;
};

}  // namespace attest::bounds
