#include "impl/vendor/wormhole/wormhole_api.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "impl/vendor/wormhole/kernels.h"

namespace attest::vendor::wormhole {
namespace {

void tt_fatal(bool condition, const std::string& what) {
  if (!condition) throw TtFatal("TT_FATAL: " + what);
}

void check_tensors(const Tensor& q, const Tensor& k, const Tensor& v) {
  for (const Tensor* const tensor : {&q, &k, &v}) {
    wormhole().check_layout(name(tensor->layout()));
    wormhole().check_format(name(tensor->dtype()));
  }
  tt_fatal(q.dtype() == k.dtype() && q.dtype() == v.dtype(), "q, k and v differ in dataformat");
  const Shape &of_q = q.shape(), &of_k = k.shape(), &of_v = v.shape();
  tt_fatal(of_k == of_v, fmt::format("k and v differ in shape: {} and {}", fmt::join(of_k, "x"),
                                     fmt::join(of_v, "x")));
  tt_fatal(of_q[0] == of_k[0], fmt::format("q has batch {}, k {}", of_q[0], of_k[0]));
  tt_fatal(of_q[1] % of_k[1] == 0,
           fmt::format("{} query heads are no multiple of {} key heads", of_q[1], of_k[1]));
  tt_fatal(of_q[2] == of_k[2], fmt::format("q has sequence length {}, k {}", of_q[2], of_k[2]));
  tt_fatal(of_q[3] == of_k[3], fmt::format("q has head_dim {}, k {}", of_q[3], of_k[3]));
  tt_fatal(of_q[3] % kTile == 0,
           fmt::format("head_dim {} is no multiple of {}: it is not padded", of_q[3], kTile));
}

void check_mask(const Tensor& q, const SdpaArguments& arguments) {
  const Tensor* const mask = arguments.attn_mask;
  if (!mask) return;
  tt_fatal(!arguments.is_causal, "is_causal excludes an attn_mask");
  wormhole().check_layout(name(mask->layout()));
  tt_fatal(mask->dtype() == DataType::BFLOAT16, "this mock takes masks in BFLOAT16 alone");
  const Shape &of_q = q.shape(), &of_mask = mask->shape();
  tt_fatal(of_mask[0] == 1 || of_mask[0] == of_q[0], "the batch of the mask is neither 1 nor q's");
  tt_fatal(of_mask[1] == 1 || of_mask[1] == of_q[1], "the heads of the mask are neither 1 nor q's");
  tt_fatal(of_mask[2] == of_q[2] && of_mask[3] == of_q[2],
           "the mask has another sequence length than q");
}

void check_config(const SDPAProgramConfig& config) {
  const CoreCoord grid = config.compute_with_storage_grid_size, all = wormhole_rules().grid;
  tt_fatal(grid.x >= 1 && grid.y >= 1 && grid.x <= all.x && grid.y <= all.y,
           fmt::format("the device has no grid of {} x {} cores, but of {} x {}", grid.x, grid.y,
                       all.x, all.y));
  for (const std::size_t size : {config.q_chunk_size, config.k_chunk_size}) {
    tt_fatal(size > 0 && size % kTile == 0,
             fmt::format("a chunk size of {} is no multiple of {}", size, kTile));
  }
  tt_fatal(!config.exp_approx_mode.value_or(false), "this mock has no exp_approx_mode");
}

std::int64_t chunks_of(std::int64_t length, std::int64_t chunk) {
  return (length + chunk - 1) / chunk;
}

}  // namespace

Program make_program(const Shape& q, const Shape& k, DataType dtype,
                     const SdpaArguments& arguments) {
  const SDPAProgramConfig config = arguments.program_config.value_or(SDPAProgramConfig());
  check_config(config);
  tt_fatal(arguments.choices.chunks_in_buffer == 1 || arguments.choices.chunks_in_buffer == 2,
           "buffers are of one chunk or of two");
  const auto q_chunk = static_cast<std::int64_t>(config.q_chunk_size);
  const auto k_chunk = static_cast<std::int64_t>(config.k_chunk_size);
  const DeviceComputeKernelConfig& compute = arguments.compute_kernel_config;
  return {.shape = {.batch = q[0],
                    .query_heads = q[1],
                    .key_heads = k[1],
                    .query_chunks = chunks_of(q[2], q_chunk),
                    .key_chunks = chunks_of(k[2], k_chunk),
                    .query_chunk_tiles = q_chunk / kTile,
                    .key_chunk_tiles = k_chunk / kTile,
                    .is_causal = arguments.is_causal},
          .head_dim_tiles = q[3] / kTile,
          .key_len = k[2],
          .input = tile_format(dtype),
          .given_mask = arguments.attn_mask != nullptr,
          .precision = {.intermediate =
                            compute.fp32_dest_acc_en ? DataFormat::Float32 : DataFormat::Float16_b,
                        .fidelity = compute.math_fidelity,
                        .fp32_dest_acc_en = compute.fp32_dest_acc_en},
          .choices = arguments.choices};
}

Tensor scaled_dot_product_attention(const Tensor& input_tensor_q, const Tensor& input_tensor_k,
                                    const Tensor& input_tensor_v, const SdpaArguments& arguments,
                                    SdpaProfile* profile) {
  check_tensors(input_tensor_q, input_tensor_k, input_tensor_v);
  check_mask(input_tensor_q, arguments);
  const Shape& shape = input_tensor_q.shape();
  const Program program =
      make_program(shape, input_tensor_k.shape(), input_tensor_q.dtype(), arguments);
  const CoreCoord grid =
      arguments.program_config.value_or(SDPAProgramConfig()).compute_with_storage_grid_size;
  const std::vector<CoreWork> work =
      split_work(program.shape, grid.x * grid.y, program.choices.balanced);
  const std::vector<Multicast> multicast =
      multicasts(program.shape, work, program.choices.multicast_keys);
  const float scale = arguments.scale.value_or(1.0f / std::sqrt(static_cast<float>(shape[3])));

  Tensor output = Tensor::empty(shape, input_tensor_q.dtype(), Layout::TILE);
  const Operands operands = {&input_tensor_q, &input_tensor_k, &input_tensor_v, arguments.attn_mask,
                             &output};
  SdpaProfile counted;
  const auto running = static_cast<int>(work.size());
  counted.elapsed = wormhole().run(running, [&](int core) {
    const auto n = static_cast<std::size_t>(core);
    device::Memory l1(fmt::format("L1 of core {}-{}", core % grid.x, core / grid.x),
                      wormhole_rules().l1_bytes);
    device::Stages stages;
    Buffers cb(program, stages, l1);
    ComputeKernel compute(program, scale, l1);
    DataMover risc0("RISC0", running, wormhole_rules()), risc1("RISC1", running, wormhole_rules());
    device::Unit engine = {.name = "RISC2-4"};
    stages.add([&] { reader(program, work[n], operands, multicast[n], cb, risc0); });
    stages.add([&] { compute.run(work[n], cb, engine); });
    stages.add([&] { writer(program, work[n], operands, cb, risc1); });
    stages.run();
    counted.dram_bytes_read += risc0.dram_bytes();
    counted.dram_bytes_written += risc1.dram_bytes();
    counted.l1_bytes = std::max(counted.l1_bytes, l1.most_used());
    return std::max({risc0.unit().now, engine.now, risc1.unit().now});
  });
  if (profile) *profile = counted;
  return output;
}

}  // namespace attest::vendor::wormhole
