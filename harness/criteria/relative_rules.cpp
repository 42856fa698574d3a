// Rules that measure a kernel against the error of a run at low precision.
#include <algorithm>
#include <cmath>

#include "harness/criteria/measures.h"
#include "harness/criteria/projects.h"

namespace attest::criteria {
namespace {

// Three statistics of one implementation.
struct Accuracy {
  double largest = 0, mean = 0, root_mean_square = 0;  // the first two relative
};

Accuracy accuracy(const Numbers& actual, const Numbers& exact) {
  Accuracy a;
  double relative = 0, squares = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double distance = error(actual[i], exact[i]);
    const double share = distance == 0 ? 0 : distance / (std::abs(exact[i]) + 1e-7);
    a.largest = larger(share, a.largest);
    relative += share;
    squares += distance * distance;
  }
  const double count = std::max<double>(static_cast<double>(exact.size()), 1);
  a.mean = relative / count;
  a.root_mean_square = std::sqrt(squares / count);
  return a;
}

}  // namespace

// The reference of these tests is rounded to the format of the kernel.
Rule flash_attention_2() {
  const auto judge = [](const Sample& s) {
    if (!is_output(s) && !is_gradient(s)) return Ruling::not_compared;
    const Numbers reference = rounded(s.exact, s.dtype);
    const double times = is_output(s) ? 2 : 3;
    return ruling(largest_error(s.actual, reference) <= times * largest_error(s.eager, reference));
  };
  return {.name = "flash-attention 2",
          .source = "github.com/Dao-AILab/flash-attention tests/test_flash_attn.py",
          .says =
              "largest error of O at most 2 times, of dQ, dK, dV 3 times that of an eager run in "
              "the same format; LSE is not compared",
          .nan = "fails",
          .dtypes = {f16, bf16},
          .data = "normal",
          .lacks = tables_and({"bias", "sink", "dlse"}),
          .judge = judge};
}

// Adding and taking off 0.3 leaves the noise of arithmetic about that size. dSink has two units in
// the last place of its largest element instead.
Rule flash_attention_3() {
  const auto judge = [](const Sample& s) {
    if (s.tensor == TensorName::dsink) {
      double largest = 0;
      for (const double value : s.exact) largest = std::max(largest, std::abs(value));
      const double ulp = power_of_two(spacing_exponent(format_of(s.dtype), largest));
      return ruling(largest_error(s.actual, s.exact) <=
                    2 * largest_error(s.eager, s.exact) + 2 * ulp);
    }
    if (!is_output(s) && !is_gradient(s)) return Ruling::not_compared;
    const Numbers reference = rounded(s.exact, s.dtype);
    Numbers noisy = reference;
    for (double& value : noisy) value = round_to(s.dtype, round_to(s.dtype, value + 0.3) - 0.3);
    const double times = s.softcap ? 3 : 2;
    const double more = s.softcap && is_gradient(s) ? 3e-4 : 0;
    return ruling(largest_error(s.actual, reference) <= times * largest_error(s.eager, reference) +
                                                            2 * largest_error(noisy, reference) +
                                                            more);
  };
  return {.name = "flash-attention 3/4",
          .source = "github.com/Dao-AILab/flash-attention hopper/test_flash_attn.py, tests/cute",
          .says =
              "the same, 2 times (with a softcap 3), and twice the noise of adding 0.3 and taking "
              "it off; dSink 2 times and 2 units in the last place",
          .nan = "fails",
          .dtypes = {f16, bf16},
          .data = "normal",
          .lacks = {"bias", "dropout", "dropout-generated"},
          .judge = judge};
}

Rule pytorch_sdpa() {
  const auto judge = [](const Sample& s) {
    double fudge = 0;
    if (is_output(s)) fudge = 4;
    if (s.tensor == TensorName::dq) fudge = s.bias ? 160 : 180;
    if (s.tensor == TensorName::dk) fudge = s.bias ? 25 : 16;
    if (s.tensor == TensorName::dv) fudge = 4;
    if (s.tensor == TensorName::dbias) fudge = 45;
    if (fudge == 0) return Ruling::not_compared;
    const double actual = largest_error(s.actual, s.exact);
    const double eager = largest_error(s.eager, s.exact);
    if (std::isnan(actual)) return ruling(std::isnan(eager));
    return ruling(!(actual > std::max(1e-5, fudge * eager)));
  };
  return {.name = "PyTorch SDPA",
          .source = "github.com/pytorch/pytorch test/test_transformers.py",
          .says =
              "largest error at most that of an eager run times 4 (O, dV), 180 (dQ), 16 (dK); with "
              "a bias 160, 25, dBias 45; at least 1e-5",
          .nan = "fails, unless the eager run has one",
          .dtypes = {f32, f16, bf16},
          .data = "uniform",
          .lacks = {"window", "alibi", "softcap", "paged", "sink", "dlse"},
          .judge = judge};
}

Rule flex_attention() {
  const auto judge = [](const Sample& s) {
    if (!is_output(s) && !is_lse(s) && !is_gradient_or_dbias(s)) return Ruling::not_compared;
    const Tolerance tolerance = {1e-7, s.dtype == DType::f32 ? 10 : 1.1};
    return ruling(tolerance.close(mean_error(s.actual, s.exact), mean_error(s.eager, s.exact)));
  };
  return {.name = "FlexAttention",
          .source = "github.com/pytorch/pytorch test/inductor/test_flex_attention.py",
          .says = "mean error at most 2.1 times that of an eager run (f32: 11 times)",
          .nan = "fails",
          .dtypes = {f32, f16, bf16},
          .data = "normal",
          .lacks = {"dropout", "dropout-generated", "sink", "dlse"},
          .judge = judge};
}

// At least 0.01, or a multiple of the error at low precision.
Rule aiter() {
  const auto judge = [](const Sample& s) {
    if (s.tensor == TensorName::dsink) return all_close(s, Tolerance{0.5, 0});
    if (!is_output(s) && !is_gradient_or_dbias(s)) return Ruling::not_compared;
    const double times = is_output(s) ? 2 : 10;
    const double eager = largest_error(s.eager, s.exact);
    return ruling(largest_error(s.actual, s.exact) <= larger(times * eager, 0.01));
  };
  return {.name = "aiter",
          .source = "github.com/ROCm/aiter op_tests/test_mha.py",
          .says =
              "largest error at most 0.01, or 2 times (gradients 10 times) that of an eager run; "
              "dSink 0.5",
          .nan = "fails",
          .dtypes = {f16, bf16},
          .data = "normal",
          .lacks = {"dlse"},
          .judge = judge};
}

Rule ascend_double_benchmark() {
  const auto judge = [](const Sample& s) {
    const Accuracy own = accuracy(s.actual, s.exact), other = accuracy(s.eager, s.exact);
    return ruling(own.largest <= 5 * other.largest && own.mean <= 1.5 * other.mean &&
                  own.root_mean_square <= 1.5 * other.root_mean_square);
  };
  return {.name = "Ascend double benchmark",
          .source = "gitcode.com/ascend, operator accuracy standard, level L1",
          .says =
              "largest relative, mean relative and root mean square error at most 5, 1.5 and 1.5 "
              "times those of another implementation, for which an eager run stands",
          .nan = "fails",
          .dtypes = {f16, bf16},
          .data = "normal",
          .lacks = {"bias", "softcap", "sink", "dlse"},
          .judge = judge};
}

}  // namespace attest::criteria
