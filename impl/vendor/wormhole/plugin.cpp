// TT-Metal's FlashAttention on a mock Wormhole as a plug-in: models the operator's calling
// convention as the seed describes it; no claim on hardware. Tensors of any strides are the host's
// to cut into tiles.
//
// The operator has two modes, which exclude each other, and so there are two kernels of it:
//
//   wormhole            is_causal, or all keys
//   wormhole/attn_mask  a mask that is added, which this file makes of whatever mask and bias there
//                       is: 0 or the bias where a key is seen, else -inf
//
// and one in which the operator computes as it does by default:
//
//   wormhole/float16_b  scores, sums and statistics in bf16, products of 7 by 8 digits, the
//                       scale cut to bf16: beyond the caps (NUM-2), as words alone can say
//
// The first two have f32 there (fp32_dest_acc_en), which the operator's source has but as a remark.
//
// What is not declared, the operator has not: no LSE and no backward pass, no other length of keys
// than of queries, no V of its own width, no head_dim but multiples of a tile's 32, no f32 and no
// f16; and of formats it has, BFP8, since its results are BFP8 then, where FORMAT-6 has bf16.
//
// Empty rows (wormhole/attn_mask). The matrix unit takes -inf for -2^128, and the difference of two
// for 0: in a row in which all is hidden all keys weigh the same, padding up to the chunk too. O is
// the sum of V over the number of keys and padding. It is said in words (EMPTY-5).
#include <attest/kernel.h>

#include <limits>

#include "impl/vendor/wormhole/wormhole_api.h"

namespace {

namespace vendor = attest::vendor::wormhole;
using attest::Tensor;

constexpr float kHidden = -std::numeric_limits<float>::infinity();

// As ttnn.from_torch of a tensor of any strides. Throws if it is of another format.
vendor::Tensor from_host(const Tensor& tensor) {
  const auto dense = attest::gather<attest::bf16>(tensor);
  const std::int64_t* const n = tensor.shape;
  return vendor::Tensor::from_values({dense.data(), dense.data() + dense.size()},
                                     {n[0], n[1], n[2], n[3]}, vendor::DataType::BFLOAT16,
                                     vendor::Layout::TILE);
}

void to_host(const vendor::Tensor& from, const Tensor& to) {
  auto dense = attest::dense<float>(to);
  const std::vector<float> values = from.to_values();
  std::copy(values.begin(), values.end(), dense.data());
  attest::scatter(dense, to);
}

// By the length alone, so that a row's bits depend on nothing else in the batch.
vendor::SDPAProgramConfig config_for(std::int64_t length) {
  const std::size_t chunk = length <= 128 ? 32 : length <= 1024 ? 64 : 128;
  return {.q_chunk_size = chunk, .k_chunk_size = chunk};
}

void call(const attest::Call& c, vendor::SdpaArguments arguments) {
  arguments.scale = static_cast<float>(c.problem.scale);
  arguments.program_config = config_for(c.problem.query_len);
  to_host(vendor::scaled_dot_product_attention(from_host(c.q), from_host(c.k), from_host(c.v),
                                               arguments),
          c.o);
}

constexpr vendor::DeviceComputeKernelConfig kWide = {.math_fidelity = vendor::MathFidelity::HiFi4,
                                                     .fp32_dest_acc_en = true};

bool is_causal(const attest::Problem& problem) {
  if (!problem.full() && !problem.causal()) throw std::invalid_argument("is_causal has no windows");
  return problem.causal();
}

void forward(const attest::Call& c) {
  call(c, {.is_causal = is_causal(c.problem), .compute_kernel_config = kWide});
}

void forward_by_default(const attest::Call& c) { call(c, {.is_causal = is_causal(c.problem)}); }

// The mask that is added: [b or 1, nqh or 1, s, s], of as few batches and heads as differ.
vendor::Tensor attn_mask(const attest::Call& c) {
  const attest::Problem& p = c.problem;
  bool by_batch = c.bias && c.bias.shape[0] > 1, by_head = c.bias && c.bias.shape[1] > 1;
  for (const attest_mask& node : p.mask_nodes()) {
    if (node.kind != ATTEST_MASK_DENSE) continue;
    by_batch |= node.table.shape[0] > 1;
    by_head |= node.table.shape[1] > 1;
  }
  const auto bias = c.bias.view<attest::bf16>();
  const vendor::Shape shape = {by_batch ? p.batch : 1, by_head ? p.query_heads : 1, p.query_len,
                               p.key_len};
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
  for (std::int64_t b = 0; b < shape[0]; ++b) {
    for (std::int64_t h = 0; h < shape[1]; ++h) {
      for (std::int64_t i = 0; i < p.query_len; ++i) {
        for (std::int64_t j = 0; j < p.key_len; ++j) {
          values.push_back(!p.sees(b, h, i, j) ? kHidden : bias ? float(bias(b, h, i, j)) : 0.0f);
        }
      }
    }
  }
  return vendor::Tensor::from_values(values, shape, vendor::DataType::BFLOAT16,
                                     vendor::Layout::TILE);
}

void forward_masked(const attest::Call& c) {
  const vendor::Tensor mask = attn_mask(c);
  call(c, {.attn_mask = &mask, .is_causal = false, .compute_kernel_config = kWide});
}

attest::Declaration declared() {
  return attest::declare()
      .version("seed S3")
      .vendor("mock of TT-Metal's SDPA on Wormhole, as the seed describes it; no claim on hardware")
      .dtypes({"bf16"})
      .limit("head_dim", R"({"min": 32, "max": 256, "multiple": 32})")
      .limit("square", "true");
}

attest::Declaration wide() {
  return declared().profiles({"forward-core+declared/limits"}).arithmetic("bf16", R"({
        "products": {"default": {"accumulator": "f32", "truncates": false, "operands": "exact"}},
        "softmax": "f32",
        "exp_ulp": 1,
        "p": "bf16",
        "p_normalised": "last",
        "row_sum": "rounded_p",
        "kv_splits": 1,
        "rescales_output": false,
        "key_block": 32,
        "subnormal_inputs": "flushed",
        "subnormal_outputs": "flushed",
        "output_rounding": "nearest",
        "deterministic": true,
        "thread_invariant": true,
        "batch_invariant": true
      })");
}

}  // namespace

ATTEST_KERNEL("wormhole",
              wide()
                  .features({"causal", "gqa", "any-scale", "strides", "transposed", "expanded"})
                  .limit("masks", {"full", "causal top_left"})
                  .limit("mask_offset", 0),
              forward)
ATTEST_KERNEL("wormhole/attn_mask",
              wide()
                  .features({"causal", "window", "dense-mask", "mask-and", "bias", "gqa",
                             "any-scale", "strides", "transposed", "expanded"})
                  .profiles({})  // each demands EMPTY-1, or another kind of mask
                  .set("empty_rows",
                       R"({"o": "the sum of V over the number of keys and padding"})"),
              forward_masked)
ATTEST_KERNEL(
    "wormhole/float16_b",
    declared()
        .profiles({})
        .features({"causal", "gqa", "any-scale", "strides", "transposed", "expanded"})
        .limit("masks", {"full", "causal top_left"})
        .limit("mask_offset", 0)
        .arithmetic("bf16", R"({"deterministic": true})")
        .set("beyond_caps",
             R"({"bf16": "sums of PV and of P, maximum and scores are bf16 after each step; )"
             R"(products of 7 by 8 digits; the scale is cut to bf16"})"),
    forward_by_default)
