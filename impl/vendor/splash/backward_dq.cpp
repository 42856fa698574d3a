// The kernel of dQ: as the forward one it walks over the keys that a block of queries sees, with P
// made again from the scores and logsumexp.
#include <algorithm>
#include <cmath>

#include "impl/vendor/splash/kernels.h"

namespace attest::vendor::splash {

void weights(TensorCore& core, const ScoreGradient& of, const float* logsumexp, float* qk_to_p) {
  core.vector(of.rows * of.columns, kSimple + kExp, [&] {
    for (std::int64_t r = 0; r < of.rows; ++r) {
      for (std::int64_t c = 0; c < of.columns; ++c) {
        float& x = qk_to_p[r * of.columns + c];
        x = std::exp(x - logsumexp[(of.di_in_columns ? c : r) * of.stride]);
      }
    }
  });
}

void score_gradient(TensorCore& core, const ScoreGradient& of, const float* uncapped,
                    const float* p, const float* di, float* dp_to_ds) {
  const std::int64_t operations = of.soft_cap ? 12 * kSimple : 2 * kSimple;
  core.vector(of.rows * of.columns, operations, [&] {
    const auto soft_cap = static_cast<float>(of.soft_cap.value_or(0));
    for (std::int64_t r = 0; r < of.rows; ++r) {
      for (std::int64_t c = 0; c < of.columns; ++c) {
        const std::int64_t e = r * of.columns + c;
        float ds = (dp_to_ds[e] - di[(of.di_in_columns ? c : r) * of.stride]) * p[e];
        if (of.soft_cap) {
          const float d = std::tanh(uncapped[e] / soft_cap);
          const float g = ds * (1 - d);
          ds = g + g * d;
        }
        dp_to_ds[e] = ds;
      }
    }
  });
}

namespace {

template <class T>
class DqKernel {
 public:
  DqKernel(TensorCore& core, const BackwardCall<T>& call, const Array<T>& dq)
      : core_(core),
        call_(call),
        dq_array_(dq),
        info_(call.common.info),
        bq_(info_.block.q),
        bkv_(info_.block.kv),
        head_dim_(call.common.q.dim),
        next_(core, info_),
        mask_(core, info_, call.common.segment_ids, call.common.rules, true),
        q_(core, "q", bq_ * head_dim_),
        k_(core, "k", bkv_ * head_dim_),
        v_(core, "v", bkv_ * head_dim_),
        d_o_(core, "do", bq_ * head_dim_),
        logsumexp_(core, "logsumexp", bq_ * call.logsumexp.dim),
        di_(core, "di", bq_ * call.di.dim),
        scratch_(core.vmem.take<float>("dq_scratch", size(bq_ * head_dim_))),
        part_(core.vmem.take<float>("dq_part", size(bq_ * head_dim_))),
        uncapped_(core.vmem.take<float>("qk_uncapped", size(bq_ * bkv_))),
        p_(core.vmem.take<float>("p", size(bq_ * bkv_))),
        ds_(core.vmem.take<float>("ds", size(bq_ * bkv_))),
        ds_as_k_(core.vmem.take<T>("ds.astype", size(bq_ * bkv_))),
        dq_(core.vmem.take<T>("dq", size(2 * bq_ * head_dim_))) {}

  void run() {
    run_grid<Slots>(
        core_, call_.common.q.heads * info_.data_next.rows * info_.data_next.columns,
        [&](std::int64_t n) { return bring(n); },
        [&](std::int64_t n, const Slots& slots) { compute(at(n), slots); });
  }

 private:
  struct Slots {
    int q, k, v, d_o, logsumexp, di;
    MaskOperands::Slots mask;
  };
  struct At {
    std::int64_t head, i, j;
  };
  static std::size_t size(std::int64_t elements) { return static_cast<std::size_t>(elements); }
  At at(std::int64_t step) const {
    const std::int64_t width = info_.data_next.columns, rows = info_.data_next.rows;
    return {step / (rows * width), step / width % rows, step % width};
  }

