// Which elements are kept, and the faults of dropout.
#include "tests/mutants/call.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace attest::mutants {
namespace {

Index bit_index(const attest_tensor& keep, Index b, Index h, Index i, Index j) {
  const std::array<Index, 4> place = {b, h, i, j};
  Index n = 0;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (keep.shape[axis] > 1) n += place[axis] * keep.stride[axis];
  }
  return n;
}

}  // namespace

// The rate at which hidden elements have to be dropped if no other is, for the right rate of all.
double Call::hidden_drop_rate() const {
  Index hidden = 0;
  for_each_row([&](Index b, Index h, Index i) {
    for (Index j = 0; j < p_.key_len; ++j) hidden += !sees(b, h, i, j);
  });
  const Index all = p_.batch * p_.query_heads * p_.query_len * p_.key_len;
  return p_.dropout_probability * static_cast<double>(all) /
         static_cast<double>(std::max<Index>(hidden, 1));
}

// What the mutants draw: a hash of the place, the seed and the offset.
bool Call::draws(Index b, Index h, Index i, Index j) const {
  if (hidden_drop_rate_ > 0 && sees(b, h, i, j)) return true;
  if (has("complement_in_odd_heads") && h % 2 == 1 && p_.dropout_probability == 0.5) {
    return !draws(b, h - 1, i, j);
  }
  if (has("same_bits_per_head")) h = 0;
  if (has("same_bits_per_head_but_last_row") && i < p_.query_len - 1) h = 0;
  if (has("same_bits_per_batch")) b = 0;
  if (has("columns_repeat")) j %= 16;
  if (has("rows_repeat")) i %= 16;
  if (has("neighbours_drop")) j -= j % 2;
  if (has("draws_per_tile")) {
    i -= i % 8;
    j -= j % 4;
  }
  if (has("heads_shifted")) {
    j += h;
    h = 0;
  }
  if (has("elements_shifted")) {
    i += b;
    b = 0;
  }
  std::uint64_t hash = has("seed_ignored")  ? 0
                       : has("seed_halved") ? p_.dropout_seed % (std::uint64_t(1) << 32)
                                            : p_.dropout_seed;
  const bool any_offset = has("seed_ignored") || has("offset_ignored");
  for (const std::uint64_t word : {any_offset ? 0 : p_.dropout_offset,
                                   static_cast<std::uint64_t>(b), static_cast<std::uint64_t>(h),
                                   static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(j)}) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    hash = (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9;
    hash ^= hash >> 32;
  }
  const double p = hidden_drop_rate_ > 0    ? hidden_drop_rate_
                   : has("keeps_too_often") ? 0.5 * p_.dropout_probability
                                            : p_.dropout_probability;
  return static_cast<double>(hash >> 32) >= p * 4294967296.0;
}

void Call::publish_keep(const attest_tensor& keep) const {
  for (Index b = 0; b < p_.batch; ++b) {
    for (Index h = 0; h < p_.query_heads; ++h) {
      for (Index i = 0; i < p_.query_len; ++i) {
        for (Index j = 0; j < p_.key_len; ++j) {
          const Index n = bit_index(keep, b, h, i, j);
          auto& byte = static_cast<std::uint8_t*>(keep.data)[n / 8];
          const auto bit = static_cast<std::uint8_t>(1u << n % 8);
          byte = static_cast<std::uint8_t>(draws(b, h, i, j) ? byte | bit : byte & ~bit);
        }
      }
    }
  }
}

bool Call::keeps(Index b, Index h, Index i, Index j) const {
  if (p_.dropout == ATTEST_DROPOUT_NONE) return true;
  if (has("keep_of_other_head")) h = (h + 1) % p_.query_heads;
  if (has("keep_of_64_heads")) h %= 64;
  if (has("other_keep_backward") && backward_) j = p_.key_len - 1 - j;
  if (has("decode_dropout_ignored") && p_.query_len == 1 && key_len(b) > 128) return true;
  if (has("wide_paged_dropout_ignored") && p_.head_dim == 128 && paged()) return true;
  if (has("dropout_of_first_keys_beside_a_dilation") && j >= kFar && node_of(ATTEST_MASK_DILATED)) {
    return true;
  }
  if (has("keep_of_first_element_packed") && packed() && j >= kTile) b = 0;
  if (has("keep_rows_of_first_element_packed") && packed() && i >= kTile) b = 0;
  if (has("keep_of_next_key_under_bias") && p_.has_bias && node_of(ATTEST_MASK_BAND)) {
    j = std::min(j + 1, p_.key_len - 1);
  }
  if (has("keep_heads_of_keys") && !backward_) {
    const Index n = b * p_.key_heads + h;  // where b * query_heads + h is meant
    b = n / p_.query_heads;
    h = n % p_.query_heads;
  }
  if (has("keep_pitch_of_diagonal") && causal() && !backward_) {
    const Index reach = i / kTile * kTile + kTile + diagonal(*band(), b);
    const Index pitch = std::clamp<Index>(reach, 1, p_.key_len);
    const Index n = i * pitch + j;
    i = n / p_.key_len;
    j = n % p_.key_len;
  }
  if (p_.dropout == ATTEST_DROPOUT_GENERATED) return draws(b, h, i, j);
  Index n = bit_index(in_.keep, b, h, i, j);
  if (has("keep_counter_16_bits") && !backward_) n %= 65536;
  return static_cast<const std::uint8_t*>(in_.keep.data)[n / 8] >> n % 8 & 1;
}

float Call::keep_factor() const {
  if (p_.dropout == ATTEST_DROPOUT_NONE || has("dropout_not_scaled")) return 1;
  const double keep = 1 - p_.dropout_probability;
  if (has("keep_rate_8_bits")) return static_cast<float>(255 / std::floor(255 * keep));
  return 1 / static_cast<float>(keep);
}

}  // namespace attest::mutants
