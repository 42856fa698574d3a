// Rules whose tolerances stand fixed, element by element.
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "harness/criteria/measures.h"
#include "harness/criteria/projects.h"

namespace attest::criteria {
namespace {

constexpr ByFormat kFlashinfer = {.f16 = {{1e-3, 1e-3}}, .bf16 = {{1e-2, 1e-2}}};

}  // namespace

Rule triton_tutorial() {
  const auto judge = [](const Sample& s) {
    if (!is_output(s) && !is_gradient(s)) return Ruling::not_compared;
    return all_close(s, Tolerance{1e-2, 0});
  };
  return {.name = "Triton tutorial",
          .source = "github.com/triton-lang/triton python/tutorials/06-fused-attention.py",
          .says = "within 1e-2, all tensors but LSE",
          .nan = "fails",
          .dtypes = {f16},
          .data = "normal",
          .lacks = all_but({"causal", "backward"}),
          .judge = judge};
}

Rule jax_splash() {
  const auto judge = [](const Sample& s) {
    if (is_output(s)) return all_close(s, Tolerance{3e-3, 3e-3});
    if (is_lse(s)) return all_close(s, Tolerance{1e-3, 1e-3});
    if (is_gradient(s)) return all_close(s, Tolerance{2e-2, 3e-2});
    if (s.tensor == TensorName::dsink) return all_close(s, Tolerance{5e-3, 3e-2});
    return Ruling::not_compared;
  };
  return {.name = "JAX splash",
          .source = "github.com/jax-ml/jax tests/pallas/tpu_splash_attention_kernel_test.py",
          .says = "O 3e-3 absolute and relative, LSE 1e-3, gradients 2e-2 and 3e-2",
          .nan = "fails",
          .dtypes = {f32, bf16},
          .data = "uniform",
          .lacks = {"lengths", "packed", "paged", "alibi", "bias", "dropout", "dropout-generated",
                    "dlse"},
          .judge = judge};
}

Rule flashinfer() {
  const auto judge = [](const Sample& s) {
    if (is_output(s)) return all_close(s, kFlashinfer);
    if (is_lse(s)) return all_close(s, Tolerance{1e-3, 1e-3});
    return Ruling::not_compared;
  };
  return {.name = "flashinfer",
          .source = "github.com/flashinfer-ai/flashinfer tests/attention",
          .says = "O 1e-3 (bf16: 1e-2) absolute and relative, LSE 1e-3",
          .nan = "fails",
          .dtypes = {f16, bf16},
          .data = "normal",
          .lacks = {"dropout", "dropout-generated", "dlse"},
          .judge = judge};
}

// Counts the elements that are too far off, and forgives a few. A comparison with NaN is false.
Rule flashinfer_mismatches() {
  const auto judge = [](const Sample& s) {
    if (!is_output(s)) return Ruling::not_compared;
    std::size_t mismatches = 0;
    for (std::size_t i = 0; i < s.exact.size(); ++i) {
      mismatches += error(s.actual[i], s.exact[i]) > 1e-2 + 1e-2 * std::abs(s.exact[i]);
    }
    return ruling(static_cast<double>(mismatches) <= 5e-5 * static_cast<double>(s.exact.size()));
  };
  return {.name = "flashinfer trtllm",
          .source = "github.com/flashinfer-ai/flashinfer tests/test_helpers/test_helpers.py",
          .says = "O 1e-2 absolute and relative, but for 5e-5 of its elements",
          .nan = "passes: it is not larger than a tolerance",
          .dtypes = {f16, bf16},
          .data = "normal",
          .lacks = {"dropout", "dropout-generated", "dlse"},
          .judge = judge};
}

// No element too far off, and no drift of all of them to one side.
Rule cann() {
  const auto judge = [](const Sample& s) {
    if (!is_output(s)) return Ruling::not_compared;
    const double limit = s.dtype == DType::bf16 ? 0x1p-7 : s.dtype == DType::f16 ? 0x1p-8 : 0x1p-11;
    const double drift = s.dtype == DType::bf16  ? 0x1p-7
                         : s.dtype == DType::f16 ? 0x1p-10
                                                 : 0x1p-14;
    double sum = 0;
    for (std::size_t i = 0; i < s.exact.size(); ++i) {
      const double golden = zero_unless_finite(s.exact[i]);
      const double away =
          (zero_unless_finite(s.actual[i]) - golden) / std::max(1.0, std::abs(golden));
      if (std::abs(away) > limit) return Ruling::fails;
      sum += away;
    }
    return ruling(std::abs(sum) <= drift * static_cast<double>(s.exact.size()));
  };
  return {.name = "CANN precision helper",
          .source = "gitcode.com/ascend, precision_calcu of the operator tests",
          .says =
              "O 2^-11, 2^-8, 2^-7 in f32, f16, bf16, absolute up to 1 and relative beyond; the "
              "mean with its sign 2^-14, 2^-10, 2^-7",
          .nan = "counts as 0 on both sides, as infinities do",
          .dtypes = {f32, f16, bf16},
          .data = "normal",
          .lacks = {"bias", "softcap", "sink", "dlse"},
          .judge = judge};
}

Rule xformers() {
  const auto judge = [](const Sample& s) {
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
  };
  return {.name = "xformers",
          .source = "github.com/facebookresearch/xformers tests/test_mem_eff_attention.py",
          .says = "O 3e-4, 4e-3, 2e-2 in f32, f16, bf16; gradients 9e-4, 0.2, 0.9; LSE 2e-4",
          .nan = "fails",
          .dtypes = {f32, f16, bf16},
          .data = "std3",
          .lacks = {"alibi", "softcap", "sink", "dlse"},
          .judge = judge};
}

Rule cudnn_frontend() {
  const auto judge = [](const Sample& s) {
    double limit = 2e-2;
    if (is_of_keys(s.tensor) && s.dtype == DType::bf16) limit = 7e-2;
    if (s.tensor == TensorName::dsink) limit = 4e-2;
    return all_close(s, Tolerance{limit, limit});
  };
  return {.name = "cuDNN frontend",
          .source = "github.com/NVIDIA/cudnn-frontend test/python/sdpa/fp16.py",
          .says =
              "2e-2 absolute and relative; dK, dV in bf16 7e-2, dSink 4e-2; rows of padding are "
              "not compared",
          .nan = "fails, unless the reference has one",
          .dtypes = {f16, bf16},
          .data = "sparse_ints",
          .lacks = {"softcap", "dlse"},
          .skips_padding = true,
          .judge = judge};
}

Rule cutlass() {
  const auto judge = [](const Sample& s) {
    if (!is_output(s) && !is_lse(s) && !is_gradient(s)) return Ruling::not_compared;
    return ruling(largest_error_but_nan(s.actual, s.exact) < 1e-2 &&
                  mean_error(s.actual, s.exact) < 1e-3);
  };
  return {.name = "CUTLASS",
          .source = "github.com/NVIDIA/cutlass examples/77_blackwell_fmha",
          .says = "largest error below 1e-2 and mean error below 1e-3",
          .nan = "the largest error passes over it; the mean fails",
          .dtypes = {f16},
          .data = "normal",
          .lacks = tables_and({"strides", "window", "paged", "alibi", "bias", "softcap", "sink",
                               "dropout", "dropout-generated", "dlse"}),
          .judge = judge};
}

Rule composable_kernel() {
  const auto judge = [](const Sample& s) {
    if (is_output(s) || is_lse(s)) {
      return all_close(s, ByFormat{.f16 = {{1e-3, 1e-3}}, .bf16 = {{1e-2, 1e-2}}});
    }
    if (!is_gradient_or_dbias(s)) return Ruling::not_compared;
    const double limit = s.dtype == DType::bf16 && s.head_dim > 128 ? 3.2e-2 : 1e-2;
    return all_close(s, Tolerance{limit, limit});
  };
  return {.name = "Composable Kernel",
          .source = "github.com/ROCm/composable_kernel example/ck_tile/01_fmha",
          .says = "O and LSE 1e-3 (bf16: 1e-2) absolute and relative, gradients 1e-2",
          .nan = "fails",
          .dtypes = {f16, bf16},
          .data = "uniform",
          .lacks = {"softcap", "sink", "dlse"},
          .judge = judge};
}

Rule onnx_backend() {
  const auto judge = [](const Sample& s) {
    return is_output(s) ? all_close(s, Tolerance{1e-7, 1e-3}) : Ruling::not_compared;
  };
  return {.name = "ONNX backend",
          .source = "github.com/onnx/onnx onnx/backend/test/runner",
          .says = "O 1e-3 relative and 1e-7 absolute",
          .nan = "fails, unless the reference has one",
          .dtypes = {f32, f16},
          .data = "uniform",
          .lacks = {"packed", "paged", "alibi", "sink", "dropout", "dropout-generated", "dlse"},
          .judge = judge};
}

// Its tolerance is as large as its numbers, hence a look for an output of zeros.
Rule onnxruntime() {
  const auto judge = [](const Sample& s) {
    if (!is_output(s)) return Ruling::not_compared;
    const auto is_zero = [](double value) { return value == 0; };
    const auto all_zero = [&](const Numbers& n) {
      return std::all_of(n.begin(), n.end(), is_zero);
    };
    if (all_zero(s.actual) && !all_zero(s.exact)) return Ruling::fails;
    return all_close(
        s, ByFormat{.f32 = {{5e-3, 5e-3}}, .f16 = {{5e-3, 5e-3}}, .bf16 = {{1e-2, 5e-2}}});
  };
  return {.name = "ONNX Runtime",
          .source = "github.com/microsoft/onnxruntime test/python/transformers/test_onnx_attention",
          .says = "O 5e-3 absolute and relative; in bf16 1e-2 and 5e-2; not all zeros",
          .nan = "fails",
          .dtypes = {f32, f16, bf16},
          .data = "small",
          .lacks = {"strides", "packed", "alibi", "dropout", "dropout-generated", "dlse"},
          .judge = judge};
}

Rule mlx() {
  const auto judge = [](const Sample& s) {
    if (is_output(s)) {
      return all_close(
          s, ByFormat{.f32 = {{2e-5, 2e-5}}, .f16 = {{3e-4, 3e-4}}, .bf16 = {{5e-3, 5e-3}}});
    }
    return is_gradient(s) ? all_close(s, Tolerance{1e-2, 1e-2}) : Ruling::not_compared;
  };
  return {.name = "MLX",
          .source = "github.com/ml-explore/mlx python/tests/test_fast_sdpa.py",
          .says = "O 2e-5, 3e-4, 5e-3 in f32, f16, bf16, absolute and relative; gradients 1e-2",
          .nan = "fails",
          .dtypes = {f32, f16, bf16},
          .data = "positive",
          .lacks = {"window", "lengths", "packed", "paged", "alibi", "softcap", "dropout",
                    "dropout-generated", "dlse"},
          .judge = judge};
}

Rule kernel_bench() {
  const auto judge = [](const Sample& s) {
    if (!is_output(s)) return Ruling::not_compared;
    return all_close(
        s, ByFormat{.f32 = {{1e-4, 1e-4}}, .f16 = {{1e-2, 1e-2}}, .bf16 = {{1e-2, 1e-2}}});
  };
  return {.name = "KernelBench",
          .source = "github.com/ScalingIntelligence/KernelBench src/eval.py",
          .says = "O 1e-2 (f32: 1e-4) absolute and relative",
          .nan = "fails, unless the reference has one",
          .dtypes = {f32, f16, bf16},
          .data = "uniform",
          .lacks = all_but({"backward"}),
          .judge = judge};
}

// As many elements as make up the tolerance's share of all may be anything.
Rule torch_npu() {
  const auto judge = [](const Sample& s) {
    if (!is_output(s) && !is_gradient(s)) return Ruling::not_compared;
    const double limit = s.dtype == DType::f16 ? 1e-3 : 1e-4;
    std::size_t beyond = 0;
    for (std::size_t i = 0; i < s.exact.size(); ++i) {
      if (std::isnan(s.actual[i])) return Ruling::fails;
      const double away = error(s.actual[i], s.exact[i]);
      beyond += away > limit && away > limit * std::abs(s.exact[i]);
    }
    return ruling(static_cast<double>(beyond) <= limit * static_cast<double>(s.exact.size()));
  };
  return {.name = "torch_npu",
          .source = "gitee.com/ascend/pytorch test, assertRtolEqual",
          .says = "1e-3 (f32: 1e-4) absolute or relative, but for that share of the elements",
          .nan = "fails",
          .dtypes = {f32, f16},
          .data = "normal",
          .lacks = {"bias", "softcap", "sink", "dlse"},
          .judge = judge};
}

}  // namespace attest::criteria
