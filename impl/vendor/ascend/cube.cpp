#include "impl/vendor/ascend/cube.h"

#include <algorithm>
#include <cstring>

namespace attest::vendor::ascend {

namespace {

using Lanes = float __attribute__((vector_size(64)));
constexpr int64_t kLanes = 16;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// c[m][n] += sum over k of a[m][k] b[k][n], in the order of k; rows of b and c are whole lanes.
void multiply_add(const float* a, int64_t lda, const float* b, int64_t ldb, float* c, int64_t ldc,
                  int64_t m_size, int64_t n_size, int64_t k_size) {
  for (int64_t n = 0; n < n_size; n += kLanes) {
    for (int64_t m = 0; m < m_size; m += 2) {
      const bool pair = m + 1 < m_size;
      float* c0 = c + m * ldc + n;
      float* c1 = pair ? c0 + ldc : c0;
      const float* a0 = a + m * lda;
      const float* a1 = pair ? a0 + lda : a0;
      Lanes sum0, sum1, x;
      std::memcpy(&sum0, c0, sizeof(Lanes));
      std::memcpy(&sum1, c1, sizeof(Lanes));
      for (int64_t k = 0; k < k_size; ++k) {
        std::memcpy(&x, b + k * ldb + n, sizeof(Lanes));
        sum0 += a0[k] * x;
        sum1 += a1[k] * x;
      }
      std::memcpy(c0, &sum0, sizeof(Lanes));
      if (pair) std::memcpy(c1, &sum1, sizeof(Lanes));
    }
  }
}

}  // namespace

CubeCore::Bytes CubeCore::take(device::Memory& memory, const char* what, int64_t elements) {
  return memory.take<std::byte>(what, static_cast<std::size_t>(elements * size_));
}

CubeCore::CubeCore(AiCore& core, DataType type, int64_t base_m, int64_t base_n, int64_t depth)
    : core_(core),
      type_(type),
      size_(bytes_of(type)),
      base_m_(ceil_div(base_m, kFractal) * kFractal),
      base_n_(ceil_div(base_n, kFractal) * kFractal),
      base_k_(type == DataType::kFloat ? 64 : 128) {
  const int64_t depth_there = ceil_div(depth, kFractal) * kFractal;
  const int64_t left = base_m_ * depth_there, right = base_k_ * base_n_;
  left_slots_ = 2 * (left + right) * size_ <= kL1 ? 2 : 1;
  for (int slot = 0; slot < 2; ++slot) {
    if (slot < left_slots_) l1_left_[slot].emplace(take(core.l1, "left", left));
    l1_right_[slot].emplace(take(core.l1, "right", right));
  }
  l0a_.emplace(take(core.l0a, "two left panels", 2 * base_m_ * base_k_));
  l0b_.emplace(take(core.l0b, "two right panels", 2 * right));
  l0c_.emplace(core.l0c.take<float>("two sums", static_cast<std::size_t>(2 * base_m_ * base_n_)));
}

void CubeCore::left(const Matrix& a) {
  m_ = a.transposed ? a.columns : a.rows;
  k_ = a.transposed ? a.rows : a.columns;
  numbers_ = a.at.host != nullptr;
  left_turn_ = (left_turn_ + 1) % left_slots_;
  Bytes& l1 = *l1_left_[left_turn_];
  if (m_ > base_m_ || m_ * k_ * size_ > static_cast<int64_t>(l1.size())) {
    throw DeviceError("L1", "a left tile of " + std::to_string(m_) + " x " + std::to_string(k_) +
                                " is larger than its place");
  }
  core_.mte2.unit().wait_until(left_free_[left_turn_]);
  load_rows(core_.mte2, a.at, a.rows, a.columns * size_, a.stride * size_, l1.data(),
            a.columns * size_);
  left_there_ = core_.mte2.unit().now;
  if (!numbers_) return;
  left_.resize(static_cast<std::size_t>(m_ * k_));
  if (!a.transposed) {
    widen(l1.data(), type_, m_ * k_, left_.data());
    return;
  }
  std::vector<float> row(static_cast<std::size_t>(m_));
  for (int64_t k = 0; k < k_; ++k) {
    widen(l1.data() + k * m_ * size_, type_, m_, row.data());
    for (int64_t m = 0; m < m_; ++m)
      left_[static_cast<std::size_t>(m * k_ + k)] = row[static_cast<std::size_t>(m)];
  }
}

void CubeCore::times(const Matrix& b, Gm out, int64_t stride, bool atomic_add) {
  const int64_t n_all = b.transposed ? b.rows : b.columns;
  for (int64_t n0 = 0; n0 < n_all; n0 += base_n_) {
    const int64_t n_size = std::min(base_n_, n_all - n0);
    core_.cube.wait_until(std::max(left_there_, l0c_free_[l0c_turn_]));
    if (numbers_) {
      std::memset(l0c_->data(), 0, static_cast<std::size_t>(base_m_ * base_n_) * sizeof(float));
    }
    for (int64_t k0 = 0; k0 < k_; k0 += base_k_) {
      panel(b, k0, std::min(base_k_, k_ - k0), n0, n_size);
    }
    fix(out + n0 * static_cast<int64_t>(sizeof(float)), stride, n_size, atomic_add);
  }
  left_free_[left_turn_] = core_.cube.now;
}

// Loads a part of the right tile and adds its products to the sums.
void CubeCore::panel(const Matrix& b, int64_t k0, int64_t k_size, int64_t n0, int64_t n_size) {
  const int64_t rows = b.transposed ? n_size : k_size, columns = b.transposed ? k_size : n_size;
  const int64_t row0 = b.transposed ? n0 : k0, column0 = b.transposed ? k0 : n0;
  Bytes& l1 = *l1_right_[turn_];
  core_.mte2.unit().wait_until(right_free_[turn_]);
  load_rows(core_.mte2, b.at + (row0 * b.stride + column0) * size_, rows, columns * size_,
            b.stride * size_, l1.data(), columns * size_);
  core_.cube.wait_until(core_.mte2.unit().now);
  core_.cube.spend(ceil_div(m_, kFractal) * ceil_div(n_size, kFractal) *
                   ceil_div(k_size, kFractal) * (type_ == DataType::kFloat ? kFloatCube : 1));
  right_free_[turn_] = core_.cube.now;
  turn_ ^= 1;
  if (!numbers_) return;
  const int64_t ld = ceil_div(n_size, kLanes) * kLanes;
  right_.assign(static_cast<std::size_t>(k_size * ld), 0);
  if (!b.transposed) {
    for (int64_t k = 0; k < k_size; ++k)
      widen(l1.data() + k * columns * size_, type_, columns, right_.data() + k * ld);
  } else {
    std::vector<float> row(static_cast<std::size_t>(k_size));
    for (int64_t n = 0; n < n_size; ++n) {
      widen(l1.data() + n * columns * size_, type_, columns, row.data());
      for (int64_t k = 0; k < k_size; ++k)
        right_[static_cast<std::size_t>(k * ld + n)] = row[static_cast<std::size_t>(k)];
    }
  }
  multiply_add(left_.data() + k0, k_, right_.data(), ld, l0c_->data(), base_n_, m_, ld, k_size);
}

void CubeCore::fix(Gm out, int64_t stride, int64_t n_size, bool atomic_add) {
  core_.fixpipe.unit().wait_until(core_.cube.now);
  count_rows(core_.fixpipe, out.address, m_, n_size * kFloatBytes, stride * kFloatBytes);
  l0c_free_[l0c_turn_] = core_.fixpipe.unit().now;
  l0c_turn_ ^= 1;
  if (!numbers_) return;
  for (int64_t m = 0; m < m_; ++m) {
    auto* to = reinterpret_cast<float*>(out.host + m * stride * kFloatBytes);
    const float* from = l0c_->data() + m * base_n_;
    for (int64_t n = 0; n < n_size; ++n) to[n] = atomic_add ? to[n] + from[n] : from[n];
  }
}

}  // namespace attest::vendor::ascend
