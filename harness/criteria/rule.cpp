// Reads top down: how an error is measured, then the rules, then their table.
#include "harness/criteria/rule.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>

#include "spec/description.h"

namespace attest::criteria {
namespace {

using Numbers = std::vector<double>;

// ---- Errors -------------------------------------------------------------------------------------

// The same infinity is no error, another one an infinite error.
double error(double actual, double exact) {
  if (actual == exact) return 0;
  return std::abs(actual - exact);
}

// The larger one; NaN if either is.
double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

double largest_error(const Numbers& actual, const Numbers& exact) {
  double largest = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    largest = std::isnan(largest) ? largest : larger(error(actual[i], exact[i]), largest);
  }
  return largest;
}

// NaN is passed over, as fmax does.
double largest_error_but_nan(const Numbers& actual, const Numbers& exact) {
  double largest = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    largest = std::fmax(largest, error(actual[i], exact[i]));
  }
  return largest;
}

// NaN if any element is.
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

Ruling ruling(bool passes) { return passes ? Ruling::passes : Ruling::fails; }

// Every element is close.
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
// dQ, dK and dV: all the gradients that most projects have.
bool is_gradient(const Sample& s) { return s.tensor == TensorName::dq || is_of_keys(s.tensor); }
bool is_gradient_or_dbias(const Sample& s) {
  return is_gradient(s) || s.tensor == TensorName::dbias;
}

// ---- Relative to a run at low precision ---------------------------------------------------------

// The reference of these tests is rounded to the format of the kernel.
Ruling flash_attention_2(const Sample& s) {
  if (!is_output(s) && !is_gradient(s)) return Ruling::not_compared;
  const Numbers reference = rounded(s.exact, s.dtype);
  const double times = is_output(s) ? 2 : 3;
  return ruling(largest_error(s.actual, reference) <= times * largest_error(s.eager, reference));
}

// Adding and taking off 0.3 leaves the noise of arithmetic about that size. dSink has two units in
// the last place of its largest element instead.
Ruling flash_attention_3(const Sample& s) {
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
}

Ruling pytorch_sdpa(const Sample& s) {
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
}

Ruling flex_attention(const Sample& s) {
  if (!is_output(s) && !is_lse(s) && !is_gradient_or_dbias(s)) return Ruling::not_compared;
  const Tolerance tolerance = {1e-7, s.dtype == DType::f32 ? 10 : 1.1};
  return ruling(tolerance.close(mean_error(s.actual, s.exact), mean_error(s.eager, s.exact)));
}

// At least 0.01, or a multiple of the error at low precision.
Ruling aiter(const Sample& s) {
  if (s.tensor == TensorName::dsink) return all_close(s, Tolerance{0.5, 0});
  if (!is_output(s) && !is_gradient_or_dbias(s)) return Ruling::not_compared;
  const double times = is_output(s) ? 2 : 10;
  const double eager = largest_error(s.eager, s.exact);
  return ruling(largest_error(s.actual, s.exact) <= larger(times * eager, 0.01));
}

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

Ruling ascend_double_benchmark(const Sample& s) {
  const Accuracy own = accuracy(s.actual, s.exact), other = accuracy(s.eager, s.exact);
  return ruling(own.largest <= 5 * other.largest && own.mean <= 1.5 * other.mean &&
                own.root_mean_square <= 1.5 * other.root_mean_square);
}

// ---- Fixed tolerances ---------------------------------------------------------------------------

Ruling triton_tutorial(const Sample& s) {
  if (!is_output(s) && !is_gradient(s)) return Ruling::not_compared;
  return all_close(s, Tolerance{1e-2, 0});
}

Ruling jax_splash(const Sample& s) {
  if (is_output(s)) return all_close(s, Tolerance{3e-3, 3e-3});
  if (is_lse(s)) return all_close(s, Tolerance{1e-3, 1e-3});
  if (is_gradient(s)) return all_close(s, Tolerance{2e-2, 3e-2});
  if (s.tensor == TensorName::dsink) return all_close(s, Tolerance{5e-3, 3e-2});
  return Ruling::not_compared;
}

constexpr ByFormat kFlashinfer = {.f16 = {{1e-3, 1e-3}}, .bf16 = {{1e-2, 1e-2}}};

