#include "impl/vendor/triton/attn_fwd.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "impl/vendor/device/memory.h"
#include "impl/vendor/device/queue.h"
#include "impl/vendor/triton/dot.h"
#include "impl/vendor/triton/errors.h"
#include "impl/vendor/triton/ring.h"

namespace attest::vendor::triton {
namespace {

constexpr float kLog2E = 1.44269504f;  // 1/log(2), to the digits of the text
constexpr float kHidden = -1.0e6f;     // what a hidden key's score gets added: finite
constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

// Where the C library reports an underflow, it takes its time: what is surely 0 is so at once.
float exp2_of(float x) { return x < -160 ? 0 : std::exp2(x); }

// One program: a block of rows of one head. m_i begins at -inf and l_i at 1, of which the first
// step's alpha, exp2(-inf - m_ij) = 0, leaves nothing.
class Program {
 public:
  Program(const Gpu& gpu, const AttnFwd& arguments, device::Stages& stages, std::int64_t start_m,
          std::int64_t off_hz);

  // The whole of it. Answers the cycles.
  Cycles run();
  std::int64_t flops() const { return flops_; }

 private:
  void inner(int stage);
  void softmax(int stage, std::int64_t start_n);
  void epilogue();

  // tl.make_block_ptr and tl.load without a check of bounds: rows from `first` on, K and V by Q's
  // strides of batch and head. What lies outside of the tensor is not the program's.
  Rows block_of(const Tensor& tensor, const char* name, std::int64_t first,
                std::int64_t rows) const;
  void widen(const std::uint8_t* tile, Dtype dtype, std::int64_t rows, std::vector<float>& to,
             bool transposed) const;
  void multiply(const std::vector<float>& x, const std::vector<float>& y, std::vector<float>& z,
                std::int64_t depth, std::int64_t columns, Dtype dtype);

  const Gpu& gpu_;
  const AttnFwd& a_;
  const std::int64_t BLOCK_M_, BLOCK_N_, D_;
  const bool computes_;  // false of tensors without storage
  const std::int64_t start_m_, off_hz_;
  const float qk_scale_;

  device::Stages& stages_;
  device::Memory shared_;
  device::Dma dma_;
  device::Unit warps_{.name = "warps"};
  std::int64_t flops_ = 0;

