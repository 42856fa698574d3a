// Which keys a row sees, and the faults of masks.
#include "tests/mutants/call.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace attest::mutants {

const attest_mask* Call::band() const {
  return p_.mask_count == 1 && p_.mask[0].kind == ATTEST_MASK_BAND ? p_.mask : nullptr;
}

const attest_mask* Call::node_of(attest_mask_kind kind) const {
  for (Index n = 0; n < p_.mask_count; ++n) {
    if (p_.mask[n].kind == kind) return &p_.mask[n];
  }
  return nullptr;
}

Index Call::diagonal(const attest_mask& m, Index b) const {
  bool bottom_right = m.anchored_bottom_right;
  if (has("top_left")) bottom_right = false;
  if (has("bottom_right")) bottom_right = true;
  if (has("window_at_bottom_right") && m.left != ATTEST_UNBOUNDED) bottom_right = true;
  Index offset = m.offset;
  if (has("offset_dropped")) offset = 0;
  if (has("offset_32_bits")) offset = static_cast<std::int32_t>(offset);
  return offset + (bottom_right ? corner(b) : 0);
}

bool Call::sees(Index b, Index h, Index i, Index j) const {
  if (i >= query_len(b)) return false;
  if (!regular_ && overlooks(b, h, i, j)) return false;
  if (p_.mask_count == 0 || (!regular_ && reveals(b, i, j))) return true;
  return allows(p_.mask_count - 1, b, h, i, j);
}

bool Call::sees_nothing(const attest_mask& m) const {
  for (Index b = 0; b < p_.batch; ++b) {
    const Index shift = diagonal(m, b);
    const bool before = m.right != ATTEST_UNBOUNDED && query_len(b) - 1 + shift + m.right < 0;
    if (!before && (m.left == ATTEST_UNBOUNDED || shift - m.left < key_len(b))) return false;
  }
  return true;
}

// Whether the tiles of keys end before this one's, because one began with a larger number than any
// of the tile of queries has.
bool Call::past_sorted_segments(const attest_mask& m, Index b, Index i, Index j) const {
  const auto number = [&](const attest_tensor& table, Index n) {
    return entry<std::int32_t>(table, {b, 0, n, 0});
  };
  std::int32_t largest = INT32_MIN;
  const Index first = i / kTile * kTile;
  for (Index n = first; n < std::min(first + kTile, query_len(b)); ++n) {
    largest = std::max(largest, number(m.table, n));
  }
  for (Index n = 0; n <= j; n += kTile) {
    if (number(m.table2, n) > largest) return true;
  }
  return false;
}

// Keys that a fault leaves out, whatever the mask says.
// By the first and the last number of the tiles of queries and keys that a pair is in.
bool Call::apart_by_their_ends(const attest_mask& m, Index b, Index i, Index j) const {
  constexpr Index kSide = 40;
  const auto ends = [&](const attest_tensor& table, Index n, Index whole) {
    const Index first = n / kSide * kSide, last = std::min(first + kSide, whole) - 1;
    return std::minmax({entry<std::int32_t>(table, {b, 0, first, 0}),
                        entry<std::int32_t>(table, {b, 0, last, 0})});
  };
  const auto queries = ends(m.table, i, query_len(b)), keys = ends(m.table2, j, key_len(b));
  return queries.second < keys.first || keys.second < queries.first;
}

bool Call::is_second_tile_of_long_square(Index i, Index j) const {
  return i >= 2048 && j / 64 == 1 && p_.query_len == p_.key_len && p_.query_len % 128 == 0;
}

