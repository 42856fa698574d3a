#include "harness/criteria/rules.h"

#include "harness/criteria/projects.h"

namespace attest::criteria {

const std::vector<Rule>& rules() {
  static const std::vector<Rule> kRules = {
      flash_attention_2(),
      flash_attention_3(),
      pytorch_sdpa(),
      flex_attention(),
      triton_tutorial(),
      jax_splash(),
      ggml(),
      flashinfer(),
      flashinfer_mismatches(),
      xformers(),
      cudnn_frontend(),
      cutlass(),
      composable_kernel(),
      aiter(),
      onnx_backend(),
      onnxruntime(),
      mlx(),
      kernel_bench(),
      tt_metal(),
      torch_npu(),
      ascend_double_benchmark(),
      cann(),
  };
  return kRules;
}

}  // namespace attest::criteria
