#include "impl/vendor/splash/splash_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "impl/vendor/device/error.h"
#include "impl/vendor/splash/kernels.h"

namespace attest::vendor::splash {

void check_compute_block(const char* name, std::int64_t block, std::int64_t compute) {
  if (compute < 1 || block % compute != 0) {
    throw ValueError(
        fmt::format("{}={} must be a multiple of its compute block, {}", name, block, compute));
  }
  if (compute % kNumLanes != 0) {
    throw ValueError(fmt::format("the compute block {} of {} must be a multiple of {}", compute,
                                 name, kNumLanes));
  }
}

namespace {

void check_tile(const char* name, std::int64_t block, std::int64_t tile) {
  if (block > 0 && block % tile == 0) return;
  throw device::DeviceError(
      "Mosaic",
      fmt::format("{}={} is no multiple of {}, as the tiles of arrays are", name, block, tile));
}

}  // namespace

bool BlockSizes::has_backward_blocks() const {
  const bool of_dkv = block_q_dkv && block_kv_dkv && block_kv_dkv_compute;
  return of_dkv && (use_fused_bwd_kernel || (block_q_dq && block_kv_dq));
}

BlockSizes BlockSizes::completed() const {
  BlockSizes all = *this;
  if (!all.block_kv_compute) all.block_kv_compute = block_kv;
  if (!all.block_kv_dkv_compute) all.block_kv_dkv_compute = block_kv_dkv;
  if (use_fused_bwd_kernel && (block_q_dq || block_kv_dq)) {
    throw ValueError("a fused kernel has no block sizes of dq");
  }
  return all;
}

BlockSizes BlockSizes::get_default() {
  return {.block_q = 128,
          .block_kv = 128,
          .block_kv_compute = 128,
          .block_q_dkv = 128,
          .block_kv_dkv = 128,
          .block_kv_dkv_compute = 128,
          .block_q_dq = 128,
          .block_kv_dq = 128};
}

SplashAttentionKernel::SplashAttentionKernel(const MultiHeadMask& mask,
                                             const SplashOptions& options, bool is_mqa,
                                             HostSetup& setup)
    : options_(options),
      block_sizes_(options.block_sizes.value_or(BlockSizes::get_default()).completed()),
      is_mqa_(is_mqa),
      mask_heads_(mask.heads()),
      tpu_(setup.tpu) {
  if (options.head_shards != 1 || options.q_seq_shards != 1) {
    throw NotImplementedError("the mock is one device: head_shards and q_seq_shards are 1");
  }
  const device::Device device = tpu_.device();
  for (const QkvLayout layout :
       {block_sizes_.q_layout, block_sizes_.k_layout, block_sizes_.v_layout}) {
    device.check_layout(layout == QkvLayout::kHeadDimMinor ? "HEAD_DIM_MINOR" : "SEQ_MINOR");
  }
  const auto process = [&](std::int64_t q, std::int64_t kv, bool is_dkv, bool shrink_grid) {
    // Queries lie in sublanes, of dK and dV in lanes.
    check_tile("block_q", q, is_dkv ? kNumLanes : kNumSublanes);
    check_tile("block_kv", kv, kNumLanes);
    return setup.cache.process(mask,
                               {.block = {q, kv},
                                .is_dkv = is_dkv,
                                .downcast_smem_data = options.downcast_smem_data,
                                .shrink_grid = shrink_grid},
                               setup.count);
  };
  fwd_mask_info = process(block_sizes_.block_q, block_sizes_.block_kv, false, true);
  if (!block_sizes_.has_backward_blocks()) return;
  if (!block_sizes_.use_fused_bwd_kernel) {
    dq_mask_info = process(*block_sizes_.block_q_dq, *block_sizes_.block_kv_dq, false, true);
  }
  dkv_mask_info = process(*block_sizes_.block_q_dkv, *block_sizes_.block_kv_dkv, true,
                          !block_sizes_.use_fused_bwd_kernel);
}

template <class T>
void SplashAttentionKernel::check(const Array<const T>& q, const Array<const T>& k,
                                  const Array<const T>& v, const SegmentIds* segment_ids) const {
  tpu_.device().check_format(kDtypeName<T>);
  if (is_mqa_ && k.heads != 1) throw ValueError("in MQA 'key' is of one head");
  if (k.heads < 1 || q.heads % k.heads != 0) {
    throw ValueError(
        fmt::format("{} 'key' heads do not divide {} 'query' heads", k.heads, q.heads));
  }
  if (k.dim != q.dim) {
    throw ValueError(fmt::format("the head dimension of 'key' is {}, of 'query' {}", k.dim, q.dim));
  }
  if (k.heads != v.heads || k.seq != v.seq || k.dim != v.dim) {
    throw ValueError("'key' and 'value' must have the same shape");
  }
  if (q.dim % kNumLanes != 0) {
    throw NotImplementedError(
        fmt::format("head_dim={} should be a multiple of {}", q.dim, kNumLanes));
  }
  if (q.heads != mask_heads_ || Shape{q.seq, k.seq} != fwd_mask_info->shape) {
    throw ValueError("the mask is of other heads or lengths");
  }
  if (segment_ids && (static_cast<std::int64_t>(segment_ids->q.size()) != q.seq ||
                      static_cast<std::int64_t>(segment_ids->kv.size()) != k.seq)) {
    throw ValueError("segment ids are not as many as queries and keys");
  }
  check_compute_block("block_kv", block_sizes_.block_kv, *block_sizes_.block_kv_compute);
}

template <class T>
Output<T> SplashAttentionKernel::operator()(const Array<const T>& q, const Array<const T>& k,
                                            const Array<const T>& v,
                                            const SegmentIds* segment_ids) const {
  check(q, k, v, segment_ids);
  Output<T> output;
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, BFloat16>) {
    output.out = room<T>(tpu_, q.heads * q.seq * q.dim);
    std::vector<float> in_lanes =
        room<float>(tpu_, options_.save_residuals ? q.heads * q.seq * kNumLanes : 0);
    const ForwardCall<T> call{
        .common = {.info = *fwd_mask_info,
                   .q = q,
                   .k = k,
                   .v = v,
                   .segment_ids = segment_ids,
                   .rules = {options_.mask_value, options_.attn_logits_soft_cap},
                   .kv_compute = *block_sizes_.block_kv_compute,
                   .blocks = &output.blocks},
        .o = like(q, output.out.data()),
        .logsumexp = {.data = in_lanes.data(),
                      .heads = options_.save_residuals ? q.heads : 0,
                      .seq = q.seq,
                      .dim = kNumLanes}};
    // Heads are the dimension that cores share ("parallel").
    const std::int64_t cores = std::min<std::int64_t>(tpu_.cores, q.heads);
    const std::int64_t heads = (q.heads + cores - 1) / cores;
    output.elapsed = tpu_.device().run(static_cast<int>(cores), [&](int core) {
      TensorCore tensor_core(tpu_, fmt::format("TensorCore {}", core));
      const std::int64_t first = core * heads;
      run_forward(tensor_core, call, {first, std::min(first + heads, q.heads)});
      return tensor_core.longest();
    });
    for (std::size_t e = 0; e < in_lanes.size(); e += kNumLanes) {
      output.logsumexp.push_back(in_lanes[e]);
    }
  }
  return output;
}

