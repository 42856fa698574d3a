#include "impl/vendor/triton/config.h"

namespace attest::vendor::triton {
namespace {

constexpr std::int64_t kThreadsOfAWarp = 32;
constexpr std::int64_t kRegisters = 255;  // of a thread, at most

}  // namespace

Config config_for(std::int64_t Lk, int capability) {
  Config config = {.BLOCK_M = 128,
                   .BLOCK_N = Lk <= 64 ? 64 : 32,
                   .num_stages = Lk <= 64 ? 4 : 3,
                   .num_warps = 4};
  if (capability == 9) {  // tuning for the H100
    config.num_warps = 8;
    config.num_stages = Lk >= 64 ? 7 : 3;
  }
  return config;
}

std::size_t shared_bytes(const Config& config, std::int64_t Lk, Dtype qk, Dtype v) {
  const std::int64_t of_a_stage = config.BLOCK_N * Lk * (itemsize(qk) + itemsize(v));
  return static_cast<std::size_t>(config.BLOCK_M * Lk * itemsize(qk) +
                                  config.num_stages * of_a_stage);
}

std::int64_t registers_of_scores_and_output(const Config& config, std::int64_t Lk) {
  return config.BLOCK_M * (Lk + config.BLOCK_N) / (config.num_warps * kThreadsOfAWarp);
}

std::int64_t shared_bytes_exchanged(const Config& config, std::int64_t Lk, WarpsShare share) {
  return share == WarpsShare::queries ? 0 : config.num_warps * config.BLOCK_M * Lk * 4;
}

std::vector<Config> configs(const Gpu& gpu, std::int64_t Lk, Dtype qk) {
  std::vector<Config> all;
  for (const std::int64_t block_m : {64, 128}) {
    for (const std::int64_t block_n : {32, 64, 128}) {
      for (const std::int64_t num_stages : {1, 2, 3, 4, 7}) {
        for (const std::int64_t num_warps : {4, 8}) {
          const Config config = {block_m, block_n, num_stages, num_warps};
          if (block_n > block_m || registers_of_scores_and_output(config, Lk) > kRegisters)
            continue;
          if (shared_bytes(config, Lk, qk, Dtype::float16) > gpu.rules().shared_bytes) continue;
          all.push_back(config);
        }
      }
    }
  }
  return all;
}

}  // namespace attest::vendor::triton
