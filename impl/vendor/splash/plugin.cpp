// Splash attention as a kernel of Attest, on a mock TPU: models the calling convention of JAX's
// splash attention as the seed describes it; no claim on hardware.
//
// Two kernels, as the seed compares them: `splash` with masks that are objects, `splash_numpy` with
// all of each mask written out. They give the same bits. What is translated: the scale, which
// splash has none of, is applied to Q, and to dQ; a sequence of the batch after the other; a band's
// corner is an offset; masks without an object are arrays of booleans.
//
// What is its own, and stays so:
// - EMPTY-1, EMPTY-2: hidden keys have the score -0.7 * 3.4e38, which is finite. A row that sees no
//   key has the mean of V over the keys of the blocks that were visited for its neighbours, or NaN
//   if none was, and LSE the mask value, or -inf: declared (`empty_rows`).
// - EMPTY-3: of such a row exp(s - LSE) is 1 for each key of these blocks, since log(n) is lost
//   beside the mask value: its dQ is not 0, and it goes into dK and dV. No declaration allows that.
//   Reports cite GRAD-1 and what else the case is about.
// - A mask that hides everything ends in an assertion while the grid is shrunk (CALL-1).
// - Hidden keys are computed with, if their block is visited: NaN in V there reaches O (HIDE-3,
//   FINITE-2, FINITE-3: recommended), also beside segments, where O becomes NaN (MASK-11).
// - bf16: the scale is rounded to bf16, and so is Q once it is scaled: beyond the caps (NUM-2).
// - SCHED-1: blocks that segment ids alone hide are computed. SCHED-2 is promised by splash_numpy,
//   and broken beside segments, which are compared in every block; a CausalMask is compared in
//   every block too, and so `splash` promises nothing.
#include <attest/kernel.h>

#include <optional>
#include <string>
#include <vector>

#include "impl/vendor/splash/axlearn.h"
#include "impl/vendor/splash/plugin_masks.h"
#include "impl/vendor/splash/splash_api.h"

namespace attest::vendor::splash {
namespace {

// A tensor of one batch element, [heads, seq, dim], as jax.vmap hands it on.
template <class T>
class Sequence {
 public:
  Sequence(const Tensor& tensor, std::int64_t batch)
      : heads_(tensor.shape[1]), seq_(tensor.shape[2]), dim_(tensor.shape[3]) {
    const View<T> view = tensor.view<T>();
    for (std::int64_t h = 0; h < heads_; ++h) {
      for (std::int64_t s = 0; s < seq_; ++s) {
        for (std::int64_t d = 0; d < dim_; ++d) data_.push_back(view(batch, h, s, d));
      }
    }
  }
  std::vector<T>& data() { return data_; }
  operator Array<const T>() const {
    return {.data = data_.data(), .heads = heads_, .seq = seq_, .dim = dim_};
  }

 private:
  std::int64_t heads_, seq_, dim_;
  std::vector<T> data_;
};

template <class T>
void put(const std::vector<T>& from, const Tensor& to, std::int64_t batch) {
  if (!to) return;
  const View<T> view = to.view<T>();
  const T* next = from.data();
  for (std::int64_t h = 0; h < to.shape[1]; ++h) {
    for (std::int64_t s = 0; s < to.shape[2]; ++s) {
      for (std::int64_t d = 0; d < to.shape[3]; ++d) view(batch, h, s, d) = *next++;
    }
  }
}

// A kernel of splash attention for a batch element, and for all others if their masks are the same.
class Kernels {
 public:
  Kernels(const Call& call, MaskForm form) : call_(call), form_(form) {}

  const SplashAttentionKernel& of(std::int64_t batch) {
    const Problem& p = call_.problem;
    if (batch > 0 && !differs_by_batch(p)) return *kernel_;
    mask_ = translate(p, batch);
    if (form_ == MaskForm::kNumpy) {
      MaskPtr lazy, written;
      for (MaskPtr& mask : mask_.of_heads) {
        if (mask != lazy) lazy = mask, written = numpy_mask(dense(*mask, setup_.count));
        mask = written;
      }
    }
    const SplashOptions options{
        .save_residuals = true,
        .attn_logits_soft_cap = p.softcap > 0 ? std::optional(p.softcap) : std::nullopt};
    const bool is_mqa = p.key_heads == 1 && p.query_heads > 1;
    const MultiHeadMask masks(mask_.of_heads);
    kernel_ =
        is_mqa ? make_splash_mqa(masks, options, setup_) : make_splash_mha(masks, options, setup_);
    return *kernel_;
  }
  const SegmentIds* segment_ids() const {
    return mask_.segment_ids ? &*mask_.segment_ids : nullptr;
  }