  // Registers: the state of the rows, and the tiles of a step, widened.
  std::vector<float> m_i_, l_i_, acc_, q_, k_, v_, qk_;
};

Program::Program(const Gpu& gpu, const AttnFwd& arguments, device::Stages& stages,
                 std::int64_t start_m, std::int64_t off_hz)
    : gpu_(gpu),
      a_(arguments),
      BLOCK_M_(arguments.config.BLOCK_M),
      BLOCK_N_(arguments.config.BLOCK_N),
      D_(arguments.BLOCK_DMODEL),
      computes_(!arguments.Q.is_meta()),
      start_m_(start_m),
      off_hz_(off_hz),
      qk_scale_(arguments.sm_scale * kLog2E),
      stages_(stages),
      shared_("shared memory", gpu.rules().shared_bytes),
      dma_("asynchronous copies", gpu.rules().loads) {
  const auto rows = static_cast<std::size_t>(BLOCK_M_), keys = static_cast<std::size_t>(BLOCK_N_);
  const auto channels = static_cast<std::size_t>(computes_ ? D_ : 0);
  m_i_.assign(rows, kMinusInf);
  l_i_.assign(rows, 1.0f);
  acc_.assign(rows * channels, 0.0f);
  q_.resize(rows * channels), k_.resize(keys * channels), v_.resize(keys * channels);
  qk_.resize(rows * keys);
}

Cycles Program::run() {
  const std::int64_t q_bytes = BLOCK_M_ * D_ * itemsize(a_.Q.dtype());
  auto q = shared_.take<std::uint8_t>("q", static_cast<std::size_t>(q_bytes));
  copy_rows(dma_, q.data(), block_of(a_.Q, "Q", start_m_ * BLOCK_M_, BLOCK_M_));
  warps_.wait_until(dma_.unit().now);  // q stays throughout
  if (computes_) widen(q.data(), a_.Q.dtype(), BLOCK_M_, q_, false);
  if (a_.STAGE & 1) inner(1);
  if (a_.STAGE & 2) inner(2);
  epilogue();
  return std::max(warps_.now, dma_.unit().now);
}

// Stage 1: the blocks of keys left of the diagonal, which no mask touches. Stage 2: those that it
// crosses. Each is a pipeline of its own, which fills and drains.
void Program::inner(int stage) {
  const std::int64_t lo = stage == 1 ? 0 : start_m_ * BLOCK_M_;
  const std::int64_t hi = stage == 1 ? start_m_ * BLOCK_M_ : (start_m_ + 1) * BLOCK_M_;
  const std::int64_t tiles = (hi - lo) / BLOCK_N_, num_stages = a_.config.num_stages;
  const std::int64_t elements = BLOCK_N_ * D_;
  Ring keys(stages_, shared_, dma_, "k", num_stages, elements * itemsize(a_.K.dtype()));
  Ring values(stages_, shared_, dma_, "v", num_stages, elements * itemsize(a_.V.dtype()));
  const auto load = [&](std::int64_t n) {
    if (n >= tiles) return;
    keys.load(n, block_of(a_.K, "K", lo + n * BLOCK_N_, BLOCK_N_));
    values.load(n, block_of(a_.V, "V", lo + n * BLOCK_N_, BLOCK_N_));
  };

  for (std::int64_t n = 0; n < num_stages - 1; ++n) load(n);
  for (std::int64_t n = 0; n < tiles; ++n) {
    load(n + num_stages - 1);
    const std::uint8_t* const k = keys.wait(warps_, n);
    if (computes_) {
      widen(k, a_.K.dtype(), BLOCK_N_, k_, true);
      std::fill(qk_.begin(), qk_.end(), 0.0f);
    }
    multiply(q_, k_, qk_, D_, BLOCK_N_, a_.K.dtype());
    softmax(stage, lo + n * BLOCK_N_);
    const std::uint8_t* const v = values.wait(warps_, n);
    if (computes_) widen(v, a_.V.dtype(), BLOCK_N_, v_, false);
    multiply(qk_, v_, acc_, BLOCK_N_, D_, a_.V.dtype());
    keys.release(warps_);
    values.release(warps_);
  }
}

// One step of the online softmax: qk becomes P in f16, and the rows' state follows.
void Program::softmax(int stage, std::int64_t start_n) {
  const std::int64_t exps = BLOCK_M_ * (BLOCK_N_ + 1);
  warps_.spend((exps + gpu_.rules().exps_per_cycle - 1) / gpu_.rules().exps_per_cycle);
  if (!computes_) return;
  for (std::int64_t m = 0; m < BLOCK_M_; ++m) {
    float* const qk = qk_.data() + m * BLOCK_N_;
    float& m_i = m_i_.data()[m];
    float& l_i = l_i_.data()[m];
    float m_ij = kMinusInf;
    if (stage == 2) {
      const std::int64_t offs_m = start_m_ * BLOCK_M_ + m;
      for (std::int64_t n = 0; n < BLOCK_N_; ++n) {
        qk[n] = qk[n] * qk_scale_ + (offs_m >= start_n + n ? 0.0f : kHidden);
        m_ij = qk[n] > m_ij ? qk[n] : m_ij;
      }
      m_ij = std::fmax(m_i, m_ij);
      for (std::int64_t n = 0; n < BLOCK_N_; ++n) qk[n] -= m_ij;
    } else {  // the largest product stands for the largest score: no scale below 0
      for (std::int64_t n = 0; n < BLOCK_N_; ++n) m_ij = qk[n] > m_ij ? qk[n] : m_ij;
      m_ij = std::fmax(m_i, m_ij * qk_scale_);
      for (std::int64_t n = 0; n < BLOCK_N_; ++n) qk[n] = qk[n] * qk_scale_ - m_ij;
    }

    float sums[8] = {};  // of the lanes
    for (std::int64_t n = 0; n < BLOCK_N_; ++n) {
      const float p = exp2_of(qk[n]);
      sums[n % 8] += p;  // before it is rounded
      qk[n] = rounded_to_f16(p);
    }
    for (int half = 4; half > 0; half /= 2) {
      for (int lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
    }
    const float alpha = exp2_of(m_i - m_ij);
    l_i = l_i * alpha + sums[0];
    for (std::int64_t d = 0; d < D_; ++d) acc_.data()[m * D_ + d] *= alpha;
    m_i = m_ij;
  }
}

void Program::epilogue() {
  const Tensor& out = a_.Out;
  const Rows rows = block_of(out, "Out", start_m_ * BLOCK_M_, BLOCK_M_);
  warps_.spend((BLOCK_M_ + gpu_.rules().exps_per_cycle - 1) / gpu_.rules().exps_per_cycle);
  dma_.unit().wait_until(warps_.now);
  for (std::int64_t m = 0; m < BLOCK_M_; ++m) {
    dma_.count(rows.address + m * rows.row_stride, D_ * rows.itemsize);
  }
  dma_.count((off_hz_ * a_.N_CTX + start_m_ * BLOCK_M_) * 4, BLOCK_M_ * 4);
  if (!computes_) return;
  for (std::int64_t m = 0; m < BLOCK_M_; ++m) {
    const float l_i = l_i_.data()[m];
    a_.M.set(off_hz_ * a_.N_CTX + start_m_ * BLOCK_M_ + m, m_i_.data()[m] + std::log2(l_i));
    for (std::int64_t d = 0; d < D_; ++d) {
      out.set((rows.address + m * rows.row_stride + d * rows.channel_stride) / rows.itemsize,
              acc_.data()[m * D_ + d] / l_i);
    }
  }
}

Rows Program::block_of(const Tensor& tensor, const char* name, std::int64_t first,
                       std::int64_t rows) const {
  const std::int64_t off_z = off_hz_ / a_.H, off_h = off_hz_ % a_.H;
  const std::int64_t qvk_offset = off_z * a_.Q.stride(0) + off_h * a_.Q.stride(1);
  const std::int64_t begin = qvk_offset + first * tensor.stride(2);
  const std::int64_t end = begin + (rows - 1) * tensor.stride(2) + (D_ - 1) * tensor.stride(3) + 1;
  if (first + rows > a_.N_CTX || begin < 0 || end > tensor.elements()) {
    throw device::DeviceError(
        gpu_.rules().name, std::string("an illegal memory access: rows ") + std::to_string(first) +
                               " to " + std::to_string(first + rows) + " of " + name +
                               ", which has " + std::to_string(a_.N_CTX) + ", end at element " +
                               std::to_string(end) + " of " + std::to_string(tensor.elements()));
  }
  const std::int64_t size = itemsize(tensor.dtype());
  const auto* const data = static_cast<const std::uint8_t*>(tensor.data());
  return {.data = data ? data + begin * size : nullptr,
          .address = begin * size,
          .rows = rows,
          .channels = D_,
          .itemsize = size,
          .row_stride = tensor.stride(2) * size,
          .channel_stride = tensor.stride(3) * size};
}

void Program::widen(const std::uint8_t* tile, Dtype dtype, std::int64_t rows,
                    std::vector<float>& to, bool transposed) const {
  const auto each = [&](auto element) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t d = 0; d < D_; ++d) {
        std::memcpy(&element, tile + (row * D_ + d) * std::int64_t{sizeof(element)},
                    sizeof(element));
        to.data()[transposed ? d * rows + row : row * D_ + d] = element;
      }
    }
  };
  if (dtype == Dtype::float16) return each(f16());
  if (dtype == Dtype::bfloat16) return each(bf16());
  each(f8e5m2());
}

