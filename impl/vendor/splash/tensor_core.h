// The mock TPU: what a Pallas kernel sees of a TensorCore. Models the TPU v5p's calling convention
// as the seed and JAX's documentation describe it; no claim on hardware.
//
//   HBM -- DMA --> VMEM    in blocks that begin at whole tiles
//   SMEM                   integers that index maps read
//   MXU                    products in one pass of bfloat16: float32 operands are rounded, the sums
//                          are of float32
//   VPU                    all else, on 8 sublanes of 128 lanes
//
// The sizes are those of JAX's table of TPUs. What an element of a vector operation takes is this
// model's choice. Both units work by turns, for each needs what the other made.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "impl/vendor/device/device.h"
#include "impl/vendor/device/dma.h"
#include "impl/vendor/device/error.h"
#include "impl/vendor/device/memory.h"
#include "impl/vendor/device/unit.h"
#include "impl/vendor/splash/element.h"

namespace attest::vendor::splash {

inline constexpr std::int64_t kNumLanes = 128;
inline constexpr std::int64_t kNumSublanes = 8;

// Of jax.default_matmul_precision: what becomes of operands of float32.
enum class Precision { kDefault, kFloat32 };

struct Tpu {
  std::int64_t vmem_bytes = 64 << 20;
  std::int64_t smem_bytes = 1 << 20;
  int cores = 2;
  Precision matmul_precision = Precision::kDefault;
  // Nothing is computed or copied, only counted.
  bool timing_only = false;

  // Cores, formats and layouts.
  device::Device device() const;
};

// An array in HBM, [heads, seq, dim], side by side. `data` may be null where only time is counted.
template <class T>
struct HbmArray {
  T* data = nullptr;
  std::int64_t heads = 0, seq = 0, dim = 0;
  std::int64_t address = 0;  // of the first element, in HBM

  std::int64_t offset(std::int64_t head, std::int64_t row) const {
    return (head * seq + row) * dim;
  }
};

class TensorCore {
 public:
  TensorCore(const Tpu& tpu, const std::string& name);

  // Brings `rows` rows from HBM, or takes them there.
  template <class T>
  void bring(T* to, const HbmArray<const T>& from, std::int64_t head, std::int64_t row,
             std::int64_t rows) {
    count(dma_in, from, head, row, rows);
    if (!timing_only) {
      std::memcpy(to, from.data + from.offset(head, row),
                  static_cast<std::size_t>(rows * from.dim) * sizeof(T));
    }
  }
  template <class T>
  void take_away(const T* from, const HbmArray<T>& to, std::int64_t head, std::int64_t row,
                 std::int64_t rows) {
    dma_out.unit().wait_until(compute.now);
    count(dma_out, to, head, row, rows);
    if (!timing_only) {
      std::memcpy(to.data + to.offset(head, row), from,
                  static_cast<std::size_t>(rows * to.dim) * sizeof(T));
    }
  }

  // c[m][n] = a[m][k] b[k][n], and c[m][n] = a[m][k] b[n][k]: dimension numbers NN and NT.
  template <class A, class B>
  void dot_nn(const A* a, const B* b, float* c, std::int64_t m, std::int64_t n, std::int64_t k);
  template <class A, class B>
  void dot_nt(const A* a, const B* b, float* c, std::int64_t m, std::int64_t n, std::int64_t k);

  // Counts `operations` on each of `elements`, and does them.
  template <class Do>
  void vector(std::int64_t elements, std::int64_t operations, const Do& work) {
    constexpr std::int64_t kAtOnce = kNumSublanes * kNumLanes * 4;  // 4 units for arithmetic
    spend(vpu_busy, (elements * operations + kAtOnce - 1) / kAtOnce);
    if (!timing_only) work();
  }

  device::Cycles longest() { return std::max(compute.now, dma_out.unit().now); }

  const bool timing_only;
  device::Memory vmem, smem;
  device::Dma dma_in, dma_out;
  device::Unit compute;  // MXU and VPU, by turns
  device::Cycles mxu_busy = 0, vpu_busy = 0;

 private:
  template <class T>
  static void count(device::Dma& dma, const HbmArray<T>& array, std::int64_t head, std::int64_t row,
                    std::int64_t rows) {
    const auto size = static_cast<std::int64_t>(sizeof(T));
    if (head < 0 || head >= array.heads || row < 0 || row + rows > array.seq) {
      throw device::DeviceError(
          dma.unit().name, "rows " + std::to_string(row) + " to " + std::to_string(row + rows) +
                               " of head " + std::to_string(head) + " lie beyond their array");
    }
    dma.count(array.address + array.offset(head, row) * size, rows * array.dim * size);
  }
  void spend(device::Cycles& busy, device::Cycles cycles) {
    compute.spend(cycles);
    busy += cycles;
  }
  template <class A>
  void enter(const A* a, std::int64_t size);
  void multiply(float* c, std::int64_t m, std::int64_t n, std::int64_t k);

  Precision precision_;
  std::vector<float> lhs_, rhs_;  // as they enter: [m][k], [n/16][k][16]
};

}  // namespace attest::vendor::splash
