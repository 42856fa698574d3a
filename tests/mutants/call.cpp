#include "tests/mutants/call.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

namespace attest::mutants {
namespace {

template <class T>
T entry(const attest_tensor& table, const std::array<Index, 4>& place) {
  Index offset = 0;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (table.shape[axis] > 1) offset += place[axis] * table.stride[axis];
  }
  return static_cast<const T*>(table.data)[offset];
}

Index integer(const attest_tensor& tensor, Index n) { return entry<Index>(tensor, {n, 0, 0, 0}); }

Index length(const attest_tensor& starts, const attest_tensor& lens, Index b, Index whole) {
  if (!starts.data && !lens.data) return whole;
  const Index found = starts.data ? integer(starts, b + 1) - integer(starts, b) : integer(lens, b);
  return std::clamp<Index>(found, 0, whole);  // one that is misread shall not take all memory
}

Index round_up(Index n, Index multiple) { return (n + multiple - 1) / multiple * multiple; }

std::array<Index, 4> dense_strides(const attest_tensor& t) {
  const Index row = t.dtype == ATTEST_BITS ? round_up(t.shape[3], 8) : t.shape[3];
  const Index plane = t.shape[2] * row;
  return {t.shape[1] * plane, plane, row, 1};
}

Index bit_index(const attest_tensor& keep, Index b, Index h, Index i, Index j) {
  const std::array<Index, 4> place = {b, h, i, j};
  Index n = 0;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (keep.shape[axis] > 1) n += place[axis] * keep.stride[axis];
  }
  return n;
}

// The element of a dense tensor's memory at `n`, which a fault may have put beyond its end.
float flat(const attest_tensor& t, Index n) {
  const auto dtype = static_cast<DType>(t.dtype);
  const Index bytes = format_of(dtype).bytes;
  const Index last = static_cast<Index>(t.capacity_bytes) / bytes - 1;
  return static_cast<float>(
      load(dtype, static_cast<std::byte*>(t.data) + std::clamp<Index>(n, 0, last) * bytes));
}

}  // namespace

// ---- Tensors ------------------------------------------------------------------------------------

std::byte* View::at(Index b, Index h, Index s, Index d) const {
  const std::array<Index, 4> place = {b, h, s, d};
  Index offset = 0;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (t.shape[axis] > 1) offset += place[axis] * t.stride[axis];
  }
  if (offsets_32_bits) offset = static_cast<std::uint32_t>(offset);
  return static_cast<std::byte*>(t.data) + offset * format_of(static_cast<DType>(t.dtype)).bytes;
}

float View::load(Index b, Index h, Index s, Index d) const {
  return static_cast<float>(attest::load(static_cast<DType>(t.dtype), at(b, h, s, d)));
}

void View::store(Index b, Index h, Index s, Index d, float value) const {
  attest::store(static_cast<DType>(t.dtype), value, at(b, h, s, d));
}

Loaded::Loaded(const attest_tensor& t) : shape_{t.shape[0], t.shape[1], t.shape[2], t.shape[3]} {
  const View view{t};
  values_.reserve(mutants::at(elements(t)));
  for (Index b = 0; b < shape_[0]; ++b) {
    for (Index h = 0; h < shape_[1]; ++h) {
      for (Index s = 0; s < shape_[2]; ++s) {
        for (Index d = 0; d < shape_[3]; ++d) values_.push_back(view.load(b, h, s, d));
      }
    }
  }
}

std::vector<float> Loaded::row_of_pitch(Index b, Index h, Index s, Index pitch) const {
  std::vector<float> row(mutants::at(shape_[3]));
  const Index first = ((b * shape_[1] + h) * shape_[2] + s) * pitch;
  for (Index d = 0; d < shape_[3]; ++d) {
    const Index n = std::min(first + d, static_cast<Index>(values_.size()) - 1);
    row[mutants::at(d)] = values_[mutants::at(n)];
  }
  return row;
}

// What a tensor is taken for, whose strides a fault misreads; else as it is.
static attest_tensor misread(const Call& call, attest_tensor t, char name) {
  const std::array<Index, 4> dense = dense_strides(t);
  const bool all_dense = (call.has("pages_taken_for_dense") && call.paged() && name != 'q') ||
                         (call.has("dense_for_64_channels") && t.shape[3] == 64);
  if (all_dense) std::copy(dense.begin(), dense.end(), t.stride);
  for (Index& stride : t.stride) {
    if (call.has("strides_32_bits")) stride = static_cast<std::uint32_t>(stride);
  }
  if (call.has("heads_and_batch_flattened") && name == 'q') {
    t.stride[0] = t.shape[1] * t.stride[1];
  }
  if (call.has("channels_taken_for_adjacent") && name == 'v') t.stride[3] = 1;
  return t;
}

