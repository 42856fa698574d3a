// Scores and what is added to them, and the faults of these.
#include "tests/mutants/call.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace attest::mutants {
namespace {

// The element of a dense tensor's memory at `n`, which a fault may have put beyond its end.
float flat(const attest_tensor& t, Index n) {
  const auto dtype = static_cast<DType>(t.dtype);
  const Index bytes = format_of(dtype).bytes;
  const Index last = static_cast<Index>(t.capacity_bytes) / bytes - 1;
  return static_cast<float>(
      load(dtype, static_cast<std::byte*>(t.data) + std::clamp<Index>(n, 0, last) * bytes));
}

// q.k in eight sums, which a compiler keeps in a vector.
float dot(const float* query, const float* key, Index channels) {
  constexpr Index kSums = 8;
  std::array<float, kSums> sums = {};
  const Index whole = channels / kSums * kSums;
  for (Index d = 0; d < whole; d += kSums) {
    for (Index c = 0; c < kSums; ++c) sums[at(c)] += query[d + c] * key[d + c];
  }
  for (Index d = whole; d < channels; ++d) sums[at(d - whole)] += query[d] * key[d];
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

}  // namespace

float Call::scale() const {
  const auto s = static_cast<float>(p_.scale);
  const auto usual = static_cast<float>(1 / std::sqrt(std::max(1.0, double(p_.head_dim))));
  const bool table = p_.mask_count > 0 && !band() && p_.mask[0].kind != ATTEST_MASK_FULL;
  const bool ignored =
      has("scale_ignored") || (has("scale_zero_is_default") && s == 0) ||
      (has("scale_ignored_packed") && packed()) || (has("scale_ignored_paged") && paged()) ||
      (has("scale_ignored_backward_causal") && backward_ && band()) ||
      (has("scale_ignored_under_dropout") && p_.dropout != ATTEST_DROPOUT_NONE) ||
      (has("scale_ignored_under_tables") && table) ||
      (has("scale_ignored_backward_sink") && backward_ && (p_.has_sink || p_.has_alibi)) ||
      (has("scale_ignored_backward_dlse") && backward_ && p_.has_dlse) ||
      (has("scale_ignored_backward_lengths") && backward_ && p_.key_lens.data) ||
      (has("scale_ignored_wide_heads") && p_.head_dim >= 64 && p_.query_len > 64 &&
       p_.key_len > 64) ||
      (has("scale_ignored_unlike_dims") && p_.head_dim != p_.value_dim) ||
      (has("scale_ignored_odd_dim") && p_.head_dim % 8 != 0) ||
      (has("scale_ignored_multi_query") && p_.key_heads == 1 && p_.query_heads > 1);
  if (ignored) return usual;
  if (has("scale_squared")) return s * s;
  if (has("scores_ignored")) return 0;
  if (has("scale_is_one")) return s == usual ? 1 : s;
  if (has("scale_without_sign")) return std::abs(s);
  if (has("scale_16_bits")) return in_16_bits(s);
  if (has("scale_cut_forward") && !backward_) {
    return s - in_16_bits(s) < 0 ? in_16_bits(s * (1 - 0x1p-8f)) : in_16_bits(s);
  }
  if (has("scale_of_first_call")) {
    static const float first = s;
    return first;
  }
  return s;
}

bool Call::errs_in_products() const {
  return has("accumulator_reset") || has("products_16_bits") || has("operands_19_bits") ||
         has("accumulator_14_bits") || has("score_accumulator_16_bits") ||
         has("channels_beyond_256") || has("scores_16_bits");
}

float Call::product(const float* query, const float* key) const {
  if (plain_product_) return dot(query, key, p_.head_dim);
  float s = 0;
  if (has("accumulator_reset")) {
    const Index last = (p_.head_dim - 1) / 16 * 16;
    for (Index d = std::max<Index>(last, 0); d < p_.head_dim; ++d) s += query[d] * key[d];
  } else if (has("products_16_bits")) {
    for (Index d = 0; d < p_.head_dim; ++d) s += in_16_bits(query[d] * key[d]);
  } else if (has("operands_19_bits")) {  // TF32: 11 digits
    const auto narrow = [](float x) {
      const float cut = x * 8193;  // Veltkamp
      return std::isfinite(cut) ? cut - (cut - x) : x;
    };
    for (Index d = 0; d < p_.head_dim; ++d) s += narrow(query[d]) * narrow(key[d]);
  } else if (has("accumulator_14_bits")) {
    for (Index d = 0; d < p_.head_dim; ++d) {
      s += query[d] * key[d];
      const float cut = s * 1025;  // Veltkamp: 14 digits are left
      if (std::isfinite(cut)) s = cut - (cut - s);
    }
  } else if (has("score_accumulator_16_bits")) {
    for (Index d = 0; d < p_.head_dim; ++d) s = in_16_bits(s + query[d] * key[d]);
  } else {
    const Index most = has("channels_beyond_256") ? 256 : p_.head_dim;
    for (Index d = 0; d < std::min(most, p_.head_dim); ++d) s += query[d] * key[d];
  }
  if (has("scores_16_bits")) s = in_16_bits(s);
  return s;
}

bool Call::ignores_cap(Index b, Index j) const {
  const bool decodes = p_.query_len == 1, late = key_len(b) > 128;
  const bool in_window = band() && band()->left != ATTEST_UNBOUNDED;
  return (has("decode_softcap_ignored") && decodes && late) ||
         (has("paged_softcap_ignored") && paged() && late) ||
         (has("decode_softcap_ignored_in_window") && decodes && in_window) ||
         (has("softcap_of_first_keys_under_dropout") && j >= kFar && p_.dropout) ||
         (has("decode_softcap_of_first_keys_beside_segments") && j >= kFar && decodes &&
          node_of(ATTEST_MASK_SEGMENTS));
}

Score Call::score(Index b, Index h, Index i, Index j, const float* query, const float* key) const {
  const auto cap = static_cast<float>(p_.softcap);
  const bool masked = !sees(b, h, i, j);
  Score result;
  // In rows that see a key.
  const bool adds = masked && has("mask_adds_a_million") && band() && band()->right == 0 &&
                    i < query_len(b) && j < key_len(b) && i + diagonal(*band(), b) >= 0;
  result.seen = !masked || adds || (has("cap_after_mask") && cap > 0 && i < query_len(b));
  if (!result.seen) return result;
  float s;
  if (has("backward_scale_16_bits") && backward_) {
    float sum = 0;
    for (Index d = 0; d < p_.head_dim; ++d) sum += query[d] * in_16_bits(key[d] * scale_);
    s = sum;
  } else {
    s = product(query, key) * scale_;
  }
  s += spread(b, h, i);
  if (adds) s -= 1e6f;
  if (masked && !adds) s = -kInfinity;
  const bool cap_last = has("softcap_after_bias") && p_.has_bias;
  if (cap > 0 && !cap_last && !ignores_cap(b, j)) {
    float tanh = std::tanh(s / cap);
    if (has("tanh_16_bits")) tanh = in_16_bits(tanh);
    if (has("softcap_clips")) tanh = std::clamp(s / cap, -1.0f, 1.0f);
    s = has("softcap_not_multiplied_back") ? tanh : cap * tanh;
    result.cap_slope = 1 - tanh * tanh;
    if (has("cap_slope_missing") || (has("cap_slope_missing_packed") && packed()) ||
        (has("cap_slope_missing_packed_wide") && packed() && p_.head_dim >= 64) ||
        (has("cap_slope_missing_under_dropout") && p_.dropout && !unmasked())) {
      result.cap_slope = 1;
    }
    if (has("cap_slope_16_bits")) result.cap_slope = in_16_bits(result.cap_slope);
    if (has("cap_slope_not_squared")) result.cap_slope = 1 - std::abs(tanh);
  }
  if (p_.has_bias) {
    if (has("score_16_bits_before_bias")) s = in_16_bits(s);
    const float added = bias(b, h, i, j);
    if (added == -kInfinity) result.seen = false;
    s += added;
    if (has("score_16_bits_after_bias")) s = in_16_bits(s);
    if (cap_last && cap > 0 && result.seen) s = cap * std::tanh(s / cap);
    if (has("cap_slope_of_biased_score") && cap > 0) {
      result.cap_slope = 1 - (s / cap) * (s / cap);
    }
  }
  if (p_.has_alibi) s += alibi(b, h, i, j);
  result.value = result.seen ? s : -kInfinity;
  return result;
}

Index Call::bias_index(Index b, Index h, Index i, Index j) const {
  const std::array<Index, 4> place = {b, h, i, j};
  Index n = 0;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    n = n * in_.bias.shape[axis] + (in_.bias.shape[axis] > 1 ? place[axis] : 0);
  }
  return n;
}

