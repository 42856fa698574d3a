// The kernel of dK and dV: of each block of keys the grid walks over the query heads that read it,
// and of each over the blocks of queries that see it. Scores lie as keys by queries. Fused, it
// makes dQ too: a part for each block of keys, which are added up behind it.
#include <algorithm>

#include "impl/vendor/splash/kernels.h"

namespace attest::vendor::splash {
namespace {

template <class T>
class DkvKernel {
 public:
  DkvKernel(TensorCore& core, const BackwardCall<T>& call, const DkvOutputs<T>& to)
      : core_(core),
        call_(call),
        to_(to),
        info_(call.common.info),
        bq_(info_.block.q),
        bkv_(info_.block.kv),
        kv_compute_(call.common.kv_compute),
        head_dim_(call.common.q.dim),
        fused_(to.dq_unreduced.heads > 0),
        next_(core, info_),
        mask_(core, info_, call.common.segment_ids, call.common.rules, false),
        q_(core, "q", bq_ * head_dim_),
        k_(core, "k", bkv_ * head_dim_),
        v_(core, "v", bkv_ * head_dim_),
        d_o_(core, "do", bq_ * head_dim_),
        logsumexp_(core, "logsumexp", bq_ * call.logsumexp.dim),
        di_(core, "di", bq_ * call.di.dim),
        dk_scratch_(core.vmem.take<float>("dk_scratch", size(bkv_ * head_dim_))),
        dv_scratch_(core.vmem.take<float>("dv_scratch", size(bkv_ * head_dim_))),
        dq_scratch_(core.vmem.take<float>("dq_scratch", fused_ ? size(bq_ * head_dim_) : 0)),
        uncapped_(core.vmem.take<float>("qk_uncapped", size(kv_compute_ * bq_))),
        p_(core.vmem.take<float>("p", size(kv_compute_ * bq_))),
        ds_(core.vmem.take<float>("ds", size(kv_compute_ * bq_))),
        as_do_(core.vmem.take<T>("astype", size(kv_compute_ * bq_))),
        part_(core.vmem.take<float>("part", size(std::max(kv_compute_, bq_) * head_dim_))),
        dk_(core.vmem.take<T>("dk", size(2 * bkv_ * head_dim_))),
        dv_(core.vmem.take<T>("dv", size(2 * bkv_ * head_dim_))),
        dq_(core.vmem.take<T>("dq", fused_ ? size(2 * bq_ * head_dim_) : 0)) {}

  void run() {
    run_grid<Slots>(
        core_, kv_blocks() * heads() * width(), [&](std::int64_t n) { return bring(n); },
        [&](std::int64_t n, const Slots& slots) { compute(at(n), slots); });
  }

 private:
  struct Slots {
    int q, k, v, d_o, logsumexp, di;
    MaskOperands::Slots mask;
  };
  struct At {
    std::int64_t kv, head, j;
  };
  static std::size_t size(std::int64_t elements) { return static_cast<std::size_t>(elements); }
  std::int64_t width() const { return info_.data_next.rows; }
  std::int64_t heads() const { return call_.common.q.heads; }
  std::int64_t kv_blocks() const { return call_.common.kv_blocks(); }
  At at(std::int64_t step) const {
    return {step / (heads() * width()), step / width() % heads(), step % width()};
  }

  Slots bring(std::int64_t n) {
    const auto [kv, head, j] = at(n);
    const GridStep step = next_(head, j, kv);
    const KernelCall<T>& c = call_.common;
    const std::int64_t kv_head = head / c.q_heads_per_kv_head();
    const std::int64_t row = step.block * bq_, key = kv * bkv_, h = head;
    const std::int64_t line = head * c.q_blocks() + step.block;
    const std::int64_t block = kv_head * kv_blocks() + kv;
    Slots slots{};
    slots.q = q_.hold(line, [&](T* to) { core_.bring(to, c.q, h, row, bq_); });
    slots.d_o = d_o_.hold(line, [&](T* to) { core_.bring(to, call_.d_o, h, row, bq_); });
    slots.logsumexp =
        logsumexp_.hold(line, [&](float* to) { core_.bring(to, call_.logsumexp, h, row, bq_); });
    slots.di = di_.hold(line, [&](float* to) { core_.bring(to, call_.di, h, row, bq_); });
    slots.k = k_.hold(block, [&](T* to) { core_.bring(to, c.k, kv_head, key, bkv_); });
    slots.v = v_.hold(block, [&](T* to) { core_.bring(to, c.v, kv_head, key, bkv_); });
    slots.mask = mask_.bring(step.block, kv, step);
    return slots;
  }

