// The forward kernel: of each block of queries the grid walks over the blocks of keys that it sees;
// a running maximum m, a sum l and an output o are carried from one to the next.
#include <algorithm>
#include <cmath>

#include "impl/vendor/splash/kernels.h"

namespace attest::vendor::splash {
namespace {

template <class T>
class ForwardKernel {
 public:
  ForwardKernel(TensorCore& core, const ForwardCall<T>& call, Slice heads)
      : core_(core),
        call_(call),
        info_(call.common.info),
        heads_(heads),
        bq_(info_.block.q),
        bkv_(info_.block.kv),
        kv_compute_(call.common.kv_compute),
        head_dim_(call.common.q.dim),
        next_(core, info_),
        mask_(core, info_, call.common.segment_ids, call.common.rules, true),
        q_(core, "q", bq_ * head_dim_),
        k_(core, "k", bkv_ * head_dim_),
        v_(core, "v", bkv_ * head_dim_),
        m_(core.vmem.take<float>("m_scratch", size(bq_ * kNumLanes))),
        l_(core.vmem.take<float>("l_scratch", size(bq_ * kNumLanes))),
        o_scratch_(core.vmem.take<float>("o_scratch", size(bq_ * head_dim_))),
        qk_(core.vmem.take<float>("qk", size(bq_ * kv_compute_))),
        o_curr_(core.vmem.take<float>("o_curr", size(bq_ * head_dim_))),
        o_(core.vmem.take<T>("o", size(2 * bq_ * head_dim_))),
        logsumexp_(core.vmem.take<float>(
            "logsumexp", call.logsumexp.heads > 0 ? size(2 * bq_ * kNumLanes) : 0)) {}

  void run() {
    run_grid<Slots>(
        core_, heads_.size() * q_blocks() * width(), [&](std::int64_t n) { return bring(n); },
        [&](std::int64_t n, const Slots& slots) { compute(at(n), slots); });
  }

 private:
  struct Slots {
    int q, k, v;
    MaskOperands::Slots mask;
  };
  struct At {
    std::int64_t head, i, j;
  };
  static std::size_t size(std::int64_t elements) { return static_cast<std::size_t>(elements); }
  std::int64_t width() const { return info_.data_next.columns; }
  std::int64_t q_blocks() const { return info_.data_next.rows; }
  At at(std::int64_t step) const {
    return {heads_.start + step / (q_blocks() * width()), step / width() % q_blocks(),
            step % width()};
  }

  Slots bring(std::int64_t n) {
    const auto [head, i, j] = at(n);
    const GridStep step = next_(head, i, j);
    const KernelCall<T>& c = call_.common;
    const std::int64_t kv_head = head / c.q_heads_per_kv_head();
    Slots slots{};
    const std::int64_t row = i * bq_, key = step.block * bkv_, h = head;
    slots.q = q_.hold(head * q_blocks() + i, [&](T* to) { core_.bring(to, c.q, h, row, bq_); });
    const std::int64_t block = kv_head * c.kv_blocks() + step.block;
    slots.k = k_.hold(block, [&](T* to) { core_.bring(to, c.k, kv_head, key, bkv_); });
    slots.v = v_.hold(block, [&](T* to) { core_.bring(to, c.v, kv_head, key, bkv_); });
    slots.mask = mask_.bring(i, step.block, step);
    return slots;
  }

  void compute(const At& where, const Slots& slots) {
    const GridStep step = next_(where.head, where.i, where.j);
    if (where.j == 0) init();
    if (step.should_run) {
      order_.run(step.block, call_.common.kv_blocks());
      for (std::int64_t part = 0; part < bkv_; part += kv_compute_) {
        body(slots, step, {part, part + kv_compute_});
      }
      call_.common.blocks->push_back({.phase = Phase::kForward,
                                      .head = where.head,
                                      .q = {where.i * bq_, (where.i + 1) * bq_},
                                      .kv = {step.block * bkv_, (step.block + 1) * bkv_},
                                      .masked = mask_.masks(step)});
    }
    if (where.j == width() - 1) end(where);
  }