// A window as it is declared, and misread.
void read_window(FaultId fault, attest_mask& node) {
  const bool causal = node.left == ATTEST_UNBOUNDED && node.right == 0;
  if (node.kind != ATTEST_MASK_BAND || causal) return;
  if (fault == "exclusive_window_read_as_inclusive" && node.right != ATTEST_UNBOUNDED) --node.right;
  if (fault == "unlimited_window_read_as_none" && node.right == 0) node.right = ATTEST_UNBOUNDED;
}

Told::Told(FaultId fault, const attest_problem& p, const attest_inputs& in,
           const attest_outputs& out)
    : nodes(p.mask, p.mask + p.mask_count), problem(p), inputs(in), outputs(out) {
  for (attest_mask& node : nodes) read_window(fault, node);
  const auto take_for_dense = [fault](FaultId wanted, attest_tensor& t) {
    if (fault != wanted || !t.data) return;
    const std::array<Index, 4> dense = dense_strides(t);
    std::copy(dense.begin(), dense.end(), t.stride);
  };
  for (attest_mask& node : nodes) {
    if (node.kind == ATTEST_MASK_DENSE) take_for_dense("dense_mask_table", node.table);
    if (node.kind == ATTEST_MASK_PREFIX) take_for_dense("dense_prefix", node.table);
    if (node.kind == ATTEST_MASK_SEGMENTS) take_for_dense("dense_segments", node.table);
    if (node.kind == ATTEST_MASK_SEGMENTS) take_for_dense("dense_segments", node.table2);
    if (node.kind == ATTEST_MASK_BLOCK_SPARSE) take_for_dense("dense_blocks", node.table);
  }
  problem.mask = nodes.data();
  take_for_dense("dense_lengths", problem.query_lens);
  take_for_dense("dense_lengths", problem.key_lens);
  take_for_dense("dense_starts", problem.cu_query_lens);
  take_for_dense("dense_starts", problem.cu_key_lens);
  take_for_dense("dense_page_table", problem.page_table);
  take_for_dense("dense_slopes", inputs.alibi_slopes);
  take_for_dense("dense_sink", inputs.sink);
  take_for_dense("dense_keep", inputs.keep);
  take_for_dense("dense_drawn_keep", outputs.keep);
  take_for_dense("dense_q", inputs.q);
  take_for_dense("dense_k", inputs.k);
  take_for_dense("dense_v", inputs.v);
  take_for_dense("dense_o_backward", inputs.o);
  take_for_dense("dense_do", inputs.d_o);
  take_for_dense("dense_bias", inputs.bias);
  take_for_dense("dense_dlse", inputs.d_lse);
  take_for_dense("dense_dq", outputs.dq);
  take_for_dense("dense_dk", outputs.dk);
  take_for_dense("dense_dv", outputs.dv);
  take_for_dense("dense_dbias", outputs.dbias);
  take_for_dense("dense_dsink", outputs.dsink);
  if (fault == FaultId("keys_of_last_forward")) {
    static std::vector<std::byte> last_k, last_v;
    const auto keep_or_take = [backward = inputs.d_o.data != nullptr](
                                  attest_tensor& t, std::vector<std::byte>& last) {
      const auto* bytes = static_cast<const std::byte*>(t.data);
      if (!backward) {
        last.assign(bytes, bytes + t.capacity_bytes);
      } else if (last.size() == t.capacity_bytes) {
        t.data = last.data();
      }
    };
    keep_or_take(inputs.k, last_k);
    keep_or_take(inputs.v, last_v);
  }
  View::offsets_32_bits = fault == FaultId("offsets_32_bits");
  const Call call(fault, problem, inputs, 1, false);
  inputs.q = misread(call, inputs.q, 'q');
  inputs.k = misread(call, inputs.k, 'k');
  inputs.v = misread(call, inputs.v, 'v');
  if (fault == FaultId("o_by_strides_of_its_gradient") && inputs.d_o.data) {
    std::copy(std::begin(inputs.d_o.stride), std::end(inputs.d_o.stride), inputs.o.stride);
  }
  if (fault == FaultId("dv_by_strides_of_dk") && outputs.dv.data) {
    std::copy(std::begin(outputs.dk.stride), std::end(outputs.dk.stride), outputs.dv.stride);
  }
}

