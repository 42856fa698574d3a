#include "impl/vendor/nvidia_grid/gpu.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "impl/vendor/device/error.h"

namespace attest::vendor::nvidia_grid {
namespace {

using device::DeviceError;

Dim3 index_of(const Dim3& grid, std::int64_t block) {
  return {block % grid.x, block / grid.x % grid.y, block / grid.x / grid.y};
}

// What one of the host's threads has computed.
struct Share {
  Counters counters;
  std::exception_ptr error;
};

}  // namespace

Gpu::Gpu(const GpuRules& rules, int host_threads)
    : rules_(rules),
      host_threads_(host_threads),
      device_({.name = rules.name,
               .model = "models FlashAttention's calling convention on NVIDIA's GPUs, as the seed "
                        "describes both; no claim on hardware",
               .cores = rules.sms,
               .formats = {"fp16", "bf16"},
               .layouts = {"bshd", "thd"}}) {}

void Gpu::launch(const std::string& kernel, const Dim3& grid, const Resources& resources,
                 const Program& program) {
  if (grid.x < 1 || grid.y < 1 || grid.z < 1 || resources.threads > rules_.threads_per_block) {
    throw DeviceError(kernel, "invalid configuration argument");
  }
  const int per_sm = blocks_per_sm(rules_, resources);
  if (per_sm < 1) {
    throw DeviceError(
        kernel,
        "too many resources requested for launch: " + std::to_string(resources.shared_bytes) +
            " bytes of shared memory, of " + std::to_string(rules_.shared_per_block));
  }
  const auto sms = static_cast<int>(std::min<std::int64_t>(rules_.sms, grid.blocks()));
  std::vector<device::Cycles> cycles(static_cast<std::size_t>(sms));
  const int hosts = std::clamp(host_threads_, 1, sms);
  std::vector<Share> shares(static_cast<std::size_t>(hosts));
  const auto work = [&](int host) {
    Share& share = shares[static_cast<std::size_t>(host)];
    try {
      for (int sm = host; sm < sms; sm += hosts) {
        for (std::int64_t n = sm; n < grid.blocks(); n += sms) {
          ThreadBlock block(rules_, resources, host);
          program(block, index_of(grid, n));
          cycles[static_cast<std::size_t>(sm)] += block.cycles();
          share.counters += block.counters();
        }
      }
    } catch (...) {
      share.error = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (int host = 1; host < hosts; ++host) threads.emplace_back(work, host);
  work(0);
  for (std::thread& thread : threads) thread.join();

  Launch launch = {.kernel = kernel,
                   .grid = grid,
                   .occupancy = occupancy(rules_, grid.blocks(), per_sm),
                   .elapsed = {},
                   .counters = {}};
  for (const Share& share : shares) {
    if (share.error) std::rethrow_exception(share.error);
    launch.counters += share.counters;
  }
  launch.elapsed = device_.run(sms, [&](int sm) { return cycles[static_cast<std::size_t>(sm)]; });
  launches_.push_back(std::move(launch));
}

const Launch& Gpu::launched(const std::string& kernel) const {
  for (auto launch = launches_.rbegin(); launch != launches_.rend(); ++launch) {
    if (launch->kernel == kernel) return *launch;
  }
  throw DeviceError(rules_.name, "no kernel " + kernel + " was launched");
}

}  // namespace attest::vendor::nvidia_grid
