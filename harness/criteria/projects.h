// The rule of each project, with what its tests try: a function each. rules.cpp lists them.
#pragma once

#include "harness/criteria/rule.h"

namespace attest::criteria {

// Relative to the error of a run at low precision.
Rule flash_attention_2();
Rule flash_attention_3();
Rule pytorch_sdpa();
Rule flex_attention();
Rule aiter();
Rule ascend_double_benchmark();

// Tolerances that stand fixed.
Rule triton_tutorial();
Rule jax_splash();
Rule flashinfer();
Rule flashinfer_mismatches();
Rule cann();
Rule xformers();
Rule cudnn_frontend();
Rule cutlass();
Rule composable_kernel();
Rule onnx_backend();
Rule onnxruntime();
Rule mlx();
Rule kernel_bench();
Rule torch_npu();

// Of the whole tensor, in one number.
Rule ggml();
Rule tt_metal();

}  // namespace attest::criteria