 private:
  const Call& call_;
  MaskForm form_;
  HostSetup setup_;
  TranslatedMask mask_;
  std::optional<SplashAttentionKernel> kernel_;
};

void report(const Call& call, std::int64_t batch, const std::vector<BlockRun>& blocks) {
  for (const BlockRun& block : blocks) {
    attest_block reported{};
    reported.batch = batch;
    reported.head = block.head;
    reported.query_begin = block.q.start;
    reported.query_end = block.q.stop;
    reported.key_begin = block.kv.start;
    reported.key_end = block.kv.stop;
    reported.masked = block.masked;
    reported.backward = block.phase == Phase::kForward ? 0 : block.phase == Phase::kDkv ? 1 : 2;
    call.report(reported);
  }
}

template <class T>
void forward_of(const Call& call, MaskForm form) {
  Kernels kernels(call, form);
  for (std::int64_t b = 0; b < call.problem.batch; ++b) {
    Sequence<T> q(call.q, b);
    apply_softmax_scale(call.problem.scale, q.data());
    const SplashAttentionKernel& kernel = kernels.of(b);
    const Output<T> found = kernel(Array<const T>(q), Array<const T>(Sequence<T>(call.k, b)),
                                   Array<const T>(Sequence<T>(call.v, b)), kernels.segment_ids());
    put(found.out, call.o, b);
    put(found.logsumexp, call.lse, b);
    report(call, b, found.blocks);
  }
}

template <class T>
void backward_of(const Call& call, MaskForm form) {
  Kernels kernels(call, form);
  for (std::int64_t b = 0; b < call.problem.batch; ++b) {
    Sequence<T> q(call.q, b);
    apply_softmax_scale(call.problem.scale, q.data());
    const Sequence<T> k(call.k, b), v(call.v, b), o(call.o, b), d_o(call.d_o, b);
    Sequence<float> lse(call.lse, b);
    const SplashAttentionKernel& kernel = kernels.of(b);
    const Residuals<T> residuals{.q = q,
                                 .k = k,
                                 .v = v,
                                 .out = o,
                                 .logsumexp = lse.data().data(),
                                 .segment_ids = kernels.segment_ids()};
    Gradients<T> found = kernel.vjp(residuals, Array<const T>(d_o));
    apply_softmax_scale(call.problem.scale, found.dq);  // the chain rule, outside of the kernel
    put(found.dq, call.dq, b);
    put(found.dk, call.dk, b);
    put(found.dv, call.dv, b);
    report(call, b, found.blocks);
  }
}

template <MaskForm form>
void forward(const Call& call) {
  call.problem.dtype == ATTEST_BF16 ? forward_of<BFloat16>(call, form)
                                    : forward_of<float>(call, form);
}
template <MaskForm form>
void backward(const Call& call) {
  call.problem.dtype == ATTEST_BF16 ? backward_of<BFloat16>(call, form)
                                    : backward_of<float>(call, form);
}

// JAX's documentation: operands of float32 are rounded to bfloat16 unless more is asked for.
const std::string kF32 =
    R"({"products": {"default": {"operands": "bf16", "truncates": false}},)"
    R"("softmax": "f32", "p": "f32", "ds": "f32", "p_normalised": "last", "row_sum": "p",)"
    R"("ds_from": "p", "ds_scaled": "after_rounding",)"
    R"("key_block": 128, "kv_splits": 1, "rescales_output": false,)"
    R"("subnormal_inputs": "kept", "subnormal_outputs": "kept", "output_rounding": "nearest",)"
    R"("deterministic": true, "thread_invariant": true, "batch_invariant": true})";

attest::Declaration declared(const std::string& schedule) {
  return attest::declare()
      .version("jax-0.4.38-mock")
      .vendor("mock of JAX splash attention on a TPU")
      .profiles({})
      .dtypes({"f32", "bf16"})
      .features({"causal", "window", "dense-mask", "prefix", "segments", "block-sparse", "dilated",
                 "mask-and", "mask-or", "softcap", "gqa", "any-scale", "lse", "backward"})
      // NUM_LANES, and blocks of 128, which divide the lengths.
      .limit("head_dim", R"({"multiple": 128})")
      .limit("query_len", R"({"multiple": 128})")
      .limit("key_len", R"({"multiple": 128})")
      // Ids and offsets are int32.
      .limit("mask_offset", R"({"min": -1073741824, "max": 1073741824})")
      .set("empty_rows", R"({"o": "the mean of V over the keys of visited blocks, NaN if none",)"
                         R"("lse": "-0.7 of the largest float32, -inf if no block is visited"})")
      .set("schedule", schedule)
      .arithmetic("f32", kF32)
      .arithmetic("bf16", R"({"deterministic": true, "thread_invariant": true,)"
                          R"("batch_invariant": true})")
      .set("beyond_caps", R"({"bf16": "the scale, and Q once it is scaled, are rounded to bf16"})");
}

}  // namespace
}  // namespace attest::vendor::splash

ATTEST_KERNEL("splash", attest::vendor::splash::declared("{}"),
              attest::vendor::splash::forward<attest::vendor::splash::MaskForm::kLazy>,
              attest::vendor::splash::backward<attest::vendor::splash::MaskForm::kLazy>)
ATTEST_KERNEL("splash_numpy", attest::vendor::splash::declared(R"({"masks_partial_only": true})"),
              attest::vendor::splash::forward<attest::vendor::splash::MaskForm::kNumpy>,
              attest::vendor::splash::backward<attest::vendor::splash::MaskForm::kNumpy>)