Ruling flashinfer(const Sample& s) {
  if (is_output(s)) return all_close(s, kFlashinfer);
  if (is_lse(s)) return all_close(s, Tolerance{1e-3, 1e-3});
  return Ruling::not_compared;
}

// Counts the elements that are too far off, and forgives a few. A comparison with NaN is false.
Ruling flashinfer_mismatches(const Sample& s) {
  if (!is_output(s)) return Ruling::not_compared;
  std::size_t mismatches = 0;
  for (std::size_t i = 0; i < s.exact.size(); ++i) {
    mismatches += error(s.actual[i], s.exact[i]) > 1e-2 + 1e-2 * std::abs(s.exact[i]);
  }
  return ruling(static_cast<double>(mismatches) <= 5e-5 * static_cast<double>(s.exact.size()));
}

double zero_unless_finite(double value) { return std::isfinite(value) ? value : 0; }

// No element too far off, and no drift of all of them to one side.
Ruling cann(const Sample& s) {
  if (!is_output(s)) return Ruling::not_compared;
  const double limit = s.dtype == DType::bf16 ? 0x1p-7 : s.dtype == DType::f16 ? 0x1p-8 : 0x1p-11;
  const double drift = s.dtype == DType::bf16 ? 0x1p-7 : s.dtype == DType::f16 ? 0x1p-10 : 0x1p-14;
  double sum = 0;
  for (std::size_t i = 0; i < s.exact.size(); ++i) {
    const double golden = zero_unless_finite(s.exact[i]);
    const double away =
        (zero_unless_finite(s.actual[i]) - golden) / std::max(1.0, std::abs(golden));
    if (std::abs(away) > limit) return Ruling::fails;
    sum += away;
  }
  return ruling(std::abs(sum) <= drift * static_cast<double>(s.exact.size()));
}

Ruling xformers(const Sample& s) {
  if (is_output(s)) {
    return all_close(
        s, ByFormat{.f32 = {{3e-4, 2e-5}}, .f16 = {{4e-3, 4e-4}}, .bf16 = {{2e-2, 5e-3}}});
  }
  if (is_lse(s)) return all_close(s, Tolerance{2e-4, 0});
  if (is_gradient_or_dbias(s)) {
    return all_close(s,
                     ByFormat{.f32 = {{9e-4, 1e-4}}, .f16 = {{0.2, 2e-2}}, .bf16 = {{0.9, 0.1}}});
  }
  return Ruling::not_compared;
}

Ruling cudnn_frontend(const Sample& s) {
  double limit = 2e-2;
  if (is_of_keys(s.tensor) && s.dtype == DType::bf16) limit = 7e-2;
  if (s.tensor == TensorName::dsink) limit = 4e-2;
  return all_close(s, Tolerance{limit, limit});
}

Ruling cutlass(const Sample& s) {
  if (!is_output(s) && !is_lse(s) && !is_gradient(s)) return Ruling::not_compared;
  return ruling(largest_error_but_nan(s.actual, s.exact) < 1e-2 &&
                mean_error(s.actual, s.exact) < 1e-3);
}

Ruling composable_kernel(const Sample& s) {
  if (is_output(s) || is_lse(s)) {
    return all_close(s, ByFormat{.f16 = {{1e-3, 1e-3}}, .bf16 = {{1e-2, 1e-2}}});
  }
  if (!is_gradient_or_dbias(s)) return Ruling::not_compared;
  const double limit = s.dtype == DType::bf16 && s.head_dim > 128 ? 3.2e-2 : 1e-2;
  return all_close(s, Tolerance{limit, limit});
}

Ruling onnx_backend(const Sample& s) {
  return is_output(s) ? all_close(s, Tolerance{1e-7, 1e-3}) : Ruling::not_compared;
}

// Its tolerance is as large as its numbers, hence a look for an output of zeros.
Ruling onnxruntime(const Sample& s) {
  if (!is_output(s)) return Ruling::not_compared;
  const auto is_zero = [](double value) { return value == 0; };
  const auto all_zero = [&](const Numbers& n) { return std::all_of(n.begin(), n.end(), is_zero); };
  if (all_zero(s.actual) && !all_zero(s.exact)) return Ruling::fails;
  return all_close(s,
                   ByFormat{.f32 = {{5e-3, 5e-3}}, .f16 = {{5e-3, 5e-3}}, .bf16 = {{1e-2, 5e-2}}});
}

