// models FlashAttention's calling convention on NVIDIA's GPUs, as the seed describes both; no claim
// on hardware
//
// A mock GPU: a kernel is launched on a grid of thread blocks, which are dealt to the SMs in turn
// by their number, x first. An SM does its blocks one after the other, all SMs work at once, and
// the launch takes as long as the slowest. The host computes the SMs on a few threads of its own,
// SM n on thread n modulo their number.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "impl/vendor/device/device.h"
#include "impl/vendor/nvidia_grid/gpu_rules.h"
#include "impl/vendor/nvidia_grid/thread_block.h"

namespace attest::vendor::nvidia_grid {

struct Dim3 {
  std::int64_t x = 1, y = 1, z = 1;

  std::int64_t blocks() const { return x * y * z; }
  friend bool operator==(const Dim3&, const Dim3&) = default;
};

// What a profiler is told of each tile of scores.
struct TileOfScores {
  int host_thread;
  std::int64_t batch, head;
  std::int64_t query_begin, query_end, key_begin, key_end;
  bool masked;
  bool backward;
};

// What it has of a launch.
struct Launch {
  std::string kernel;
  Dim3 grid;
  Occupancy occupancy;
  device::Elapsed elapsed;
  Counters counters;
};

class Gpu {
 public:
  explicit Gpu(const GpuRules& rules, int host_threads = 1);

  const GpuRules& rules() const { return rules_; }
  const device::Device& device() const { return device_; }

  // Kernels call it for each tile, from any of the host's threads; may be empty.
  std::function<void(const TileOfScores&)> profiler;

  using Program = std::function<void(ThreadBlock& block, const Dim3& index)>;
  void launch(const std::string& kernel, const Dim3& grid, const Resources& resources,
              const Program& program);

  const std::vector<Launch>& launches() const { return launches_; }
  // The last one of that kernel; throws if there is none.
  const Launch& launched(const std::string& kernel) const;

 private:
  GpuRules rules_;
  int host_threads_;
  device::Device device_;
  std::vector<Launch> launches_;
};

}  // namespace attest::vendor::nvidia_grid
