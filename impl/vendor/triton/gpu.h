// The mock GPU that the kernel is launched on: a grid of programs, dealt to streaming
// multiprocessors (SMs), each with a shared memory of a size that is enforced.
//
// Models the tutorial's launch as the seed describes it; no claim on hardware. Of the numbers below
// the seed has none but the capability 9 of an H100; they are round figures of data sheets, from
// which nothing follows but which of two schedules is the longer one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "impl/vendor/device/device.h"

namespace attest::vendor::triton {

using device::Cycles;

struct GpuRules {
  std::string name;
  int capability;  // torch.cuda.get_device_capability()[0]
  int sms;
  std::size_t shared_bytes;          // of one program
  std::int64_t flops_per_cycle;      // of an SM's matrix unit, f16 and bf16
  std::int64_t fp8_flops_per_cycle;  // the same as f16 where fp8 is widened first
  std::int64_t exps_per_cycle;
  device::DmaRules loads;
};

GpuRules a100();
GpuRules h100();

// tl.program_id counts 0 to before these; y stands in 16 bits.
struct Grid {
  std::int64_t x, y;
};

class Gpu {
 public:
  explicit Gpu(const GpuRules& rules);

  const GpuRules& rules() const { return rules_; }
  const device::Device& device() const { return device_; }

  // What no launch may be: a grid that is empty or too wide, programs that need more shared memory
  // than there is. DeviceError.
  void check_launch(const Grid& grid, std::size_t shared_bytes) const;

  // How long it takes if the program with the lowest number goes next to the SM that is free first:
  // x counts fastest. Programs that differ in y alone take the same.
  device::Elapsed deal(const std::vector<Cycles>& of_x, std::int64_t y) const;

 private:
  GpuRules rules_;
  device::Device device_;
};

}  // namespace attest::vendor::triton
