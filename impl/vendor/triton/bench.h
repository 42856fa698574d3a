// The seed's benchmark: what it counts, what it measured, and what the mock can say of it. The mock
// has no seconds: it tells how many operations a length costs beside those that the benchmark
// counts, and how the programs share the SMs.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "impl/vendor/triton/triton_api.h"

namespace attest::vendor::triton {

struct Bench {
  std::int64_t BATCH = 4, H = 48, N_CTX = 4096, D_HEAD = 64;
  bool causal = true;
  double sm_scale = 1.3;
};

// Two products of 2 B H N^2 D; half of it if causal; of a backward pass 2.5 times as much.
double total_flops(const Bench& bench, std::string_view mode);
// 1e12 a second, of milliseconds.
double tflops(double flops, double ms);

// What somebody measured, on a GPU that the text does not name.
struct Cited {
  std::int64_t N_CTX;
  double triton, cutlass;  // TFLOP/s
};
const std::vector<Cited>& cited();

// A launch of the benchmark on tensors without storage.
struct Timed {
  double flops_made;       // over those counted: what the mask hides is computed all the same
  double share_of_matrix;  // counted FLOPs over what all matrix units could do in that time
  std::int64_t programs;
  std::int64_t key_value_bytes;  // that the programs copy
};
Timed timed(const Gpu& gpu, const Bench& bench, Dtype qk);

// What fp8 does to O on the benchmark's numbers (normal, sm_scale 1.3): the root mean square of the
// difference to a computation in f64 of the f16 numbers, over that of O.
struct Fp8Effect {
  double f16;        // Q and K in f16
  double fp8;        // in fp8, O told in f16 from what the same scores make
  double fp8_and_o;  // in fp8, and O too, as it is returned
};
Fp8Effect fp8_effect(std::int64_t N_CTX, std::int64_t D_HEAD);

// The weight of a key that the mask hides from row 0, whose score (base e) is so far above that of
// the row's only visible key. The mask adds -1e6 in base 2: 693147 in base e.
float weight_of_hidden_key(double above);

// Normal numbers, the same each time, rounded to f16.
Tensor normal_tensor(const Sizes& shape, std::uint64_t seed);

}  // namespace attest::vendor::triton
