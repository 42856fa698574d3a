// A program that does nothing but use a ring, to break its rules.
#pragma once

#include <functional>
#include <vector>

#include "impl/vendor/triton/gpu.h"
#include "impl/vendor/triton/ring.h"

namespace attest::vendor::triton {

// A loop over a ring of two tiles of 16 bytes, in the only program of a launch.
inline void run_ring(const std::function<void(Ring&, device::Unit&, const Rows&)>& program) {
  device::Memory shared("shared memory", 1024);
  device::Dma dma("copies", a100().loads);
  device::Stages stages;
  device::Unit warps{.name = "warps"};
  Ring ring(stages, shared, dma, "k", 2, 16);
  const std::vector<std::uint8_t> tile(16, 7);
  const Rows rows = {tile.data(), 0, 1, 16, 1, 16, 1};
  stages.add([&] { program(ring, warps, rows); });
  stages.run();
}

}  // namespace attest::vendor::triton
