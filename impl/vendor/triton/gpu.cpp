#include "impl/vendor/triton/gpu.h"

#include <functional>
#include <queue>
#include <utility>

#include "impl/vendor/device/error.h"

namespace attest::vendor::triton {
namespace {

constexpr std::int64_t kMostProgramsInY = 65535;

// Asynchronous copies: lines of 128 bytes from multiples of 16 on, else 4 bytes at a time.
constexpr device::DmaRules kLoads = {
    .burst = 128, .misaligned_burst = 4, .alignment = 16, .bytes_per_cycle = 64, .setup = 0};

}  // namespace

GpuRules a100() {
  return {.name = "A100 (mock)",
          .capability = 8,
          .sms = 108,
          .shared_bytes = 163 * 1024,
          .flops_per_cycle = 2048,
          .fp8_flops_per_cycle = 2048,
          .exps_per_cycle = 16,
          .loads = kLoads};
}

GpuRules h100() {
  return {.name = "H100 (mock)",
          .capability = 9,
          .sms = 132,
          .shared_bytes = 227 * 1024,
          .flops_per_cycle = 4096,
          .fp8_flops_per_cycle = 8192,
          .exps_per_cycle = 16,
          .loads = kLoads};
}

Gpu::Gpu(const GpuRules& rules)
    : rules_(rules),
      device_({.name = rules.name,
               .model = "models the tutorial's launch as the seed describes it; no claim on "
                        "hardware",
               .cores = rules.sms,
               .formats = {"fp16", "bf16", "fp8e5", "fp32"},
               .layouts = {}}) {}

void Gpu::check_launch(const Grid& grid, std::size_t shared_bytes) const {
  if (grid.x < 1 || grid.y < 1 || grid.y > kMostProgramsInY) {
    throw device::DeviceError(rules_.name, "invalid configuration: a grid of " +
                                               std::to_string(grid.x) + " x " +
                                               std::to_string(grid.y) + " programs");
  }
  if (shared_bytes > rules_.shared_bytes) {
    throw device::DeviceError(
        rules_.name, "out of resource: shared memory, required: " + std::to_string(shared_bytes) +
                         ", limit: " + std::to_string(rules_.shared_bytes));
  }
}

device::Elapsed Gpu::deal(const std::vector<Cycles>& of_x, std::int64_t y) const {
  using Free = std::pair<Cycles, int>;  // at which time which SM is free
  std::priority_queue<Free, std::vector<Free>, std::greater<>> free;
  std::vector<Cycles> busy(static_cast<std::size_t>(rules_.sms), 0);
  for (int sm = 0; sm < rules_.sms; ++sm) free.push({0, sm});
  for (std::int64_t row = 0; row < y; ++row) {
    for (const Cycles cycles : of_x) {
      const int sm = free.top().second;
      free.pop();
      busy[static_cast<std::size_t>(sm)] += cycles;
      free.push({busy[static_cast<std::size_t>(sm)], sm});
    }
  }
  return device_.run(rules_.sms, [&](int sm) { return busy[static_cast<std::size_t>(sm)]; });
}

}  // namespace attest::vendor::triton
