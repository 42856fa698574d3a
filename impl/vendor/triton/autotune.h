// The tutorial's sweep: of all ways to compile the kernel, the one that takes the mock the fewest
// cycles.
#pragma once

#include <cstdint>

#include "impl/vendor/triton/config.h"
#include "impl/vendor/triton/gpu.h"
#include "impl/vendor/triton/tensor.h"

namespace attest::vendor::triton {

struct Tuned {
  Config config;
  Cycles cycles;
};
// The fastest of them, the first of equals, on one batch element and head for each SM.
Tuned autotune(const Gpu& gpu, std::int64_t N_CTX, std::int64_t Lk, Dtype qk);

}  // namespace attest::vendor::triton
