// The cube core: products of tiles of global memory, summed in f32 in L0C, which FixPipe takes back
// to global memory.
//
// The left tile stays in L1 while right tiles pass, as where a Matmul computes several basic blocks
// at once. In L1 and L0 all is there twice, so that loads, products and FixPipe overlap.
#pragma once

#include <optional>
#include <vector>

#include "impl/vendor/ascend/atlas_a2.h"
#include "impl/vendor/ascend/formats.h"

namespace attest::vendor::ascend {

// `rows` x `columns` in memory, whose rows begin `stride` elements apart.
struct Matrix {
  Gm at;
  int64_t rows, columns, stride;
  bool transposed = false;  // as the product reads it
};

class CubeCore {
 public:
  // Tiles of at most base_m rows and base_n columns, sums over at most `depth`.
  CubeCore(AiCore& core, DataType type, int64_t base_m, int64_t base_n, int64_t depth);

  // M x K, or in memory K x M where it is transposed.
  void left(const Matrix& a);
  // The left tile times this one, K x N, into f32 rows of `stride` elements; added to what is there
  // where `atomic_add`.
  void times(const Matrix& b, Gm out, int64_t stride, bool atomic_add);

 private:
  using Bytes = device::Memory::Region<std::byte>;

  Bytes take(device::Memory& memory, const char* what, int64_t elements);
  void panel(const Matrix& b, int64_t k0, int64_t k_size, int64_t n0, int64_t n_size);
  void fix(Gm out, int64_t stride, int64_t n_size, bool atomic_add);

  AiCore& core_;
  DataType type_;
  int64_t size_, base_m_, base_n_, base_k_;
  std::optional<Bytes> l1_left_[2], l1_right_[2], l0a_, l0b_;
  std::optional<device::Memory::Region<float>> l0c_;
  int64_t m_ = 0, k_ = 0;
  bool numbers_ = false;
  std::vector<float> left_, right_;  // as the cube's registers have them
  int left_slots_ = 2, left_turn_ = 0, turn_ = 0, l0c_turn_ = 0;
  Cycles left_free_[2] = {}, right_free_[2] = {}, l0c_free_[2] = {}, left_there_ = 0;
};

}  // namespace attest::vendor::ascend