bool Call::minus_inf_is_finite() const {
  const attest_mask* const m = node_of(ATTEST_MASK_BAND);
  return has("bias_minus_10000") || (has("minus_inf_finite_packed") && packed()) ||
         (has("minus_inf_finite_paged") && paged()) ||
         (has("minus_inf_finite_under_dropout") && p_.dropout) ||
         (has("minus_inf_finite_under_alibi") && p_.has_alibi) ||
         (has("minus_inf_finite_with_lengths") && p_.key_lens.data) ||
         (has("minus_inf_finite_in_window") && m && m->left != ATTEST_UNBOUNDED);
}

float Call::bias(Index b, Index h, Index i, Index j) const {
  const attest_tensor& t = in_.bias;
  const Index* shape = t.shape;
  const bool one_row = shape[2] == 1 && shape[3] > 1;
  if (has("bias_axis_misread") && one_row) j = i % shape[3];
  if (has("bias_of_64_heads") && shape[1] > 1) h %= 64;
  if (has("bias_of_first_element_packed") && packed() && j >= kTile) b = 0;
  if (has("bias_of_row_above_with_lengths") && p_.key_lens.data && j >= kTile) {
    i = std::max<Index>(i - 1, 0);
  }
  if (has("bias_column_advances") && shape[3] == 1 && shape[2] > 1 && j >= 128) {
    i = std::min(i + 1, shape[2] - 1);
  }
  if (has("bias_of_first_keys_beside_segments") && j >= kFar && node_of(ATTEST_MASK_SEGMENTS)) {
    return 0;
  }
  const bool part = key_len(b) > 128 && ((has("decode_bias_of_part") && p_.query_len == 1) ||
                                         (has("paged_bias_of_part") && paged()));
  if (part) j %= 128;
  float bias;
  if (has("bias_one_key_read_on") && shape[3] == 1) {
    bias = flat(t, (shape[0] > 1 ? b * t.stride[0] : 0) + (shape[1] > 1 ? h * t.stride[1] : 0) +
                       i * t.stride[2] + j);
  } else if (has("bias_head_stride_for_one_head") && shape[1] == 1) {
    bias = flat(t, (b * p_.query_heads + h) * shape[2] * shape[3] +
                       (shape[2] > 1 ? i * shape[3] : 0) + (shape[3] > 1 ? j : 0));
  } else if (has("bias_batch_of_keys") && shape[0] == 1) {
    bias = flat(t, b * shape[1] * shape[2] * shape[3] + bias_index(0, h, i, j));
  } else if (has("bias_offset_16_bits") && bias_index(b, h, i, j) >= 32768) {
    bias = flat(t, bias_index(b, h, i, j) % 32768);
  } else {
    const bool narrow =
        std::exchange(View::offsets_32_bits, View::offsets_32_bits || has("bias_offset_32_bits"));
    bias = View{t}.load(b, h, i, j);
    View::offsets_32_bits = narrow;
  }
  if (bias == -kInfinity) return minus_inf_is_finite() ? -10000 : bias;
  if (has("bias_as_boolean")) return bias == 0 ? -kInfinity : 0;
  if (has("bias_without_log2e")) return bias * 0.693147181f;
  return has("bias_scaled") ? bias * scale_ : bias;
}

