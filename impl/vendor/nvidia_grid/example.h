// A problem to launch kernels on for their counters: its numbers are all 0, which cost as much as
// any others. One sequence length, as many key heads as query heads, bf16.
#pragma once

#include <cstdint>
#include <vector>

#include "impl/vendor/nvidia_grid/nvidia_grid_api.h"

namespace attest::vendor::nvidia_grid {

struct ExampleSizes {
  std::int64_t batch, heads, seqlen, head_dim;
  bool causal = false;
};

class Example {
 public:
  explicit Example(const ExampleSizes& sizes);

  // The launch of the kernel that computes scores.
  Launch v1_forward(Gpu& gpu, std::int64_t num_splits = 0);
  Launch v1_backward(Gpu& gpu);
  Launch v2_forward(Gpu& gpu);
  Launch v2_backward(Gpu& gpu, bool deterministic = false);

 private:
  // (batch, seqlen, heads, headdim), or (batch seqlen, heads, headdim).
  Tensor dense(int which);
  Tensor packed(int which);
  Varlen varlen();
  Tensor lse_of_v1();
  Tensor lse_of_v2();

  ExampleSizes sizes_;
  std::vector<std::uint16_t> elements_[8];  // q, k, v, out, dout, dq, dk, dv
  std::vector<float> lse_;
  std::vector<std::int32_t> running_;
};

}  // namespace attest::vendor::nvidia_grid