Ruling mlx(const Sample& s) {
  if (is_output(s)) {
    return all_close(
        s, ByFormat{.f32 = {{2e-5, 2e-5}}, .f16 = {{3e-4, 3e-4}}, .bf16 = {{5e-3, 5e-3}}});
  }
  return is_gradient(s) ? all_close(s, Tolerance{1e-2, 1e-2}) : Ruling::not_compared;
}

Ruling kernel_bench(const Sample& s) {
  if (!is_output(s)) return Ruling::not_compared;
  return all_close(s,
                   ByFormat{.f32 = {{1e-4, 1e-4}}, .f16 = {{1e-2, 1e-2}}, .bf16 = {{1e-2, 1e-2}}});
}

// As many elements as make up the tolerance's share of all may be anything.
Ruling torch_npu(const Sample& s) {
  if (!is_output(s) && !is_gradient(s)) return Ruling::not_compared;
  const double limit = s.dtype == DType::f16 ? 1e-3 : 1e-4;
  std::size_t beyond = 0;
  for (std::size_t i = 0; i < s.exact.size(); ++i) {
    if (std::isnan(s.actual[i])) return Ruling::fails;
    const double away = error(s.actual[i], s.exact[i]);
    beyond += away > limit && away > limit * std::abs(s.exact[i]);
  }
  return ruling(static_cast<double>(beyond) <= limit * static_cast<double>(s.exact.size()));
}

// ---- Of the whole tensor ------------------------------------------------------------------------

// The squared error over the squares of the reference.
Ruling ggml(const Sample& s) {
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
}

// Pearson's coefficient of correlation. NaN and infinities count as 0 on both sides, unless there
// is nothing else; what does not vary correlates with anything.
Ruling tt_metal(const Sample& s) {
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
}

// For suites of a single problem.
std::vector<std::string> all_but(const std::set<std::string>& tried) {
  std::vector<std::string> features = known_features();
  std::erase_if(features, [&](const std::string& feature) { return tried.contains(feature); });
  return features;
}

constexpr DType f32 = DType::f32, f16 = DType::f16, bf16 = DType::bf16;

}  // namespace