// ---- The call -----------------------------------------------------------------------------------

Call::Call(FaultId fault, const attest_problem& p, const attest_inputs& in, int threads,
           bool backward)
    : fault_(fault), p_(p), in_(in), threads_(threads), backward_(backward) {
  const std::string_view kind = fault.kind();
  regular_ = kind == "control" || kind == "gradient";
  scale_ = scale();
  if (has("keeps_visible") && hidden_drop_rate() <= 1) hidden_drop_rate_ = hidden_drop_rate();
}

float Call::in_16_bits(float x) const {
  return static_cast<float>(round_to(p_.dtype == ATTEST_F16 ? DType::f16 : DType::bf16, x));
}

// ---- Lengths and places -------------------------------------------------------------------------

Index Call::query_len(Index b) const {
  return length(p_.cu_query_lens, p_.query_lens, b, p_.query_len);
}

Index Call::key_len(Index b) const {
  if (has("lengths_of_first_element") && !packed() && !paged()) b = 0;
  const Index real = length(p_.cu_key_lens, p_.key_lens, b, p_.key_len);
  if (paged()) return has("page_tail") ? round_up(real, p_.page_size) : real;
  if (has("odd_lengths_cut") && p_.cu_key_lens.data) return real / 2 * 2;
  const bool whole = has("ignores_lengths") || (has("splits_of_longest") && real > 32);
  return whole && !p_.cu_key_lens.data ? p_.key_len : real;
}

Index Call::corner(Index b) const {
  const Index queries = query_len(b);
  if (has("corner_of_longest")) return p_.key_len - p_.query_len;
  return length(p_.cu_key_lens, p_.key_lens, b, p_.key_len) - queries;
}

Index Call::packed_start(Index b) const {
  return p_.cu_query_lens.data ? integer(p_.cu_query_lens, b) : 0;
}

Place Call::query_place(Index b, Index i) const {
  if (!p_.cu_query_lens.data) return {b, i};
  if (has("one_query_is_an_element") && p_.query_len == 1) {
    return {0, std::min(b, in_.q.shape[2] - 1)};
  }
  return {0, integer(p_.cu_query_lens, b) + i};
}

Place Call::key_place(Index b, Index j) const {
  if (paged()) {
    const attest_tensor& t = p_.page_table;
    const auto page = [&](Index element, Index column) {
      return static_cast<Index>(entry<std::int32_t>(t, {element, column, 0, 0}));
    };
    const Index column = j / p_.page_size, slot = j % p_.page_size;
    if (has("few_keys_without_a_table") && key_len(b) < 16) return {column, slot};
    if (has("pages_adjacent_in_pairs") && column % 2 == 1) {
      return {std::min(page(b, column - 1) + 1, in_.k.shape[0] - 1), slot};
    }
    if (has("page_slots_mod_128")) return {page(b, column), slot % 128};
    if (has("last_slots_of_page_0") && slot >= p_.page_size / 8 * 8) return {0, slot};
    if (has("page_offset_16_bits")) {
      const Index pitch = p_.page_size * p_.head_dim;
      return {(page(b, column) * pitch % 32768) / pitch, slot};
    }
    if (has("table_row_by_lengths")) {
      Index before = 0;
      for (Index e = 0; e < b; ++e) before += integer(p_.key_lens, e);
      const Index n = std::min(before / p_.page_size + column, t.shape[0] * t.shape[1] - 1);
      const Index found = page(n / t.shape[1], n % t.shape[1]);
      return {std::max<Index>(found, 0), slot};
    }
    const Index next = has("next_page") ? page((b + 1) % p_.batch, column) : -1;
    return {next >= 0 ? next : page(b, column), slot};
  }
  if (has("keys_of_first_element") && !p_.cu_key_lens.data) return {0, j};
  if (has("key_65536_reads_the_one_before") && j > 0 && j % 65536 == 0) --j;
  if (has("key_offset_16_bits")) j %= 32768 / std::max<Index>(p_.head_dim, 1);
  if (!p_.cu_key_lens.data) return {b, j};
  const Index start = integer(p_.cu_key_lens, b);
  if (has("packed_decode_from_0") && p_.query_len == 1 && j >= 128) return {0, j};
  if (has("packed_tile_from_0_at_128") && p_.head_dim == 128 && j >= kTile) return {0, j};
  return {0, start + j - (has("packed_off_by_one") && start > 0)};
}