  void init() {
    order_.begin_line();
    core_.vector(bq_ * (2 * kNumLanes + head_dim_), kSimple, [&] {
      for (std::int64_t r = 0; r < bq_; ++r) {
        m_[size(r * kNumLanes)] = static_cast<float>(call_.common.rules.mask_value);
        l_[size(r * kNumLanes)] = 0;
      }
      std::fill_n(o_scratch_.data(), bq_ * head_dim_, 0.0f);
    });
  }

  void body(const Slots& slots, const GridStep& step, Slice keys) {
    core_.dot_nt(q_.at(slots.q), k_.at(slots.k) + keys.start * head_dim_, qk_.data(), bq_,
                 kv_compute_, head_dim_);
    mask_.apply(qk_.data(), slots.mask, step, step.block, keys);
    std::vector<float> alpha(size(bq_), 1.0f);
    core_.vector(bq_ * kv_compute_, 3 * kSimple + kExp, [&] {
      for (std::int64_t r = 0; r < bq_; ++r) alpha[size(r)] = absorb(r);
    });
    core_.dot_nn(qk_.data(), v_.at(slots.v) + keys.start * head_dim_, o_curr_.data(), bq_,
                 head_dim_, kv_compute_);
    core_.vector(bq_ * head_dim_, 2 * kSimple, [&] {
      for (std::int64_t r = 0; r < bq_; ++r) {
        float* const o = o_scratch_.data() + r * head_dim_;
        const float* const curr = o_curr_.data() + r * head_dim_;
        for (std::int64_t d = 0; d < head_dim_; ++d) o[d] = alpha[size(r)] * o[d] + curr[d];
      }
    });
  }

  // Scores of a row become weights; answers what earlier ones are worth now.
  float absorb(std::int64_t r) {
    float* const s = qk_.data() + r * kv_compute_;
    float& m = m_[size(r * kNumLanes)];
    float& l = l_[size(r * kNumLanes)];
    const float m_prev = m;
    for (std::int64_t j = 0; j < kv_compute_; ++j) m = maximum(m, s[j]);
    float sum = 0;
    for (std::int64_t j = 0; j < kv_compute_; ++j) sum += s[j] = std::exp(s[j] - m);
    const float alpha = std::exp(m_prev - m);
    l = sum + alpha * l;
    return alpha;
  }
  // As jnp.maximum: NaN if either is.
  static float maximum(float a, float b) { return a >= b || a != a ? a : b; }

  void end(const At& where) {
    core_.vector(bq_ * head_dim_, 2 * kSimple, [&] {
      for (std::int64_t r = 0; r < bq_; ++r) {
        const float l_inv = 1.0f / l_[size(r * kNumLanes)];
        for (std::int64_t d = 0; d < head_dim_; ++d) {
          o_[size(r * head_dim_ + d)] = static_cast<T>(o_scratch_[size(r * head_dim_ + d)] * l_inv);
        }
      }
    });
    core_.take_away(o_.data(), call_.o, where.head, where.i * bq_, bq_);
    if (call_.logsumexp.heads == 0) return;
    core_.vector(bq_ * kNumLanes, kExp, [&] {
      for (std::int64_t r = 0; r < bq_; ++r) {
        const float of_row = std::log(l_[size(r * kNumLanes)]) + m_[size(r * kNumLanes)];
        std::fill_n(logsumexp_.data() + r * kNumLanes, kNumLanes, of_row);
      }
    });
    core_.take_away(logsumexp_.data(), call_.logsumexp, where.head, where.i * bq_, bq_);
  }

  TensorCore& core_;
  const ForwardCall<T>& call_;
  const MaskInfo& info_;
  Slice heads_;
  std::int64_t bq_, bkv_, kv_compute_, head_dim_;
  NextNonzero next_;
  AscendingBlocks order_;
  MaskOperands mask_;
  Window<T> q_, k_, v_;
  device::Memory::Region<float> m_, l_, o_scratch_, qk_, o_curr_;
  device::Memory::Region<T> o_;  // two slots: one on its way out
  device::Memory::Region<float> logsumexp_;
};

}  // namespace

template <class T>
void run_forward(TensorCore& core, const ForwardCall<T>& call, Slice heads) {
  ForwardKernel<T>(core, call, heads).run();
}
template void run_forward(TensorCore&, const ForwardCall<float>&, Slice);
template void run_forward(TensorCore&, const ForwardCall<BFloat16>&, Slice);

}  // namespace attest::vendor::splash
