#include "harness/criteria/measures.h"

#include <algorithm>
#include <cmath>

#include "spec/description.h"
#include "spec/mask_kind.h"

namespace attest::criteria {

double error(double actual, double exact) {
  if (actual == exact) return 0;
  return std::abs(actual - exact);
}

double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

double largest_error(const Numbers& actual, const Numbers& exact) {
  double largest = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    largest = std::isnan(largest) ? largest : larger(error(actual[i], exact[i]), largest);
  }
  return largest;
}

double largest_error_but_nan(const Numbers& actual, const Numbers& exact) {
  double largest = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    largest = std::fmax(largest, error(actual[i], exact[i]));
  }
  return largest;
}

double mean_error(const Numbers& actual, const Numbers& exact) {
  double sum = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) sum += error(actual[i], exact[i]);
  return exact.empty() ? 0 : sum / static_cast<double>(exact.size());
}

Numbers rounded(const Numbers& values, DType dtype) {
  Numbers result;
  result.reserve(values.size());
  for (const double value : values) result.push_back(round_to(dtype, value));
  return result;
}

double zero_unless_finite(double value) { return std::isfinite(value) ? value : 0; }

Ruling ruling(bool passes) { return passes ? Ruling::passes : Ruling::fails; }

Ruling all_close(const Sample& s, const std::optional<Tolerance>& tolerance) {
  if (!tolerance) return Ruling::not_compared;
  for (std::size_t i = 0; i < s.exact.size(); ++i) {
    if (!tolerance->close(s.actual[i], s.exact[i])) return Ruling::fails;
  }
  return Ruling::passes;
}

Ruling all_close(const Sample& s, const ByFormat& tolerances) {
  return all_close(s, tolerances.of(s.dtype));
}

bool is_output(const Sample& s) { return s.tensor == TensorName::o; }
bool is_lse(const Sample& s) { return s.tensor == TensorName::lse; }
bool is_gradient(const Sample& s) { return s.tensor == TensorName::dq || is_of_keys(s.tensor); }
bool is_gradient_or_dbias(const Sample& s) {
  return is_gradient(s) || s.tensor == TensorName::dbias;
}

std::vector<std::string> all_but(const std::set<std::string>& tried) {
  std::vector<std::string> features = known_features();
  std::erase_if(features, [&](const std::string& feature) { return tried.contains(feature); });
  return features;
}

std::vector<std::string> tables_and(const std::vector<std::string>& more) {
  std::vector<std::string> features;
  for (const MaskKind& kind : mask_kinds()) {
    if (!kind.tables.empty()) features.emplace_back(kind.declared);
  }
  features.insert(features.end(), more.begin(), more.end());
  return features;
}

}  // namespace attest::criteria