Place Call::value_place(Index b, Index j) const {
  if (has("value_page_late") && paged() && p_.value_dim >= 128) {
    return {key_place(b, j / (2 * p_.page_size) * 2 * p_.page_size).batch, j % p_.page_size};
  }
  return key_place(b, j);
}

Index Call::key_head(Index b, Index h) const {
  const Index last = p_.key_heads - 1;
  const bool wide_decode = p_.head_dim == 128 && p_.query_len == 1;
  const bool paged_prompt = paged() && p_.query_len > 64;
  if (has("heads_interleaved") || (has("heads_interleaved_decode_128") && wide_decode) ||
      (has("heads_interleaved_paged_prompt") && paged_prompt)) {
    return h % p_.key_heads;
  }
  if (has("heads_by_group_backward") && backward_) return std::min(h % group(), last);
  if (has("heads_interleaved_in_pages") && paged()) return h % p_.key_heads;
  if (has("heads_interleaved_packed") && p_.cu_key_lens.data) return h % p_.key_heads;
  if (has("heads_by_splits")) {
    const Index splits = std::clamp<Index>((key_len(b) + 31) / 32, 1, 16);
    return h / (group() * splits);
  }
  return h / group();
}

// ---- Masks --------------------------------------------------------------------------------------

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

bool Call::overlooks(Index b, Index h, Index i, Index j) const {
  if (has("last_key_dropped")) return j == p_.key_len - 1;
  if (has("key_before_65536_lost")) return j % 65536 == 65535;
  if (has("odd_groups_lose_a_key")) {
    return few_queries(b) && query_len(b) > 1 && group() % 2 == 1 && group() > 1 &&
           key_len(b) % kTile == 1 && j == key_len(b) - 1;
  }
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
  const attest_mask* table = node_of(ATTEST_MASK_DENSE);
  if (has("diagonal_of_a_shared_table") && table && table->table.shape[2] == 1) i = 0;
  const Index shift = diagonal(m, b);
  if (regular_) {
    return (!from_left || j - (i + shift) >= -left) && (!to_right || j - (i + shift) <= right);
  }
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

// ---- Dropout ------------------------------------------------------------------------------------

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

// ---- Scores -------------------------------------------------------------------------------------

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

float Call::product(const float* query, const float* key) const {
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

Score Call::score(Index b, Index h, Index i, Index j, const float* query, const float* key) const {
  const auto cap = static_cast<float>(p_.softcap);
  const bool masked = !sees(b, h, i, j);
  Score result;
  result.seen = !masked || (has("cap_after_mask") && cap > 0 && i < query_len(b));
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
  if (masked) s = -kInfinity;
  const bool late = key_len(b) > 128;
  const bool no_cap = late && ((has("decode_softcap_ignored") && p_.query_len == 1) ||
                               (has("paged_softcap_ignored") && paged()));
  const bool in_window = band() && band()->left != ATTEST_UNBOUNDED;
  const bool no_cap_in_window =
      has("decode_softcap_ignored_in_window") && p_.query_len == 1 && in_window;
  const bool cap_last = has("softcap_after_bias") && p_.has_bias;
  if (cap > 0 && !cap_last && !no_cap && !no_cap_in_window) {
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

// ---- Gradients ----------------------------------------------------------------------------------

float Call::delta(const Loaded& o, const Loaded& d_o, Index b, Index h, Index i) const {
  const Place place = query_place(b, i);
  const float* upstream = d_o.row(place.batch, h, place.position);
  const float* output = o.row(place.batch, h, place.position);
  float delta = 0;
  for (Index c = 0; c < p_.value_dim; ++c) delta += upstream[c] * output[c];
  if (has("d_term_missing")) delta = 0;
  if (has("delta_off")) delta *= 1.004f;
  if (has("delta_16_bits")) delta = in_16_bits(delta);
  if (has("delta_without_keep_factor")) delta /= keep_factor();
  if (!p_.has_dlse || has("dlse_dropped")) return delta;
  Index head = h, position = place.position;
  if (has("dlse_of_64_heads") && h >= 64) return delta;
  if (has("dlse_of_first_head") && i >= 128) head = 0;
  if (has("dlse_without_start") && packed() && i >= kTile) position = i;
  float d_lse = View{in_.d_lse}.load(place.batch, head, position, 0);
  if (has("dlse_added")) d_lse = -d_lse;
  if (has("dlse_scaled")) d_lse *= scale_;
  if (has("dlse_16_bits")) d_lse = in_16_bits(d_lse);
  return delta - d_lse;
}

void Call::add_bias_gradient(std::vector<double>& sums, Index b, Index h, Index i, Index j,
                             float ds, float cap_slope) const {
  const Index* shape = in_.bias.shape;
  if (has("dbias_not_summed") && b != p_.batch - 1) return;
  if (has("dbias_of_last_key_tile") && shape[3] == 1 && j < (p_.key_len - 1) / kTile * kTile) {
    return;
  }
  if (has("dbias_of_last_query_tile") && shape[2] == 1 && i < (p_.query_len - 1) / kTile * kTile) {
    return;
  }
  if (has("dbias_rows_of_first_element") && packed() && i >= kTile) b = 0;
  if (has("dbias_scaled")) ds *= scale_;
  if (has("dbias_with_cap_slope")) ds *= cap_slope;
  if (has("dbias_summed_over_batch") && shape[0] > 1) {
    for (Index e = 0; e < shape[0]; ++e) sums[at(bias_index(e, h, i, j))] += ds;
    return;
  }
  sums[at(bias_index(b, h, i, j))] += ds;
}

void Call::add_sink_gradient(std::vector<double>& sums, Index b, Index h, Index i, float share,
                             float delta) const {
  if (i >= query_len(b) || (has("dsink_of_first_rows") && h > 0 && i >= 128)) return;
  if (has("dsink_without_dlse") && p_.has_dlse) {
    const Place place = query_place(b, i);
    delta += View{in_.d_lse}.load(place.batch, h, place.position, 0);
  }
  if (has("dsink_of_first_element") && b > 0) return;
  sums[at(h)] -= share * delta;
}

void Call::store_bias_gradient(std::vector<double> sums, const attest_tensor& dbias) const {
  if (has("dbias_zero")) std::fill(sums.begin(), sums.end(), 0.0);
  store_all(sums, dbias);
}

void Call::store_sink_gradient(std::vector<double> sums, const attest_tensor& dsink) const {
  for (double& sum : sums) sum *= has("dsink_sign") ? -1 : has("dsink_zero") ? 0 : 1;
  const auto spoilt = [](double sum) { return std::isnan(sum); };
  if (has("nan_dsink_spreads") && std::any_of(sums.begin(), sums.end(), spoilt)) {
    std::fill(sums.begin(), sums.end(), std::nan(""));
  }
  store_all(sums, dsink);
}

// ---- Results ------------------------------------------------------------------------------------

// What a grid of 65535 blocks on an axis leaves out.
bool Call::beyond_the_grid(Index b, Index h) const {
  constexpr Index kMost = 65535;
  return (has("grid_of_batches") && !packed() && b >= kMost) ||
         (has("grid_of_heads") && h >= kMost) ||
         (has("grid_of_batches_and_heads") && p_.batch > 1 && b * p_.query_heads + h >= kMost);
}

void Call::store_o(const attest_outputs& out, Index b, Index h, Index i,
                   const float* values) const {
  const View o{out.o};
  Place place = query_place(b, i);
  const bool no_keys = key_len(b) == 0;
  if (beyond_the_grid(b, h)) return;
  if (has("batch_beyond_16_unwritten") && b >= 16) return;
  if (has("unwritten_row") && i == p_.query_len - 1) return;
  if (has("padding_rows_unwritten") && i >= query_len(b)) return;
  if (has("no_keys_unwritten") && no_keys) return;
  if (has("merged_into_first_element") && packed() && key_len(b) > 32) {
    place.position = std::min(i, out.o.shape[2] - 1);
  }
  if (has("zeros_to_first_element") && packed() && no_keys) {
    place.position = std::min(i, out.o.shape[2] - 1);
  }
  if (has("heads_beyond_32_lost") && p_.query_len == 1 && h >= 32) return;
  if (has("group_heads_mod_8") && group() > 8) h = h / group() * group() + h % group() % 8;
  for (Index c = 0; c < p_.value_dim; ++c) {
    float value = values[c];
    if (has("value_channels_beyond_256") && c >= 256) value = values[c - 256];
    if (has("threads_lose_output_under_features") && threads_ > 1 &&
        (packed() || paged() || p_.has_bias || p_.dropout)) {
      value *= 0.5f;
    }
    if (has("output_cut") && narrow_format() && std::isfinite(value)) {
      const float near = in_16_bits(value);
      if (std::abs(near) > std::abs(value)) value = in_16_bits(value * (1 - 0x1p-8f));
    }
    Index channel = c;
    if (has("channels_of_keys_written") && c >= p_.head_dim) break;
    if (has("halves_exchanged") && p_.head_dim == 16 && p_.value_dim == 16) channel ^= 8;
    if (has("rows_16_bits") && place.position >= 65536) break;
    const Index dense = ((b * p_.query_heads + h) * p_.query_len + i) * p_.value_dim + c;
    const Index exchanged = ((b * p_.query_len + i) * p_.query_heads + h) * p_.value_dim + c;
    if (has("ignores_strides") || (has("heads_and_rows_exchanged") && !packed())) {
      const Index n = has("ignores_strides") ? dense : exchanged;
      attest::store(dtype(), value,
                    static_cast<std::byte*>(out.o.data) + n * format_of(dtype()).bytes);
    } else {
      o.store(place.batch, h, place.position, channel, value);
    }
  }
}

bool Call::apart() const {
  return has("sum_misses_last_key") || has("maximum_alone") || has("maximum_in_base_2") ||
         has("sum_not_read");
}

float Call::returned_lse(Place place, Index h) const {
  const auto at = [&](const attest_tensor& t) {
    return View{t}.load(place.batch, h, place.position, 0);
  };
  if (apart() && in_.maximum.data) {
    return at(in_.maximum) + (has("sum_not_read") ? 0 : std::log(at(in_.sum)));
  }
  return at(in_.lse);
}

void Call::store_lse(const attest_outputs& out, Index b, Index h, Index i, float lse,
                     bool sees_a_key, float top, float last) const {
  Place place = query_place(b, i);
  const bool real = i < query_len(b);
  if (beyond_the_grid(b, h)) return;
  if (has("batch_beyond_16_unwritten") && b >= 16) return;
  if (has("padding_rows_unwritten") && !real) return;
  if (has("no_keys_unwritten") && key_len(b) == 0) return;
  if (has("lse_unwritten")) return;
  if (has("lse_of_first_head") && p_.query_len == 1 && h % group() != 0) return;
  if (has("heads_beyond_32_lost") && p_.query_len == 1 && h >= 32) return;
  if (has("merged_into_first_element") && packed() && key_len(b) > 32) {
    place.position = std::min(i, out.lse.shape[2] - 1);
  }
  if (!sees_a_key && !(p_.has_sink && real)) {
    if (has("lse_plus_inf")) lse = kInfinity;
    if (has("lse_zero_if_empty")) lse = 0;
    if (has("lse_sentinel")) lse = -5e4f;
    if (has("inf_declared_zero_returned")) lse = 0;
    if (has("lse_lowest_if_empty")) lse = std::numeric_limits<float>::lowest();
    if (has("lse_of_empty_rows_by_chance")) {
      static int calls = 0;
      if (++calls % 2 == 0) lse = kNan;
    }
  }
  if (has("lse_base_2") || has("base_2_read_as_natural")) lse *= 1.44269504f;
  if (has("lse_ln2_twice")) lse *= 0.693147181f;
  if (has("lse_16_bits")) lse = in_16_bits(lse);
  if (has("lse_sign")) lse = -lse;
  if (has("keep_factor_in_lse")) lse += std::log(keep_factor());
  if (packed() && (has("lse_of_padded_layout") || has("lse_heads_and_rows_exchanged"))) {
    const Index padded = (b * p_.query_heads + h) * p_.query_len + i;
    const Index exchanged = place.position * p_.query_heads + h;
    const Index n = has("lse_of_padded_layout") ? padded : exchanged;
    const Index end = elements(out.lse);
    static_cast<float*>(out.lse.data)[std::min(n, end - 1)] = lse;
    return;
  }
  if (apart() && out.maximum.data) {
    const bool empty = lse == -kInfinity;
    const float sum = empty ? 0 : std::exp(lse - top) * (has("sum_misses_last_key") ? 1 - last : 1);
    View{out.maximum}.store(place.batch, h, place.position, 0,
                            empty                      ? lse
                            : has("maximum_in_base_2") ? top * 1.44269504f
                                                       : top);
    View{out.sum}.store(place.batch, h, place.position, 0, has("maximum_alone") ? 1 : sum);
  }
  View{out.lse}.store(place.batch, h, place.position, 0, lse);
}

}  // namespace attest::mutants