bool Call::overlooks(Index b, Index h, Index i, Index j) const {
  if (has("last_key_dropped")) return j == p_.key_len - 1;
  if (has("key_before_65536_lost")) return j % 65536 == 65535;
  if (has("odd_groups_lose_a_key")) {
    return few_queries(b) && query_len(b) > 1 && group() % 2 == 1 && group() > 1 &&
           key_len(b) % kTile == 1 && j == key_len(b) - 1;
  }
  if (has("keys_lost_beside_prefix_and_sink")) {
    return j >= kFar && p_.has_sink && node_of(ATTEST_MASK_PREFIX);
  }
  if (has("key_96_lost_in_a_capped_union")) {
    return j == kFar && p_.softcap > 0 && node_of(ATTEST_MASK_ANY_OF);
  }
  if (has("tile_lost_in_long_squares")) return is_second_tile_of_long_square(i, j);
  if (j >= 4096) {
    if (has("keys_beyond_4096_of_later_heads")) return h > 0;
    if (has("keys_beyond_4096_of_odd_groups")) return group() > 1 && group() % 2 == 1;
    if (has("keys_beyond_4096_of_wide_heads")) return p_.head_dim > 72;
    if (has("keys_beyond_4096_in_pages")) return paged();
  }
  if (has("cross_attention_causal")) {
    return unmasked() && p_.query_len != p_.key_len && j > i + corner(b);
  }
  if (has("always_causal")) return j > i;
  if (has("always_causal_backward")) return backward_ && unmasked() && j > i;
  if (has("uneven_shards_cut")) return key_len(b) > 4 && j >= key_len(b) / 4 * 4;
  if (has("page_slots_beyond_32")) return paged() && j % p_.page_size >= 32;
  if (has("last_page_skipped") && paged() && p_.page_size < 32) {
    const Index padded = j / p_.page_size * 32 + j % p_.page_size;
    return padded >= round_up(key_len(b), 32);
  }
  const attest_mask* const m = band();
  if (!m) {
    const attest_mask* const segments = node_of(ATTEST_MASK_SEGMENTS);
    if (has("segments_taken_for_sorted") && segments && (packed() || paged()) &&
        query_len(b) > kTile) {
      return past_sorted_segments(*segments, b, i, j);
    }
    if (has("tiles_skipped_by_the_ends_of_segments") && segments) {
      return apart_by_their_ends(*segments, b, i, j);
    }
    if (!has("segment_ranges_of_first_element") || !segments) return false;
    // A tile is skipped where the numbers of its queries and of its keys lie apart.
    const auto range = [&](const attest_tensor& table, Index first, Index end) {
      std::pair<std::int32_t, std::int32_t> found = {INT32_MAX, INT32_MIN};
      for (Index n = first; n < std::min(first + kTile, end); ++n) {
        const auto number = entry<std::int32_t>(table, {0, 0, n, 0});
        found = {std::min(found.first, number), std::max(found.second, number)};
      }
      return found;
    };
    const auto queries = range(segments->table, i / kTile * kTile, query_len(0));
    const auto keys = range(segments->table2, j / kTile * kTile, key_len(0));
    const bool any = queries.first <= queries.second && keys.first <= keys.second;
    return any && (queries.second < keys.first || keys.second < queries.first);
  }
  const bool two_sided = m->left != ATTEST_UNBOUNDED && m->right != ATTEST_UNBOUNDED;
  if (has("first_keys_skipped")) return m->anchored_bottom_right && j < corner(b);
  if (has("causal_bound_for_window")) {
    const Index last_row = i / kTile * kTile + kTile - 1;
    return two_sided && m->right > 0 && j / kTile * kTile > last_row + diagonal(*m, b);
  }
  if (has("half_tile_at_window_start") && m->left != ATTEST_UNBOUNDED) {
    const Index start = i + diagonal(*m, b) - m->left;
    return start >= 0 && start % 32 == 15 && j == start;
  }
  if (has("packed_rows_floored") && m->right != ATTEST_UNBOUNDED && group() > 1) {
    // Heads of a group are rows of a tile: row i * group + head.
    const Index row = i * group() + h % group();
    const Index end = std::min((row / kTile + 1) * kTile, query_len(b) * group());
    return j >= end / group() + diagonal(*m, b) + m->right && end % group() != 0;
  }
  const bool by_longest = (has("tiles_skipped_by_longest") && !packed()) ||
                          (has("tiles_skipped_by_longest_backward") && !packed() && backward_) ||
                          (has("tiles_skipped_by_longest_packed") && packed()) ||
                          (has("packed_tiles_skipped_backward") && packed() && backward_);
  if (by_longest && m->anchored_bottom_right) {
    const Index shift = m->offset + p_.key_len - p_.query_len;
    const Index row = i / kTile * kTile, key = j / kTile * kTile;
    if (m->right != ATTEST_UNBOUNDED && key > row + kTile - 1 + shift + m->right) return true;
    return m->left != ATTEST_UNBOUNDED && key + kTile - 1 < row + shift - m->left;
  }
  return false;
}