SplashAttentionKernel make_splash_mha(const MultiHeadMask& mask, const SplashOptions& options,
                                      HostSetup& setup) {
  return SplashAttentionKernel(mask, options, false, setup);
}
SplashAttentionKernel make_splash_mqa(const MultiHeadMask& mask, const SplashOptions& options,
                                      HostSetup& setup) {
  return SplashAttentionKernel(mask, options, true, setup);
}

template Output<float> SplashAttentionKernel::operator()(const Array<const float>&,
                                                         const Array<const float>&,
                                                         const Array<const float>&,
                                                         const SegmentIds*) const;
template Output<BFloat16> SplashAttentionKernel::operator()(const Array<const BFloat16>&,
                                                            const Array<const BFloat16>&,
                                                            const Array<const BFloat16>&,
                                                            const SegmentIds*) const;
template Output<std::int8_t> SplashAttentionKernel::operator()(const Array<const std::int8_t>&,
                                                               const Array<const std::int8_t>&,
                                                               const Array<const std::int8_t>&,
                                                               const SegmentIds*) const;
template void SplashAttentionKernel::check(const Array<const float>&, const Array<const float>&,
                                           const Array<const float>&, const SegmentIds*) const;
template void SplashAttentionKernel::check(const Array<const BFloat16>&,
                                           const Array<const BFloat16>&,
                                           const Array<const BFloat16>&, const SegmentIds*) const;

}  // namespace attest::vendor::splash
