#include "impl/vendor/nvidia_grid/gpu_rules.h"

#include <algorithm>

namespace attest::vendor::nvidia_grid {

GpuRules a100() {
  return {.name = "A100 (mock)",
          .sms = 108,
          .shared_per_sm = 164 * 1024,
          .shared_per_block = 163 * 1024,
          .products_per_cycle = 1024};
}

GpuRules h100() {
  return {.name = "H100 (mock)",
          .sms = 132,
          .shared_per_sm = 228 * 1024,
          .shared_per_block = 227 * 1024,
          .products_per_cycle = 2048};
}

int blocks_per_sm(const GpuRules& gpu, const Resources& resources) {
  constexpr std::size_t kOfSystem = 1024;  // bytes of shared memory that each block takes besides
  if (resources.shared_bytes > gpu.shared_per_block) return 0;
  const auto by_shared = static_cast<int>(gpu.shared_per_sm / (resources.shared_bytes + kOfSystem));
  const int by_threads = gpu.threads_per_sm / resources.threads;
  const int by_registers =
      gpu.registers_per_sm / (resources.threads * resources.registers_per_thread);
  return std::min({by_shared, by_threads, by_registers});
}

Occupancy occupancy(const GpuRules& gpu, std::int64_t blocks, int per_sm) {
  const std::int64_t places = static_cast<std::int64_t>(gpu.sms) * per_sm;
  const std::int64_t waves = (blocks + places - 1) / places;
  return {.waves = waves,
          .efficiency = static_cast<double>(blocks) / static_cast<double>(waves * places)};
}

}  // namespace attest::vendor::nvidia_grid
