#include "tests/mutants/hosts.h"

#include <algorithm>
#include <initializer_list>

namespace attest::mutants {
namespace {

using Problem = attest_problem;

bool among(std::int64_t number, std::initializer_list<std::int64_t> listed) {
  return std::find(listed.begin(), listed.end(), number) != listed.end();
}

// Nothing but Q, K, V and a mask.
bool is_plain(const Problem& p) {
  return !p.query_lens.data && !p.key_lens.data && !p.cu_query_lens.data && p.page_size == 0 &&
         p.softcap == 0 && !p.has_bias && !p.has_alibi && !p.has_sink && !p.has_dlse &&
         p.dropout == ATTEST_DROPOUT_NONE;
}

bool has_elements(const Problem& p) {
  return std::min({p.batch, p.query_heads, p.key_heads, p.query_len, p.key_len, p.head_dim,
                   p.value_dim}) > 0;
}

const attest_mask* band_of(const Problem& p) {
  return p.mask_count == 1 && p.mask->kind == ATTEST_MASK_BAND ? p.mask : nullptr;
}
bool is_full(const Problem& p) {
  return p.mask_count == 0 || (p.mask_count == 1 && p.mask->kind == ATTEST_MASK_FULL);
}
bool is_causal(const Problem& p) {
  const attest_mask* band = band_of(p);
  return band && band->left == ATTEST_UNBOUNDED && band->right == 0;
}
bool is_top_left(const Problem& p) {
  const attest_mask* band = band_of(p);
  return band && !band->anchored_bottom_right;
}
bool has_no_offset(const Problem& p) { return band_of(p) && band_of(p)->offset == 0; }

bool is_mha(const Problem& p) { return p.query_heads == p.key_heads; }

// ---- The hosts ----------------------------------------------------------------------------------

bool triton_mha(const Problem& p) {
  return p.dtype == ATTEST_F16 && !p.backward && is_plain(p) && has_elements(p) && is_mha(p) &&
         p.head_dim == p.value_dim && among(p.head_dim, {16, 32, 64, 128}) &&
         p.query_len == p.key_len && p.query_len % 128 == 0 && p.scale > 0 &&
         (is_full(p) || (is_causal(p) && is_top_left(p) && has_no_offset(p)));
}

bool causal_training(const Problem& p) {
  return p.dtype == ATTEST_BF16 && is_plain(p) && has_elements(p) && is_causal(p) &&
         has_no_offset(p) && p.query_len == p.key_len && p.head_dim == p.value_dim &&
         among(p.head_dim, {64, 128}) && p.scale > 0;
}

bool decode_paged(const Problem& p) {
  return among(p.dtype, {ATTEST_F16, ATTEST_BF16}) && !p.backward && has_elements(p) &&
         p.query_len == 1 && among(p.page_size, {16, 64, 256}) && is_full(p) && p.softcap == 0 &&
         p.head_dim == p.value_dim && among(p.head_dim, {64, 128}) &&
         p.query_heads / p.key_heads <= 16 && !p.query_lens.data && !p.has_bias && !p.has_alibi &&
         !p.has_sink && p.dropout == ATTEST_DROPOUT_NONE && p.scale > 0;
}

bool uneven_dims(const Problem& p) {
  return p.dtype == ATTEST_F32 && !p.backward && is_plain(p) && has_elements(p) && is_mha(p) &&
         p.head_dim <= 192 && p.value_dim <= 128 && (is_full(p) || is_causal(p)) && p.scale > 0;
}

bool top_left(const Problem& p) {
  return among(p.dtype, {ATTEST_F32, ATTEST_F16}) && is_plain(p) && has_elements(p) &&
         (is_full(p) || is_top_left(p)) && p.key_len >= p.query_len && p.scale > 0 &&
         !(p.backward && (p.query_len == 1 || p.head_dim > 128));
}

constexpr Host kHosts[] = {
    {"triton_mha", "a tutorial's kernel: forward, as many key heads as query heads, whole tiles",
     R"("f16")", R"("forward-core/limits")", R"("lse", "causal", "strides")",
     R"({"query_len": {"min": 128, "multiple": 128}, "key_len": {"min": 128, "multiple": 128},
         "square": true, "head_dim": [16, 32, 64, 128], "masks": ["full", "causal top_left"],
         "mask_offset": 0})",
     triton_mha},
    {"causal_training", "causal alone, square, forward and backward", R"("bf16")",
     R"("forward-core/limits", "training-core/limits")",
     R"("lse", "causal", "backward", "gqa", "strides")",
     R"({"square": true, "head_dim": [64, 128], "masks": ["causal"], "mask_offset": 0,
         "layouts": ["bhsd", "bshd"]})",
     causal_training},
    {"decode_paged", "one query, pages, groups", R"("f16", "bf16")", R"("paged/limits")",
     R"("lse", "paged", "gqa", "strides")",
     R"({"query_len": 1, "page_size": [16, 64, 256], "head_dim": [64, 128], "masks": ["full"],
         "group": {"max": 16}, "never": [{"lacks": ["paged"]}]})",
     decode_paged},
    {"uneven_dims", "as many key heads as query heads, values of another width, no LSE", R"("f32")",
     R"("forward-core/limits")", R"("causal", "value-dim")",
     R"({"head_dim": {"max": 192}, "value_dim": {"max": 128}, "masks": ["full", "causal"]})",
     uneven_dims},
    {"top_left", "bands from the top left alone", R"("f32", "f16")",
     R"("forward-core/limits", "training-core/limits")",
     R"("lse", "causal", "window", "gqa", "value-dim", "strides", "backward")",
     R"({"masks": ["full", "causal top_left", "window top_left"], "keys_at_least_queries": true,
         "backward": {"head_dim": {"max": 128}}, "never": [{"backward": true, "query_len": 1}]})",
     top_left},
};

}  // namespace

std::span<const Host> hosts() { return kHosts; }

}  // namespace attest::mutants