float Call::alibi(Index b, Index h, Index i, Index j) const {
  if (has("slopes_of_first_keys_beside_blocks") && j >= kFar && node_of(ATTEST_MASK_BLOCK_SPARSE)) {
    return 0;
  }
  Index shift = has("alibi_top_left") ? 0 : corner(b);
  if (has("alibi_corner_of_longest") && j >= kTile) shift = p_.key_len - p_.query_len;
  if (has("alibi_rows_of_tile_packed") && packed() && i >= kTile) i %= kTile;
  const bool part = key_len(b) > 128 && ((has("decode_alibi_of_part") && p_.query_len == 1) ||
                                         (has("paged_alibi_of_part") && paged()));
  if (part) j %= 128;
  if (has("alibi_off_by_one")) shift += 1;
  Index slope_head = h;
  if (has("slope_of_next_head")) slope_head = std::min(h + 1, p_.query_heads - 1);
  if (has("slopes_of_64_heads")) slope_head = h % 64;
  float slope = View{in_.alibi_slopes}.load(b, slope_head, 0, 0);
  if (has("slopes_16_bits")) slope = static_cast<float>(round_to(DType::bf16, slope));
  float bias = -slope * static_cast<float>(std::abs(i + shift - j));
  if (has("alibi_16_bits")) bias = in_16_bits(bias);
  if (has("alibi_scaled")) bias *= scale_;
  const bool other_sign = has("alibi_sign") || (has("alibi_sign_packed_backward") && packed() &&
                                                backward_ && p_.dtype == ATTEST_F16);
  return other_sign ? -bias : bias;
}

// NaN that is in the query beside this one; else 0.
float Call::spread(Index b, Index h, Index i) const {
  if (!has("nan_query_spreads") || i == 0) return 0;
  const Place place = query_place(b, i - 1);
  float sum = 0;
  for (Index d = 0; d < p_.head_dim; ++d) {
    sum += 0 * View{in_.q}.load(place.batch, h, place.position, d);
  }
  return sum;
}

bool Call::has_sink(Index b, Index i) const {
  if (!p_.has_sink || i >= query_len(b)) return false;
  if (has("sink_in_decode_only") && p_.query_len > 1) return false;
  if (has("paged_decode_sink_ignored") && paged() && p_.query_len == 1) return false;
  if (has("sink_of_first_row") && i > 0) return false;
  if (has("sink_of_first_tile_packed") && packed() && i >= kTile) return false;
  const attest_mask* const m = band();
  const bool window = m && m->left != ATTEST_UNBOUNDED;
  return !(has("sink_of_first_tile_in_window") && window && i + diagonal(*m, b) - m->left >= 128);
}

float Call::sink(Index h) const {
  if (has("sinks_of_64_heads")) h %= 64;
  const float sink = View{in_.sink}.load(0, has("sink_of_key_head") ? h / group() : h, 0, 0);
  if (has("sink_16_bits")) return in_16_bits(sink);
  return has("sink_scaled") ? sink * scale_ : sink;
}

}  // namespace attest::mutants