void Program::multiply(const std::vector<float>& x, const std::vector<float>& y,
                       std::vector<float>& z, std::int64_t depth, std::int64_t columns,
                       Dtype dtype) {
  const std::int64_t flops = 2 * BLOCK_M_ * depth * columns;
  const GpuRules& rules = gpu_.rules();
  const std::int64_t per_cycle =
      dtype == Dtype::float8_e5m2 ? rules.fp8_flops_per_cycle : rules.flops_per_cycle;
  warps_.spend((flops + per_cycle - 1) / per_cycle);
  flops_ += flops;
  if (computes_) dot(x.data(), y.data(), z.data(), BLOCK_M_, depth, columns);
}

bool is_power_of_two(std::int64_t number) { return number > 0 && (number & (number - 1)) == 0; }

// What a compiler would say before anything runs.
void compile(const Gpu& gpu, const AttnFwd& a) {
  const Config& c = a.config;
  for (const Tensor* tensor : {&a.Q, &a.K, &a.V})
    gpu.device().check_format(name_of(tensor->dtype()));
  for (const std::int64_t size : {c.BLOCK_M, c.BLOCK_N, c.num_warps}) {
    if (!is_power_of_two(size)) throw CompilationError("tl.arange and warps: powers of 2");
  }
  if (c.num_stages < 1) throw CompilationError("num_stages is at least 1");
  if (c.BLOCK_M < 16 || c.BLOCK_N < 16) throw CompilationError("tl.dot: all sizes at least 16");
  if (c.BLOCK_M % c.BLOCK_N != 0) {  // tl.multiple_of promises it, and each stage begins at BLOCK_M
    throw CompilationError("BLOCK_M is no multiple of BLOCK_N");
  }
  const auto check_dot = [](const std::string& left, const std::string& right) {
    if (left == right) return;
    throw CompilationError("tl.dot: both operands have one type: " + left + " and " + right);
  };
  check_dot(name_of(a.Q.dtype()), name_of(a.K.dtype()));
  check_dot("fp16", name_of(a.V.dtype()));  // p.to(tl.float16)
  if (a.Q.dtype() == Dtype::float32) {
    throw CompilationError("tl.dot: fp32 would be rounded to TF32, which this mock has not");
  }
}

}  // namespace

Launched launch(const Gpu& gpu, const Grid& grid, const AttnFwd& a) {
  compile(gpu, a);
  gpu.check_launch(grid, shared_bytes(a.config, a.BLOCK_DMODEL, a.Q.dtype(), a.V.dtype()));
  std::vector<Cycles> of_start_m;
  std::int64_t flops_of_head = 0;
  device::Stages stages;
  stages.add([&] {
    // All heads take the same, so that of tensors without storage one tells of all.
    const std::int64_t heads = a.Q.is_meta() ? 1 : grid.y;
    for (std::int64_t off_hz = 0; off_hz < heads; ++off_hz) {
      for (std::int64_t start_m = 0; start_m < grid.x; ++start_m) {
        Program program(gpu, a, stages, start_m, off_hz);
        const Cycles cycles = program.run();
        if (off_hz > 0) continue;
        of_start_m.push_back(cycles);
        flops_of_head += program.flops();
      }
    }
  });
  stages.run();
  return {.elapsed = gpu.deal(of_start_m, grid.y), .flops = flops_of_head * grid.y};
}

}  // namespace attest::vendor::triton
