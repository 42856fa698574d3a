// What a mock GPU has, and how many thread blocks of a kernel it holds at a time.
//
// The sizes are those that the makers of kernels ask the device for; the rates are round numbers of
// a stated model, and no claim on hardware.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "impl/vendor/device/dma.h"

namespace attest::vendor::nvidia_grid {

inline constexpr int kThreadsPerWarp = 32;

struct GpuRules {
  std::string name;
  int sms;
  std::size_t shared_per_sm, shared_per_block;  // bytes
  int threads_per_sm = 2048, threads_per_block = 1024;
  int registers_per_sm = 65536;
  std::int64_t products_per_cycle;            // multiply-adds of the matrix units of an SM
  std::int64_t shared_bytes_per_cycle = 128;  // of the one port to its shared memory
  bool has_cp_async = true;                   // since Ampere
  // Sectors of 32 bytes, one a cycle; copies are of 16 bytes, and have to begin at a multiple.
  device::DmaRules copies = {
      .burst = 32, .misaligned_burst = 0, .alignment = 16, .bytes_per_cycle = 32, .setup = 0};
};

GpuRules a100();  // 108 SMs
GpuRules h100();  // 132 SMs

// What a thread block of a kernel takes of an SM.
struct Resources {
  int threads;
  std::size_t shared_bytes;
  // Compilers give these kernels all that an instruction can name: 255 and one that is lost.
  int registers_per_thread = 256;
  // Whether copies go to shared memory by themselves (cp.async), or through registers.
  bool copies_asynchronously = true;
};

// How many thread blocks an SM holds at a time; 0 if not even one fits.
int blocks_per_sm(const GpuRules& gpu, const Resources& resources);

// Of a grid of `blocks`, where each SM takes `per_sm` at a time.
struct Occupancy {
  std::int64_t waves;
  double efficiency;  // of the places in all waves, the share that has a block
};
Occupancy occupancy(const GpuRules& gpu, std::int64_t blocks, int per_sm);

}  // namespace attest::vendor::nvidia_grid