  void compute(const At& where, const Slots& slots) {
    const GridStep step = next_(where.head, where.j, where.kv);
    const std::int64_t in_group = where.head % call_.common.q_heads_per_kv_head();
    if (where.j == 0) order_.begin_line();
    if (where.j == 0 && in_group == 0) {
      core_.vector(2 * bkv_ * head_dim_, kSimple, [&] {
        std::fill_n(dk_scratch_.data(), bkv_ * head_dim_, 0.0f);
        std::fill_n(dv_scratch_.data(), bkv_ * head_dim_, 0.0f);
      });
    }
    if (fused_) {
      core_.vector(bq_ * head_dim_, kSimple,
                   [&] { std::fill_n(dq_scratch_.data(), bq_ * head_dim_, 0.0f); });
    }
    if (step.should_run) {
      order_.run(step.block, call_.common.q_blocks());
      for (std::int64_t part = 0; part < bkv_; part += kv_compute_) {
        body(slots, step, where.kv, {part, part + kv_compute_});
      }
      call_.common.blocks->push_back({.phase = Phase::kDkv,
                                      .head = where.head,
                                      .q = {step.block * bq_, (step.block + 1) * bq_},
                                      .kv = {where.kv * bkv_, (where.kv + 1) * bkv_},
                                      .masked = mask_.masks(step)});
    }
    if (fused_) write_dq(where);
    if (where.j == width() - 1 && in_group == call_.common.q_heads_per_kv_head() - 1) write(where);
  }

  void body(const Slots& slots, const GridStep& step, std::int64_t kv, Slice keys) {
    const ScoreGradient of{.rows = kv_compute_,
                           .columns = bq_,
                           .di_in_columns = true,
                           .stride = call_.di.dim,
                           .soft_cap = call_.common.rules.soft_cap};
    const std::int64_t scores = kv_compute_ * bq_, first = keys.start * head_dim_;
    const T* const q = q_.at(slots.q);
    const T* const k = k_.at(slots.k) + first;
    core_.dot_nt(k, q, uncapped_.data(), kv_compute_, bq_, head_dim_);
    std::copy_n(uncapped_.data(), core_.timing_only ? 0 : scores, p_.data());
    mask_.apply(p_.data(), slots.mask, step, kv, keys);
    weights(core_, of, logsumexp_.at(slots.logsumexp), p_.data());

    convert(core_, p_.data(), scores, as_do_.data());
    core_.dot_nn(as_do_.data(), d_o_.at(slots.d_o), part_.data(), kv_compute_, head_dim_, bq_);
    add(core_, dv_scratch_.data() + first, part_.data(), kv_compute_ * head_dim_);

    core_.dot_nt(v_.at(slots.v) + first, d_o_.at(slots.d_o), ds_.data(), kv_compute_, bq_,
                 head_dim_);
    score_gradient(core_, of, uncapped_.data(), p_.data(), di_.at(slots.di), ds_.data());
    convert(core_, ds_.data(), scores, as_do_.data());
    core_.dot_nn(as_do_.data(), q, part_.data(), kv_compute_, head_dim_, bq_);
    add(core_, dk_scratch_.data() + first, part_.data(), kv_compute_ * head_dim_);
    if (fused_) add_dq(k);
  }

  // dS, transposed, times K.
  void add_dq(const T* k) {
    std::vector<T> transposed(core_.timing_only ? 0 : size(bq_ * kv_compute_));
    core_.vector(bq_ * kv_compute_, kSimple, [&] {
      for (std::int64_t j = 0; j < kv_compute_; ++j) {
        for (std::int64_t i = 0; i < bq_; ++i) {
          transposed[size(i * kv_compute_ + j)] = static_cast<T>(ds_[size(j * bq_ + i)]);
        }
      }
    });
    core_.dot_nn(static_cast<const T*>(transposed.data()), k, part_.data(), bq_, head_dim_,
                 kv_compute_);
    add(core_, dq_scratch_.data(), part_.data(), bq_ * head_dim_);
  }

  void write_dq(const At& where) {
    convert(core_, dq_scratch_.data(), bq_ * head_dim_, dq_.data());
    core_.take_away(dq_.data(), to_.dq_unreduced, where.kv * heads() + where.head, where.j * bq_,
                    bq_);
  }

  void write(const At& where) {
    const std::int64_t kv_head = where.head / call_.common.q_heads_per_kv_head();
    convert(core_, dk_scratch_.data(), bkv_ * head_dim_, dk_.data());
    convert(core_, dv_scratch_.data(), bkv_ * head_dim_, dv_.data());
    core_.take_away(dk_.data(), to_.dk, kv_head, where.kv * bkv_, bkv_);
    core_.take_away(dv_.data(), to_.dv, kv_head, where.kv * bkv_, bkv_);
  }

  TensorCore& core_;
  const BackwardCall<T>& call_;
  DkvOutputs<T> to_;
  const MaskInfo& info_;
  std::int64_t bq_, bkv_, kv_compute_, head_dim_;
  bool fused_;
  NextNonzero next_;
  AscendingBlocks order_;
  MaskOperands mask_;
  Window<T> q_, k_, v_, d_o_;
  Window<float> logsumexp_, di_;
  device::Memory::Region<float> dk_scratch_, dv_scratch_, dq_scratch_, uncapped_, p_, ds_;
  device::Memory::Region<T> as_do_;
  device::Memory::Region<float> part_;
  device::Memory::Region<T> dk_, dv_, dq_;
};

}  // namespace

template <class T>
void run_dkv(TensorCore& core, const BackwardCall<T>& call, const DkvOutputs<T>& to) {
  DkvKernel<T>(core, call, to).run();
}
template void run_dkv(TensorCore&, const BackwardCall<float>&, const DkvOutputs<float>&);
template void run_dkv(TensorCore&, const BackwardCall<BFloat16>&, const DkvOutputs<BFloat16>&);

}  // namespace attest::vendor::splash
