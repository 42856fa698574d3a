// The Triton tutorial's fused attention as a plug-in, on a mock: models the tutorial's calling
// convention as the seed describes it; no claim on hardware.
//
// What is not declared, the system has not: no mask but causal from the top left, no head dims but
// four, no length that is no multiple of BLOCK_M (its loads have no check of bounds), no strides
// (K and V are read by Q's), no groups, no scale of 0 or below (the largest product stands for the
// largest score), no size of 0 (an empty grid is no launch), no backward pass in the seed's text;
// and of formats f16 alone: P is f16, and so has V to be, which excludes bf16 and f32, while fp8
// for Q and K is in the operator, but not among the formats that can be asked for.
//
// LSE. The tutorial keeps M for its own backward pass, and its wrapper returns O alone: nothing in
// it multiplies by log 2, so nothing here does. `triton` says that M is in base 2, for which the
// standard has a dialect (LSE-1.5); `triton/raw` hands over the same M and says nothing, as
// somebody would who takes it for LSE: it fails LSE-1.
//
// What fails: the mask adds -1e6 in base 2, a finite number, in the blocks on the diagonal. A
// hidden key whose score is above the visible ones by more than that (693147 in base e) has all the
// weight, while SOFTMAX-1, SOFTMAX-2, MASK-2 and HIDE-1 ask for none as long as scores are below
// 2^24. And NaN in a key that a row does not see reaches it in those blocks, by the score, which is
// added to and not replaced, and by 0 times V (HIDE-3 and FINITE-2, which are recommended: a WARN).
#include <attest/kernel.h>

#include <cstring>
#include <stdexcept>
#include <vector>

#include "impl/vendor/triton/triton_api.h"

namespace attest::vendor::triton {
namespace {

Dtype own_dtype(attest_dtype dtype) {
  switch (dtype) {
    case ATTEST_F16:
      return Dtype::float16;
    case ATTEST_BF16:
      return Dtype::bfloat16;  // which the compiler refuses, for V
    case ATTEST_F32:
      return Dtype::float32;
    default:
      throw std::invalid_argument("the tutorial has no such format");
  }
}

// A view of the host's memory, whose axes are Z, H, N_CTX and D.
Tensor view_of(const attest::Tensor& tensor) {
  const std::int64_t *const n = tensor.shape, *const by = tensor.stride;
  const Dtype dtype = own_dtype(tensor.dtype);
  return Tensor::from_blob(tensor.data, {n[0], n[1], n[2], n[3]}, {by[0], by[1], by[2], by[3]},
                           dtype,
                           static_cast<std::int64_t>(tensor.capacity_bytes) / itemsize(dtype));
}

// What the operator has no argument for would be left out in silence: nobody declared it, but a
// probe may ask all the same.
void check_asked(const Problem& p) {
  const std::vector<attest_mask>& nodes = p.mask_nodes();
  if (!p.causal() || nodes.back().offset != 0 ||
      (nodes.back().anchored_bottom_right && p.query_len != p.key_len)) {
    throw std::invalid_argument("the tutorial's only mask is causal, from the top left");
  }
  if (p.query_len != p.key_len || p.query_heads != p.key_heads) {
    throw std::invalid_argument("q, k and v have one shape");
  }
  if (p.query_lens.data || p.key_lens.data || p.cu_query_lens.data || p.cu_key_lens.data ||
      p.page_size > 0 || p.softcap != 0 || p.has_bias || p.has_alibi || p.has_sink ||
      p.dropout != ATTEST_DROPOUT_NONE) {
    throw std::invalid_argument("the tutorial has no lengths, pages, softcap, bias, sink, dropout");
  }
}

void attend(const Call& c) {
  check_asked(c.problem);
  const Attended attended =
      attention(view_of(c.q), view_of(c.k), view_of(c.v), true, c.problem.scale);
  const Tensor &o = attended.o, &M = attended.ctx.M;
  const auto to = c.o.view<attest::f16>();
  for (std::int64_t b = 0; b < o.shape()[0]; ++b) {
    for (std::int64_t h = 0; h < o.shape()[1]; ++h) {
      for (std::int64_t i = 0; i < o.shape()[2]; ++i) {
        for (std::int64_t d = 0; d < o.shape()[3]; ++d) {
          to(b, h, i, d) = attest::f16(o.at(b, h, i, d));  // which is exact
        }
      }
    }
  }
  if (!c.lse) return;
  std::memcpy(c.lse.data, M.data(), static_cast<std::size_t>(M.elements()) * sizeof(float));
}

Declaration declared_of_triton() {
  return declare()
      .version("seed S4")
      .vendor("mock of the Triton tutorial's fused attention, as the seed describes it")
      .dtypes({"f16"})
      .features({"causal", "lse"})
      .limit("masks", {"causal top_left"})
      .limit("mask_offset", 0)
      .limit("square", "true")
      .limit("head_dim", {16, 32, 64, 128})
      .limit("query_len", R"({"multiple": 128})")
      // A grid is at most 65535 wide; of two sizes only a rectangle can be said.
      .limit("batch", R"({"max": 255})")
      .limit("query_heads", R"({"max": 257})")
      .arithmetic("f16", R"({
        "products": {"default": {"accumulator": "f32", "truncates": false, "operands": "exact"}},
        "softmax": "f32",
        "exp_ulp": 1,
        "p": "f16",
        "p_normalised": "last",
        "row_sum": "p",
        "kv_splits": 1,
        "rescales_output": false,
        "key_block": 32,
        "subnormal_inputs": "kept",
        "subnormal_outputs": "kept",
        "output_rounding": "nearest",
        "deterministic": true,
        "thread_invariant": true,
        "batch_invariant": true
      })");
}

}  // namespace

ATTEST_KERNEL(
    "triton",
    declared_of_triton().set("lse", R"({"base": 2})").profiles({"forward-core+declared/limits"}),
    attend)
ATTEST_KERNEL("triton/raw", declared_of_triton(), attend)

}  // namespace attest::vendor::triton