// Keys that a fault shows, whatever the mask says.
bool Call::reveals(Index b, Index i, Index j) const {
  if (has("sink_tokens_unmasked")) {
    const attest_mask* const prefix = node_of(ATTEST_MASK_PREFIX);
    return prefix && node_of(ATTEST_MASK_BAND) && i > 0 &&
           j < entry<Index>(prefix->table, {b, 0, 0, 0});
  }
  if (has("lone_blocks_ignored")) {
    return p_.mask_count == 1 && p_.mask[0].kind == ATTEST_MASK_BLOCK_SPARSE;
  }
  if (has("causal_needs_a_table")) return causal();
  if (has("causal_needs_several_tiles")) return causal() && p_.key_len <= kTile;
  if (has("causal_fallback")) return causal() && p_.key_len % 16 != 0;
  if (has("one_query_is_not_causal")) return causal() && p_.query_len == 1;
  if (has("paged_causal_ignored")) return band() && paged() && key_len(b) > 128;
  if (has("window_ignored_in_prefill")) {
    return band() && p_.query_len == p_.key_len && band()->left != ATTEST_UNBOUNDED &&
           (band()->right == ATTEST_UNBOUNDED || j <= i + diagonal(*band(), b) + band()->right);
  }
  return false;
}

bool Call::allows(Index node, Index b, Index h, Index i, Index j) const {
  const attest_mask& m = p_.mask[node];
  switch (m.kind) {
    case ATTEST_MASK_BAND:
      return allows_band(m, b, h, i, j);
    case ATTEST_MASK_DENSE: {
      if (has("dense_mask_of_first_512_keys") && j >= 512) return true;
      if (has("dense_mask_of_first_tile_at_128") && p_.head_dim == 128 && j >= kTile) return true;
      if (has("dense_mask_of_first_keys_beside_segments") && j >= kFar &&
          node_of(ATTEST_MASK_SEGMENTS)) {
        return true;
      }
      if (has("wide_paged_decode_mask_ignored") && p_.head_dim == 128 && p_.query_len == 1 &&
          paged()) {
        return true;
      }
      if (has("dense_mask_of_first_element") && (p_.key_lens.data || p_.cu_key_lens.data) &&
          j >= kTile) {
        b = 0;
      }
      if (has("mask_transposed")) {
        return entry<std::uint8_t>(m.table, {b, h, std::min(j, m.table.shape[2] - 1),
                                             std::min(i, m.table.shape[3] - 1)}) != 0;
      }
      if (has("mask_offset_16_bits") && m.table.shape[3] > 1 && m.table.shape[2] > 1) {
        const Index n = (i * m.table.shape[3] + j) % 65536;
        i = n / m.table.shape[3];
        j = n % m.table.shape[3];
      }
      if (has("mask_pitch_of_length") && m.table.shape[3] > 1 && m.table.shape[2] > 1) {
        const Index n = i * key_len(b) + j;
        i = n / m.table.shape[3];
        j = n % m.table.shape[3];
      }
      return (entry<std::uint8_t>(m.table, {b, h, i, j}) != 0) != has("dense_inverted");
    }
    case ATTEST_MASK_PREFIX:
      if (has("wide_packed_decode_prefix_ignored") && p_.head_dim >= 64 && p_.query_len == 1 &&
          packed()) {
        return true;
      }
      return j < entry<Index>(m.table, {b, 0, 0, 0}) + has("prefix_inclusive");
    case ATTEST_MASK_SEGMENTS:
      return allows_segments(m, b, i, j);
    case ATTEST_MASK_BLOCK_SPARSE: {
      const bool exchanged = has("blocks_exchanged");
      const Index rows = exchanged ? m.block_key : m.block_query;
      const Index columns = exchanged ? m.block_query : m.block_key;
      if (has("blocks_from_the_end") && b > 0) j += p_.key_len - key_len(b);
      return entry<std::uint8_t>(m.table, {b, h, std::min(i / rows, m.table.shape[2] - 1),
                                           std::min(j / columns, m.table.shape[3] - 1)}) != 0;
    }
    case ATTEST_MASK_DILATED: {
      const Index ahead = j - (i + diagonal(m, b));
      return has("dilation_unsigned")
                 ? static_cast<std::uint64_t>(ahead) % static_cast<std::uint64_t>(m.dilation) == 0
                 : ahead % m.dilation == 0;
    }
    case ATTEST_MASK_ALL_OF:
      if (has("second_of_two_masks")) return allows(m.second, b, h, i, j);
      return allows(m.first, b, h, i, j) && allows(m.second, b, h, i, j);
    case ATTEST_MASK_ANY_OF:
      return has("union_as_intersection")
                 ? allows(m.first, b, h, i, j) && allows(m.second, b, h, i, j)
                 : allows(m.first, b, h, i, j) || allows(m.second, b, h, i, j);
    default:
      return true;
  }
}

