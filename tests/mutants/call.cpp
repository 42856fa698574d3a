#include "tests/mutants/call.h"

#include <algorithm>
#include <cstdint>

namespace attest::mutants {
namespace {

Index integer(const attest_tensor& tensor, Index n) { return entry<Index>(tensor, {n, 0, 0, 0}); }

Index length(const attest_tensor& starts, const attest_tensor& lens, Index b, Index whole) {
  if (!starts.data && !lens.data) return whole;
  const Index found = starts.data ? integer(starts, b + 1) - integer(starts, b) : integer(lens, b);
  return std::clamp<Index>(found, 0, whole);  // one that is misread shall not take all memory
}

std::array<Index, 4> dense_strides(const attest_tensor& t) {
  const Index row = t.dtype == ATTEST_BITS ? round_up(t.shape[3], 8) : t.shape[3];
  const Index plane = t.shape[2] * row;
  return {t.shape[1] * plane, plane, row, 1};
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
  const bool is_wide = t.dtype == ATTEST_F32 && t.stride[3] == 1 && !View::offsets_32_bits;
  for (Index b = 0; b < shape_[0]; ++b) {
    for (Index h = 0; h < shape_[1]; ++h) {
      for (Index s = 0; s < shape_[2]; ++s) {
        if (is_wide && shape_[3] > 0) {
          const auto* row = reinterpret_cast<const float*>(view.at(b, h, s, 0));
          values_.insert(values_.end(), row, row + shape_[3]);
          continue;
        }
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
  unstore(fault);
}

// ---- The call -----------------------------------------------------------------------------------

Call::Call(FaultId fault, const attest_problem& p, const attest_inputs& in, int threads,
           bool backward)
    : fault_(fault), p_(p), in_(in), threads_(threads), backward_(backward) {
  const std::string_view kind = fault.kind();
  regular_ = kind == "control" || kind == "gradient";
  plain_product_ = !errs_in_products();
  for (Index b = 0; b < p_.batch; ++b) {
    query_lens_.push_back(find_query_len(b));
    key_lens_.push_back(find_key_len(b));
  }
  scale_ = scale();
  if (has("keeps_visible") && hidden_drop_rate() <= 1) hidden_drop_rate_ = hidden_drop_rate();
}

float Call::in_16_bits(float x) const {
  return static_cast<float>(round_to(narrow_format() ? dtype() : DType::bf16, x));
}

// ---- Lengths and places -------------------------------------------------------------------------

Index Call::find_query_len(Index b) const {
  return length(p_.cu_query_lens, p_.query_lens, b, p_.query_len);
}

Index Call::find_key_len(Index b) const {
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

}  // namespace attest::mutants
