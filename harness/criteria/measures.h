// How the rules of other projects measure an error, and what many of them have in common.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/criteria/rule.h"

namespace attest::criteria {

using Numbers = std::vector<double>;

// The same infinity is no error, another one an infinite error.
double error(double actual, double exact);

// The larger one; NaN if either is.
double larger(double a, double b);

double largest_error(const Numbers& actual, const Numbers& exact);

// NaN is passed over, as fmax does.
double largest_error_but_nan(const Numbers& actual, const Numbers& exact);

// NaN if any element is.
double mean_error(const Numbers& actual, const Numbers& exact);

Numbers rounded(const Numbers& values, DType dtype);

double zero_unless_finite(double value);

struct Tolerance {
  double absolute;
  double relative;

  // |actual - exact| <= absolute + relative |exact|. NaN is never close, an infinity to itself
  // alone.
  bool close(double actual, double exact) const {
    if (std::isinf(exact)) return actual == exact;
    return std::abs(actual - exact) <= absolute + relative * std::abs(exact);
  }
};

// The tolerance of each format; none where a rule states none.
struct ByFormat {
  std::optional<Tolerance> f32 = {}, f16 = {}, bf16 = {};

  std::optional<Tolerance> of(DType dtype) const {
    return dtype == DType::f32    ? f32
           : dtype == DType::f16  ? f16
           : dtype == DType::bf16 ? bf16
                                  : std::nullopt;
  }
};

Ruling ruling(bool passes);

// Every element is close; none compared where there is no tolerance.
Ruling all_close(const Sample& s, const std::optional<Tolerance>& tolerance);
Ruling all_close(const Sample& s, const ByFormat& tolerances);

bool is_output(const Sample& s);
bool is_lse(const Sample& s);
// dQ, dK and dV: all the gradients that most projects have.
bool is_gradient(const Sample& s);
bool is_gradient_or_dbias(const Sample& s);

// What a suite of a single problem does not try.
std::vector<std::string> all_but(const std::set<std::string>& tried);
// Masks that are tables, and more.
std::vector<std::string> tables_and(const std::vector<std::string>& more);

inline constexpr DType f32 = DType::f32, f16 = DType::f16, bf16 = DType::bf16;

}  // namespace attest::criteria
