// How the kernel is compiled for a launch: the tutorial's choice by head dim and GPU, and what else
// could be chosen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "impl/vendor/triton/gpu.h"
#include "impl/vendor/triton/tensor.h"

namespace attest::vendor::triton {

struct Config {
  std::int64_t BLOCK_M, BLOCK_N;
  std::int64_t num_stages, num_warps;
  friend bool operator==(const Config&, const Config&) = default;
};

// What the text has: BLOCK_M 128; BLOCK_N 64, or 32 above 64 channels; stages and warps by GPU.
Config config_for(std::int64_t Lk, int capability);

// Of one program: Q, and num_stages tiles of each of K and V.
std::size_t shared_bytes(const Config& config, std::int64_t Lk, Dtype qk, Dtype v);
// Of one thread, for the scores and the output of a program, which are in f32. Beyond 255 a program
// spills: no error, but never a good choice.
std::int64_t registers_of_scores_and_output(const Config& config, std::int64_t Lk);

// What a program computes twice over because four warps share its rows: FlashAttention-1 deals K
// and V to the warps, each with a part of the output of all rows, to be added through shared
// memory; FlashAttention-2 deals Q, and no two warps have a row in common.
enum class WarpsShare { keys, queries };
std::int64_t shared_bytes_exchanged(const Config& config, std::int64_t Lk, WarpsShare share);

// All that fit the GPU and do not spill, of BLOCK_M, BLOCK_N, num_stages and num_warps as in the
// code.
std::vector<Config> configs(const Gpu& gpu, std::int64_t Lk, Dtype qk);

}  // namespace attest::vendor::triton
