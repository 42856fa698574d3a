// ttnn.transformer.scaled_dot_product_attention, as its users call it: tensors of tiles in DRAM, a
// program config with the grid and the chunk sizes, causal unless told otherwise.
//
//   const Tensor o = scaled_dot_product_attention(
//       q, k, v, {.is_causal = true, .program_config = {{.q_chunk_size = 128, .k_chunk_size =
//       128}}});
//
// Models the operator as the seed describes it, with names and checks of TT-Metal's; no claim on
// hardware. Forward only: nothing is kept for a backward pass, no LSE returned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "impl/vendor/wormhole/program.h"

namespace attest::vendor::wormhole {

// TT_FATAL: what the operator refuses.
struct TtFatal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Chunk sizes are in elements, multiples of 32, and should be swept for each size of input
// (perf_model.h).
struct SDPAProgramConfig {
  CoreCoord compute_with_storage_grid_size = wormhole_rules().grid;
  std::size_t q_chunk_size = 32;
  std::size_t k_chunk_size = 32;
  std::optional<bool> exp_approx_mode = {};  // true: refused, for the mock has no such exponential
};

// TT-Metal keeps scores, sums and statistics in bf16 whatever is set here. So does the mock, unless
// `fp32_dest_acc_en`: then they are f32, which the source has as a remark, not as code.
struct DeviceComputeKernelConfig {
  MathFidelity math_fidelity = MathFidelity::HiFi2;
  bool fp32_dest_acc_en = false;
};

// The arguments by keyword.
struct SdpaArguments {
  // Added to the scaled scores: [b or 1, nqh or 1, s, s] in BFLOAT16. -inf hides a key.
  const Tensor* attn_mask = nullptr;
  bool is_causal = true;            // from the top left; not beside an attn_mask
  std::optional<float> scale = {};  // default: 1 / sqrt(head_dim)
  std::optional<SDPAProgramConfig> program_config = {};
  DeviceComputeKernelConfig compute_kernel_config = {};
  Choices choices = {};  // the mock's own
};

// What the mock counts of a call.
struct SdpaProfile {
  device::Elapsed elapsed;
  std::int64_t dram_bytes_read = 0, dram_bytes_written = 0;
  std::size_t l1_bytes = 0;  // the most that any core took
};

//   input_tensor_q  [b, nqh, s, dh]     input_tensor_k, _v  [b, nkv, s, dh], nkv divides nqh
//
// All in TILE layout, all BFLOAT16 or all BFLOAT8_B, dh a multiple of 32; the result is of Q's
// shape and type. Throws TtFatal for what the operator refuses, device::DeviceError for what the
// device does.
Tensor scaled_dot_product_attention(const Tensor& input_tensor_q, const Tensor& input_tensor_k,
                                    const Tensor& input_tensor_v,
                                    const SdpaArguments& arguments = {},
                                    SdpaProfile* profile = nullptr);

// The program of a call with tensors of these shapes.
Program make_program(const Shape& q, const Shape& k, DataType dtype,
                     const SdpaArguments& arguments);

}  // namespace attest::vendor::wormhole
