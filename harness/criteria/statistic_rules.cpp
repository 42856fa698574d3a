// Rules that judge the whole tensor by one number.
#include <algorithm>
#include <cmath>

#include "harness/criteria/measures.h"
#include "harness/criteria/projects.h"

namespace attest::criteria {

// The squared error over the squares of the reference.
Rule ggml() {
  const auto judge = [](const Sample& s) {
    if (!is_output(s)) return Ruling::not_compared;
    double away = 0, all = 0;
    for (std::size_t i = 0; i < s.exact.size(); ++i) {
      if (std::isnan(s.actual[i])) return Ruling::fails;
      if (std::isinf(s.actual[i]) || std::isinf(s.exact[i])) {
        if (s.actual[i] != s.exact[i]) return Ruling::fails;
        continue;
      }
      away += (s.actual[i] - s.exact[i]) * (s.actual[i] - s.exact[i]);
      all += s.exact[i] * s.exact[i];
    }
    return ruling(!(away / all > 5e-4));
  };
  return {.name = "ggml",
          .source = "github.com/ggml-org/llama.cpp tests/test-backend-ops.cpp",
          .says = "squared error of O over its squares at most 5e-4",
          .nan = "fails",
          .dtypes = {f32, f16, bf16},
          .data = "normal",
          .lacks = {"causal", "window", "lengths", "packed", "paged", "dropout",
                    "dropout-generated", "dlse"},
          .judge = judge};
}

// Pearson's coefficient of correlation. NaN and infinities count as 0 on both sides, unless there
// is nothing else; what does not vary correlates with anything.
Rule tt_metal() {
  const auto judge = [](const Sample& s) {
    if (!is_output(s) || s.exact.empty()) return Ruling::not_compared;
    const auto is_nan = [](double value) { return std::isnan(value); };
    const auto is_set = [](double value) { return value != 0; };
    const auto any_set = [&](const Numbers& n) { return std::any_of(n.begin(), n.end(), is_set); };
    if (std::all_of(s.actual.begin(), s.actual.end(), is_nan)) return Ruling::fails;
    if (any_set(s.actual) != any_set(s.exact)) return Ruling::fails;
    const auto mean = [](const Numbers& n) {
      double sum = 0;
      for (const double value : n) sum += zero_unless_finite(value);
      return sum / static_cast<double>(n.size());
    };
    const double actual_mean = mean(s.actual), exact_mean = mean(s.exact);
    double both = 0, actual_squares = 0, exact_squares = 0;
    for (std::size_t i = 0; i < s.exact.size(); ++i) {
      const double a = zero_unless_finite(s.actual[i]) - actual_mean;
      const double e = zero_unless_finite(s.exact[i]) - exact_mean;
      both += a * e;
      actual_squares += a * a;
      exact_squares += e * e;
    }
    if (actual_squares == 0 || exact_squares == 0) return Ruling::passes;
    return ruling(both / std::sqrt(actual_squares * exact_squares) >= 0.994);
  };
  return {
      .name = "tt-metal",
      .source = "github.com/tenstorrent/tt-metal tests/tt_eager, comp_pcc",
      .says = "correlation of O at least 0.994",
      .nan = "counts as 0 on both sides, unless all are NaN",
      .dtypes = {bf16},
      .data = "outliers",
      .lacks = {"lengths", "packed", "alibi", "softcap", "dropout", "dropout-generated", "dlse"},
      .judge = judge};
}

}  // namespace attest::criteria
