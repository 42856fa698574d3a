#include "impl/vendor/splash/tensor_core.h"

namespace attest::vendor::splash {
namespace {

using Lanes [[gnu::vector_size(32)]] = float;

constexpr std::int64_t kPanel = 16;  // columns of the right operand that lie side by side

// Sums of all rows and a panel's columns, over ascending k, four rows at a time.
[[gnu::always_inline]] inline void multiply_panel(const float* lhs, const float* panel, float* to,
                                                  std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t kRows = 4;
  for (std::int64_t row = 0; row < m; row += kRows, lhs += kRows * k, to += kRows * n) {
    Lanes sums[kRows][2] = {};
    for (std::int64_t d = 0; d < k; ++d) {
      Lanes left, right;
      std::memcpy(&left, panel + d * kPanel, sizeof(left));
      std::memcpy(&right, panel + d * kPanel + kPanel / 2, sizeof(right));
#pragma GCC unroll 4
      for (std::int64_t r = 0; r < kRows; ++r) {
        sums[r][0] += lhs[r * k + d] * left;
        sums[r][1] += lhs[r * k + d] * right;
      }
    }
    for (std::int64_t r = 0; r < kRows; ++r) std::memcpy(to + r * n, sums[r], sizeof(sums[r]));
  }
}

void multiply_panels(const float* lhs, const float* panels, float* to, std::int64_t m,
                     std::int64_t n, std::int64_t k) {
  for (std::int64_t column = 0; column < n; column += kPanel) {
    multiply_panel(lhs, panels + column * k, to + column, m, n, k);
  }
}

// On a host with wider vectors. Products and sums are operations of their own there too, in the
// same order, and give the same bits.
#if defined(__x86_64__)
[[gnu::target("avx2")]] void multiply_panels_wide(const float* lhs, const float* panels, float* to,
                                                  std::int64_t m, std::int64_t n, std::int64_t k) {
  for (std::int64_t column = 0; column < n; column += kPanel) {
    multiply_panel(lhs, panels + column * k, to + column, m, n, k);
  }
}
const bool kIsWide = __builtin_cpu_supports("avx2");
#else
constexpr bool kIsWide = false;
constexpr auto multiply_panels_wide = multiply_panels;
#endif

template <class T>
float entering(T value, Precision precision) {
  return precision == Precision::kFloat32 ? static_cast<float>(value)
                                          : static_cast<float>(BFloat16(static_cast<float>(value)));
}

}  // namespace

device::Device Tpu::device() const {
  return device::Device(
      {.name = "TPU v5p (mock)",
       .model = "models the TPU that the seed's splash attention ran on; no claim on hardware",
       .cores = cores,
       .formats = {kDtypeName<float>, kDtypeName<BFloat16>},
       .layouts = {"HEAD_DIM_MINOR"}});
}

// 2.46 TB/s for both cores at 1.75 GHz: 703 bytes a cycle for one.
TensorCore::TensorCore(const Tpu& tpu, const std::string& name)
    : timing_only(tpu.timing_only),
      vmem(name + " VMEM", static_cast<std::size_t>(tpu.vmem_bytes)),
      smem(name + " SMEM", static_cast<std::size_t>(tpu.smem_bytes)),
      dma_in(name + " DMA in", {.burst = 4096,
                                .misaligned_burst = 0,
                                .alignment = 256,
                                .bytes_per_cycle = 703,
                                .setup = 0}),
      dma_out(name + " DMA out", {.burst = 4096,
                                  .misaligned_burst = 0,
                                  .alignment = 256,
                                  .bytes_per_cycle = 703,
                                  .setup = 0}),
      precision_(tpu.matmul_precision) {
  compute.name = name;
}

template <class A, class B>
void TensorCore::dot_nn(const A* a, const B* b, float* c, std::int64_t m, std::int64_t n,
                        std::int64_t k) {
  if (!timing_only) {
    enter(a, m * k);
    rhs_.resize(static_cast<std::size_t>(k * n));
    float* to = rhs_.data();
    for (std::int64_t column = 0; column < n; column += kPanel) {
      for (std::int64_t d = 0; d < k; ++d) {
        for (std::int64_t j = 0; j < kPanel; ++j) {
          *to++ = entering(b[d * n + column + j], precision_);
        }
      }
    }
  }
  multiply(c, m, n, k);
}

template <class A, class B>
void TensorCore::dot_nt(const A* a, const B* b, float* c, std::int64_t m, std::int64_t n,
                        std::int64_t k) {
  if (!timing_only) {
    enter(a, m * k);
    rhs_.resize(static_cast<std::size_t>(k * n));
    float* to = rhs_.data();
    for (std::int64_t column = 0; column < n; column += kPanel) {
      for (std::int64_t d = 0; d < k; ++d) {
        for (std::int64_t j = 0; j < kPanel; ++j) {
          *to++ = entering(b[(column + j) * k + d], precision_);
        }
      }
    }
  }
  multiply(c, m, n, k);
}

template <class A>
void TensorCore::enter(const A* a, std::int64_t size) {
  lhs_.resize(static_cast<std::size_t>(size));
  for (std::size_t e = 0; e < lhs_.size(); ++e) lhs_[e] = entering(a[e], precision_);
}

// Four arrays of 128 x 128 take 8 rows a time each; what does not fill them takes as long.
void TensorCore::multiply(float* c, std::int64_t m, std::int64_t n, std::int64_t k) {
  const auto whole = [](std::int64_t size, std::int64_t part) {
    return (size + part - 1) / part * part;
  };
  spend(mxu_busy, whole(m, kNumSublanes) * whole(n, kNumLanes) * whole(k, kNumLanes) /
                      (4 * kNumLanes * kNumLanes));
  if (timing_only) return;
  (kIsWide ? multiply_panels_wide : multiply_panels)(lhs_.data(), rhs_.data(), c, m, n, k);
}

template void TensorCore::dot_nn(const float*, const float*, float*, std::int64_t, std::int64_t,
                                 std::int64_t);
template void TensorCore::dot_nn(const float*, const BFloat16*, float*, std::int64_t, std::int64_t,
                                 std::int64_t);
template void TensorCore::dot_nn(const BFloat16*, const BFloat16*, float*, std::int64_t,
                                 std::int64_t, std::int64_t);
template void TensorCore::dot_nt(const float*, const float*, float*, std::int64_t, std::int64_t,
                                 std::int64_t);
template void TensorCore::dot_nt(const BFloat16*, const BFloat16*, float*, std::int64_t,
                                 std::int64_t, std::int64_t);

}  // namespace attest::vendor::splash