  Slots bring(std::int64_t n) {
    const auto [head, i, j] = at(n);
    const GridStep step = next_(head, i, j);
    const KernelCall<T>& c = call_.common;
    const std::int64_t row = i * bq_, key = step.block * bkv_, h = head;
    const std::int64_t kv_head = head / c.q_heads_per_kv_head();
    const std::int64_t line = head * info_.data_next.rows + i;
    const std::int64_t block = kv_head * c.kv_blocks() + step.block;
    Slots slots{};
    slots.q = q_.hold(line, [&](T* to) { core_.bring(to, c.q, h, row, bq_); });
    slots.d_o = d_o_.hold(line, [&](T* to) { core_.bring(to, call_.d_o, h, row, bq_); });
    slots.logsumexp =
        logsumexp_.hold(line, [&](float* to) { core_.bring(to, call_.logsumexp, h, row, bq_); });
    slots.di = di_.hold(line, [&](float* to) { core_.bring(to, call_.di, h, row, bq_); });
    slots.k = k_.hold(block, [&](T* to) { core_.bring(to, c.k, kv_head, key, bkv_); });
    slots.v = v_.hold(block, [&](T* to) { core_.bring(to, c.v, kv_head, key, bkv_); });
    slots.mask = mask_.bring(i, step.block, step);
    return slots;
  }

  void compute(const At& where, const Slots& slots) {
    const GridStep step = next_(where.head, where.i, where.j);
    if (where.j == 0) {
      order_.begin_line();
      core_.vector(bq_ * head_dim_, kSimple,
                   [&] { std::fill_n(scratch_.data(), bq_ * head_dim_, 0.0f); });
    }
    if (step.should_run) {
      order_.run(step.block, call_.common.kv_blocks());
      body(slots, step);
      call_.common.blocks->push_back({.phase = Phase::kDq,
                                      .head = where.head,
                                      .q = {where.i * bq_, (where.i + 1) * bq_},
                                      .kv = {step.block * bkv_, (step.block + 1) * bkv_},
                                      .masked = mask_.masks(step)});
    }
    if (where.j == info_.data_next.columns - 1) {
      convert(core_, scratch_.data(), bq_ * head_dim_, dq_.data());
      core_.take_away(dq_.data(), dq_array_, where.head, where.i * bq_, bq_);
    }
  }

  void body(const Slots& slots, const GridStep& step) {
    const ScoreGradient of{.rows = bq_,
                           .columns = bkv_,
                           .di_in_columns = false,
                           .stride = call_.di.dim,
                           .soft_cap = call_.common.rules.soft_cap};
    core_.dot_nt(q_.at(slots.q), k_.at(slots.k), uncapped_.data(), bq_, bkv_, head_dim_);
    std::copy_n(uncapped_.data(), core_.timing_only ? 0 : bq_ * bkv_, p_.data());
    mask_.apply(p_.data(), slots.mask, step, step.block, {0, bkv_});
    weights(core_, of, logsumexp_.at(slots.logsumexp), p_.data());
    core_.dot_nt(d_o_.at(slots.d_o), v_.at(slots.v), ds_.data(), bq_, bkv_, head_dim_);
    score_gradient(core_, of, uncapped_.data(), p_.data(), di_.at(slots.di), ds_.data());
    convert(core_, ds_.data(), bq_ * bkv_, ds_as_k_.data());
    core_.dot_nn(ds_as_k_.data(), k_.at(slots.k), part_.data(), bq_, head_dim_, bkv_);
    add(core_, scratch_.data(), part_.data(), bq_ * head_dim_);
  }

  TensorCore& core_;
  const BackwardCall<T>& call_;
  Array<T> dq_array_;
  const MaskInfo& info_;
  std::int64_t bq_, bkv_, head_dim_;
  NextNonzero next_;
  AscendingBlocks order_;
  MaskOperands mask_;
  Window<T> q_, k_, v_, d_o_;
  Window<float> logsumexp_, di_;
  device::Memory::Region<float> scratch_, part_, uncapped_, p_, ds_;
  device::Memory::Region<T> ds_as_k_, dq_;
};

}  // namespace

template <class T>
void run_dq(TensorCore& core, const BackwardCall<T>& call, const Array<T>& dq) {
  DqKernel<T>(core, call, dq).run();
}
template void run_dq(TensorCore&, const BackwardCall<float>&, const Array<float>&);
template void run_dq(TensorCore&, const BackwardCall<BFloat16>&, const Array<BFloat16>&);

}  // namespace attest::vendor::splash
