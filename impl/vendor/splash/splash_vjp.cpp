// The backward pass of splash attention: what both kernels read beside Q, K and V is made here, and
// dQ of the fused one added up.
#include <fmt/format.h>

#include "impl/vendor/splash/kernels.h"
#include "impl/vendor/splash/splash_api.h"

namespace attest::vendor::splash {
namespace {

// Numbers of rows, each `copies` times.
std::vector<float> repeated(const std::vector<float>& numbers, std::int64_t copies) {
  std::vector<float> all;
  all.reserve(numbers.size() * static_cast<std::size_t>(copies));
  for (const float number : numbers)
    all.insert(all.end(), static_cast<std::size_t>(copies), number);
  return all;
}

// di: dO . O of each row, in float32.
template <class T>
std::vector<float> row_products(const Tpu& tpu, const Array<const T>& a, const Array<const T>& b) {
  std::vector<float> products = room<float>(tpu, a.heads * a.seq);
  for (std::size_t row = 0; row < products.size(); ++row) {
    const T* const of_a = a.data + row * static_cast<std::size_t>(a.dim);
    const T* const of_b = b.data + row * static_cast<std::size_t>(a.dim);
    for (std::int64_t d = 0; d < a.dim; ++d) {
      products[row] += static_cast<float>(of_a[d]) * static_cast<float>(of_b[d]);
    }
  }
  return products;
}

// logsumexp and di of each row, once for the kernel of dq, and in each sublane for that of dkv.
template <class T>
class RowNumbers {
 public:
  RowNumbers(const Tpu& tpu, const Residuals<T>& residuals, const Array<const T>& d_out)
      : heads_(d_out.heads),
        seq_(d_out.seq),
        di_(row_products(tpu, residuals.out, d_out)),
        di8_(repeated(di_, kNumSublanes)),
        logsumexp_(residuals.logsumexp, residuals.logsumexp + di_.size()),
        logsumexp8_(repeated(logsumexp_, kNumSublanes)) {}

  Array<const float> di() const { return array(di_, 1); }
  Array<const float> logsumexp() const { return array(logsumexp_, 1); }
  Array<const float> di_in_sublanes() const { return array(di8_, kNumSublanes); }
  Array<const float> logsumexp_in_sublanes() const { return array(logsumexp8_, kNumSublanes); }

 private:
  Array<const float> array(const std::vector<float>& numbers, std::int64_t copies) const {
    return {.data = numbers.data(), .heads = heads_, .seq = seq_, .dim = copies};
  }

  std::int64_t heads_, seq_;
  std::vector<float> di_, di8_, logsumexp_, logsumexp8_;
};

// dQ of the fused kernel: its parts in ascending order of keys, added in float32.
template <class T>
std::vector<T> reduced(const std::vector<T>& parts, std::size_t blocks) {
  std::vector<T> sums(parts.size() / blocks);
  for (std::size_t e = 0; e < sums.size(); ++e) {
    float sum = 0;
    for (std::size_t part = e; part < parts.size(); part += sums.size()) {
      sum += static_cast<float>(parts[part]);
    }
    sums[e] = static_cast<T>(sum);
  }
  return sums;
}

// Neither kernel is shared by cores: gradients are added up over heads and over queries.
template <class Program>
device::Elapsed on_one_core(const Tpu& tpu, const Program& program) {
  return tpu.device().run(1, [&](int) {
    TensorCore core(tpu, "TensorCore 0");
    program(core);
    return core.longest();
  });
}

}  // namespace

template <class T>
void SplashAttentionKernel::check_backward(const Residuals<T>& residuals,
                                           const Array<const T>& d_out) const {
  check(residuals.q, residuals.k, residuals.v, residuals.segment_ids);
  if (!block_sizes_.has_backward_blocks()) throw ValueError("backward blocks are not specified");
  check_compute_block("block_kv_dkv", *block_sizes_.block_kv_dkv,
                      *block_sizes_.block_kv_dkv_compute);
  if (!block_sizes_.use_fused_bwd_kernel && *block_sizes_.block_kv_dq % kNumLanes != 0) {
    throw ValueError(fmt::format("block_kv_dq must be a multiple of {}", kNumLanes));
  }
  for (const auto& like_q : {residuals.out, d_out}) {
    if (like_q.heads != residuals.q.heads || like_q.seq != residuals.q.seq ||
        like_q.dim != residuals.q.dim) {
      throw ValueError("the output and its gradient are of the shape of 'query'");
    }
  }
}

template <class T>
Gradients<T> SplashAttentionKernel::vjp(const Residuals<T>& residuals,
                                        const Array<const T>& d_out) const {
  check_backward(residuals, d_out);
  const Array<const T>& q = residuals.q;
  const Array<const T>& k = residuals.k;
  const bool fused = block_sizes_.use_fused_bwd_kernel;
  const RowNumbers<T> rows(tpu_, residuals, d_out);
  Gradients<T> gradients;
  const auto common = [&](const MaskInfo& info, std::int64_t compute) {
    return KernelCall<T>{.info = info,
                         .q = q,
                         .k = k,
                         .v = residuals.v,
                         .segment_ids = residuals.segment_ids,
                         .rules = {options_.mask_value, options_.attn_logits_soft_cap},
                         .kv_compute = compute,
                         .blocks = &gradients.blocks};
  };
  gradients.dk = room<T>(tpu_, k.heads * k.seq * k.dim);
  gradients.dv = gradients.dk;
  const std::int64_t kv_blocks = k.seq / dkv_mask_info->block.kv;
  std::vector<T> parts = room<T>(tpu_, fused ? kv_blocks * q.heads * q.seq * q.dim : 0);
  Array<T> dq_unreduced = like(q, parts.data());
  dq_unreduced.heads = fused ? kv_blocks * q.heads : 0;
  const BackwardCall<T> of_dkv{.common = common(*dkv_mask_info, *block_sizes_.block_kv_dkv_compute),
                               .logsumexp = rows.logsumexp_in_sublanes(),
                               .d_o = d_out,
                               .di = rows.di_in_sublanes()};
  gradients.dkv = on_one_core(tpu_, [&](TensorCore& core) {
    run_dkv(core, of_dkv,
            {.dk = like(k, gradients.dk.data()),
             .dv = like(k, gradients.dv.data()),
             .dq_unreduced = dq_unreduced});
  });
  if (fused) {
    gradients.dq = reduced(parts, static_cast<std::size_t>(kv_blocks));
    return gradients;
  }
  gradients.dq = room<T>(tpu_, q.heads * q.seq * q.dim);
  const BackwardCall<T> of_dq{.common = common(*dq_mask_info, *block_sizes_.block_kv_dq),
                              .logsumexp = rows.logsumexp(),
                              .d_o = d_out,
                              .di = rows.di()};
  gradients.dq_alone = on_one_core(
      tpu_, [&](TensorCore& core) { run_dq(core, of_dq, like(q, gradients.dq.data())); });
  return gradients;
}

template Gradients<float> SplashAttentionKernel::vjp(const Residuals<float>&,
                                                     const Array<const float>&) const;
template Gradients<BFloat16> SplashAttentionKernel::vjp(const Residuals<BFloat16>&,
                                                        const Array<const BFloat16>&) const;

}  // namespace attest::vendor::splash
