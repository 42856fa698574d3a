// The model of time alone: how long the operator takes, without computing anything, and what the
// operators that it replaced would. It goes through the same steps as the three kernels, on their
// clocks, and comes to the same cycles.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>

#include "impl/vendor/wormhole/wormhole_api.h"

namespace attest::vendor::wormhole {

struct Estimate {
  device::Elapsed elapsed;       // of each core
  Cycles engine_busy;            // of the core whose engine has most to do
  std::int64_t dram_bytes_read;  // of all
  std::size_t l1_bytes;          // of each

  double seconds() const {
    return static_cast<double>(elapsed.longest()) / wormhole_rules().cycles_per_second;
  }
};

// Throws as the operator: device::DeviceError if the chunks do not fit into L1.
Estimate estimate(const Shape& q, const Shape& k, DataType dtype, const SdpaArguments& arguments);

struct Swept {
  SDPAProgramConfig config;
  Estimate estimate;
};

// The program config that takes the least time, of q_chunk_size and k_chunk_size among `sizes`, on
// the whole grid or on 8 x 8 of it, whose powers of two deal heads and chunks out evenly. What does
// not fit is left out; of two that take as long the first is taken. Empty if none fits.
std::optional<Swept> sweep(const Shape& q, const Shape& k, DataType dtype,
                           const SdpaArguments& arguments,
                           std::initializer_list<std::size_t> sizes = {32, 64, 128, 256, 512});

// 2 batch seq^2 heads head_dim: of two products, the half that a causal mask leaves.
double causal_flops(const Shape& q);

// matmul, then the softmax of scale and mask, then matmul: each on all cores, reading its operands
// from DRAM and writing all of its result there, as fast as the slower of DRAM and the engine
// allows. The scores are all computed, causal or not.
double baseline_seconds(const Shape& q, const Shape& k, DataType dtype, MathFidelity fidelity);

}  // namespace attest::vendor::wormhole