bool Call::allows_band(const attest_mask& m, Index b, Index h, Index i, Index j) const {
  Index left = m.left, right = m.right;
  const bool from_left = left != ATTEST_UNBOUNDED, to_right = right != ATTEST_UNBOUNDED;
  const bool window = from_left;
  const Index shift = diagonal(m, b);
  if (regular_) {
    return (!from_left || j - (i + shift) >= -left) && (!to_right || j - (i + shift) <= right);
  }
  const attest_mask* table = node_of(ATTEST_MASK_DENSE);
  if (has("diagonal_of_a_shared_table") && table && table->table.shape[2] == 1) i = 0;
  if (has("right_cut_to_the_keys") && window && to_right) right = std::min(right, key_len(b));
  if (has("diagonal_of_next_row_in_odd_groups") && few_queries(b) && group() % 2 == 1 &&
      key_len(b) % kTile == kTile - 1 && h % group() == group() - 1 && group() > 1) {
    i = std::min(i + 1, query_len(b) - 1);
  }
  const Index cached = key_len(b) - query_len(b);  // keys before the first query's own
  if (has("columns_16_bits")) j = static_cast<std::int16_t>(j);
  if (has("diagonal_wraps") && to_right && i + shift + right < 0) return true;
  if (has("causal_per_four_rows") && narrow_format() && to_right) i = i | 3;
  if (has("head_as_position") && p_.query_len == 1 && p_.key_heads == 1 && window) i = h;
  if (has("window_exclusive")) left -= from_left;
  if (has("rare_window") && m.left == 3 && p_.query_len % 32 == 15) left -= 1;
  if (has("window_one_more")) left += from_left;
  if (has("window_short_in_decode") && p_.query_len == 1) left -= from_left && left > 0;
  if (has("window_one_more_in_cache") && j < cached) left += from_left;
  if (has("left_32_bits") && from_left) left = static_cast<std::int32_t>(left);
  const Index ahead = j - (i + shift);
  bool allowed = !from_left || ahead >= -left;
  if (has("window_of_new_keys_only") && j < cached) allowed = true;
  if (has("paged_window_ignored") && paged() && key_len(b) > 128) allowed = true;
  if (has("paged_decode_window_ignored") && paged() && p_.query_len == 1) allowed = true;
  const bool no_right = (has("window_right_ignored") && window && right > 0) ||
                        (has("window_right_zero_dropped") && window && right == 0);
  return allowed && (!to_right || no_right || ahead <= right);
}

bool Call::allows_segments(const attest_mask& m, Index b, Index i, Index j) const {
  const Index before = has("segment_boundary") && i > 0;
  const auto query = entry<std::int32_t>(m.table, {b, 0, i - before, 0});
  const auto key = entry<std::int32_t>(m.table2, {b, 0, j, 0});
  if (has("segments_ignored_if_causal") && node_of(ATTEST_MASK_BAND)) return true;
  if (has("decode_segments_ignored") && p_.query_len == 1 && key_len(b) > 128) return true;
  const bool real = query >= 0 || has("negative_segments");
  if (has("segments_as_floats")) {
    return real && static_cast<float>(query) == static_cast<float>(key);
  }
  if (has("segments_16_bits")) {
    return real && static_cast<std::int16_t>(query) == static_cast<std::int16_t>(key);
  }
  return real && query == key;
}

}  // namespace attest::mutants