const std::vector<Rule>& rules() {
  static const std::vector<Rule> kRules = {
      {.name = "flash-attention 2",
       .source = "github.com/Dao-AILab/flash-attention tests/test_flash_attn.py",
       .says = "largest error of O at most 2 times, of dQ, dK, dV 3 times that of an eager run in "
               "the same format; LSE is not compared",
       .nan = "fails",
       .dtypes = {f16, bf16},
       .data = "normal",
       .lacks = {"dense-mask", "prefix", "segments", "block-sparse", "bias", "sink", "dlse"},
       .judge = flash_attention_2},
      {.name = "flash-attention 3/4",
       .source = "github.com/Dao-AILab/flash-attention hopper/test_flash_attn.py, tests/cute",
       .says = "the same, 2 times (with a softcap 3), and twice the noise of adding 0.3 and taking "
               "it off; dSink 2 times and 2 units in the last place",
       .nan = "fails",
       .dtypes = {f16, bf16},
       .data = "normal",
       .lacks = {"bias", "dropout", "dropout-generated"},
       .judge = flash_attention_3},
      {.name = "PyTorch SDPA",
       .source = "github.com/pytorch/pytorch test/test_transformers.py",
       .says =
           "largest error at most that of an eager run times 4 (O, dV), 180 (dQ), 16 (dK); with "
           "a bias 160, 25, dBias 45; at least 1e-5",
       .nan = "fails, unless the eager run has one",
       .dtypes = {f32, f16, bf16},
       .data = "uniform",
       .lacks = {"window", "alibi", "softcap", "paged", "sink", "dlse"},
       .judge = pytorch_sdpa},
      {.name = "FlexAttention",
       .source = "github.com/pytorch/pytorch test/inductor/test_flex_attention.py",
       .says = "mean error at most 2.1 times that of an eager run (f32: 11 times)",
       .nan = "fails",
       .dtypes = {f32, f16, bf16},
       .data = "normal",
       .lacks = {"dropout", "dropout-generated", "sink", "dlse"},
       .judge = flex_attention},
      {.name = "Triton tutorial",
       .source = "github.com/triton-lang/triton python/tutorials/06-fused-attention.py",
       .says = "within 1e-2, all tensors but LSE",
       .nan = "fails",
       .dtypes = {f16},
       .data = "normal",
       .lacks = all_but({"causal", "backward"}),
       .judge = triton_tutorial},
      {.name = "JAX splash",
       .source = "github.com/jax-ml/jax tests/pallas/tpu_splash_attention_kernel_test.py",
       .says = "O 3e-3 absolute and relative, LSE 1e-3, gradients 2e-2 and 3e-2",
       .nan = "fails",
       .dtypes = {f32, bf16},
       .data = "uniform",
       .lacks = {"lengths", "packed", "paged", "alibi", "bias", "dropout", "dropout-generated",
                 "dlse"},
       .judge = jax_splash},
      {.name = "ggml",
       .source = "github.com/ggml-org/llama.cpp tests/test-backend-ops.cpp",
       .says = "squared error of O over its squares at most 5e-4",
       .nan = "fails",
       .dtypes = {f32, f16, bf16},
       .data = "normal",
       .lacks = {"causal", "window", "lengths", "packed", "paged", "dropout", "dropout-generated",
                 "dlse"},
       .judge = ggml},
      {.name = "flashinfer",
       .source = "github.com/flashinfer-ai/flashinfer tests/attention",
       .says = "O 1e-3 (bf16: 1e-2) absolute and relative, LSE 1e-3",
       .nan = "fails",
       .dtypes = {f16, bf16},
       .data = "normal",
       .lacks = {"dropout", "dropout-generated", "dlse"},
       .judge = flashinfer},
      {.name = "flashinfer trtllm",
       .source = "github.com/flashinfer-ai/flashinfer tests/test_helpers/test_helpers.py",
       .says = "O 1e-2 absolute and relative, but for 5e-5 of its elements",
       .nan = "passes: it is not larger than a tolerance",
       .dtypes = {f16, bf16},
       .data = "normal",
       .lacks = {"dropout", "dropout-generated", "dlse"},
       .judge = flashinfer_mismatches},
      {.name = "xformers",
       .source = "github.com/facebookresearch/xformers tests/test_mem_eff_attention.py",
       .says = "O 3e-4, 4e-3, 2e-2 in f32, f16, bf16; gradients 9e-4, 0.2, 0.9; LSE 2e-4",
       .nan = "fails",
       .dtypes = {f32, f16, bf16},
       .data = "std3",
       .lacks = {"alibi", "softcap", "sink", "dlse"},
       .judge = xformers},
      {.name = "cuDNN frontend",
       .source = "github.com/NVIDIA/cudnn-frontend test/python/sdpa/fp16.py",
       .says = "2e-2 absolute and relative; dK, dV in bf16 7e-2, dSink 4e-2; rows of padding are "
               "not compared",
       .nan = "fails, unless the reference has one",
       .dtypes = {f16, bf16},
       .data = "sparse_ints",
       .lacks = {"softcap", "dlse"},
       .skips_padding = true,
       .judge = cudnn_frontend},
      {.name = "CUTLASS",
       .source = "github.com/NVIDIA/cutlass examples/77_blackwell_fmha",
       .says = "largest error below 1e-2 and mean error below 1e-3",
       .nan = "the largest error passes over it; the mean fails",
       .dtypes = {f16},
       .data = "normal",
       .lacks = {"strides", "dense-mask", "prefix", "segments", "block-sparse", "window", "paged",
                 "alibi", "bias", "softcap", "sink", "dropout", "dropout-generated", "dlse"},
       .judge = cutlass},
      {.name = "Composable Kernel",
       .source = "github.com/ROCm/composable_kernel example/ck_tile/01_fmha",
       .says = "O and LSE 1e-3 (bf16: 1e-2) absolute and relative, gradients 1e-2",
       .nan = "fails",
       .dtypes = {f16, bf16},
       .data = "uniform",
       .lacks = {"softcap", "sink", "dlse"},
       .judge = composable_kernel},
      {.name = "aiter",
       .source = "github.com/ROCm/aiter op_tests/test_mha.py",
       .says = "largest error at most 0.01, or 2 times (gradients 10 times) that of an eager run; "
               "dSink 0.5",
       .nan = "fails",
       .dtypes = {f16, bf16},
       .data = "normal",
       .lacks = {"dlse"},
       .judge = aiter},
      {.name = "ONNX backend",
       .source = "github.com/onnx/onnx onnx/backend/test/runner",
       .says = "O 1e-3 relative and 1e-7 absolute",
       .nan = "fails, unless the reference has one",
       .dtypes = {f32, f16},
       .data = "uniform",
       .lacks = {"packed", "paged", "alibi", "sink", "dropout", "dropout-generated", "dlse"},
       .judge = onnx_backend},
      {.name = "ONNX Runtime",
       .source = "github.com/microsoft/onnxruntime test/python/transformers/test_onnx_attention",
       .says = "O 5e-3 absolute and relative; in bf16 1e-2 and 5e-2; not all zeros",
       .nan = "fails",
       .dtypes = {f32, f16, bf16},
       .data = "small",
       .lacks = {"strides", "packed", "alibi", "dropout", "dropout-generated", "dlse"},
       .judge = onnxruntime},
      {.name = "MLX",
       .source = "github.com/ml-explore/mlx python/tests/test_fast_sdpa.py",
       .says = "O 2e-5, 3e-4, 5e-3 in f32, f16, bf16, absolute and relative; gradients 1e-2",
       .nan = "fails",
       .dtypes = {f32, f16, bf16},
       .data = "positive",
       .lacks = {"window", "lengths", "packed", "paged", "alibi", "softcap", "dropout",
                 "dropout-generated", "dlse"},
       .judge = mlx},
      {.name = "KernelBench",
       .source = "github.com/ScalingIntelligence/KernelBench src/eval.py",
       .says = "O 1e-2 (f32: 1e-4) absolute and relative",
       .nan = "fails, unless the reference has one",
       .dtypes = {f32, f16, bf16},
       .data = "uniform",
       .lacks = all_but({"backward"}),
       .judge = kernel_bench},
      {.name = "tt-metal",
       .source = "github.com/tenstorrent/tt-metal tests/tt_eager, comp_pcc",
       .says = "correlation of O at least 0.994",
       .nan = "counts as 0 on both sides, unless all are NaN",
       .dtypes = {bf16},
       .data = "outliers",
       .lacks = {"lengths", "packed", "alibi", "softcap", "dropout", "dropout-generated", "dlse"},
       .judge = tt_metal},
      {.name = "torch_npu",
       .source = "gitee.com/ascend/pytorch test, assertRtolEqual",
       .says = "1e-3 (f32: 1e-4) absolute or relative, but for that share of the elements",
       .nan = "fails",
       .dtypes = {f32, f16},
       .data = "normal",
       .lacks = {"bias", "softcap", "sink", "dlse"},
       .judge = torch_npu},
      {.name = "Ascend double benchmark",
       .source = "gitcode.com/ascend, operator accuracy standard, level L1",
       .says = "largest relative, mean relative and root mean square error at most 5, 1.5 and 1.5 "
               "times those of another implementation, for which an eager run stands",
       .nan = "fails",
       .dtypes = {f16, bf16},
       .data = "normal",
       .lacks = {"bias", "softcap", "sink", "dlse"},
       .judge = ascend_double_benchmark},
      {.name = "CANN precision helper",
       .source = "gitcode.com/ascend, precision_calcu of the operator tests",
       .says = "O 2^-11, 2^-8, 2^-7 in f32, f16, bf16, absolute up to 1 and relative beyond; the "
               "mean with its sign 2^-14, 2^-10, 2^-7",
       .nan = "counts as 0 on both sides, as infinities do",
       .dtypes = {f32, f16, bf16},
       .data = "normal",
       .lacks = {"bias", "softcap", "sink", "dlse"},
       .judge = cann},
  };
  return kRules;
}

}  // namespace attest::criteria
