// The problem of a call: which keys a query sees, and where rows and keys lie, be they padded,
// packed or in pages.
//
//   for (std::int64_t i = 0; i < p.rows(b); ++i) {        // padding too, which has to be written
//     const auto [begin, end] = p.keys(b, i);             // full, causal, window
//     for (std::int64_t j = begin; j < end; ++j) {        // or all keys, and p.sees(b, h, i, j)
//       ... q(p.query_place(b, i), h, d) * k(p.key_place(b, j), p.key_head(h), d) ...
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "tensor.h"

namespace attest {

namespace detail {

// A struct of the host, whose own size may be smaller or larger: what it lacks is 0.
template <class T>
T read(const T* from) {
  T copy{};
  std::memcpy(&copy, from, std::min(from->struct_size, sizeof(T)));
  return copy;
}

}  // namespace detail

// The keys from `begin` to before `end`.
struct Keys {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};

class Problem : public attest_problem {
 public:
  explicit Problem(const attest_problem* problem) : attest_problem(detail::read(problem)) {
    for (std::int64_t n = 0; n < mask_count; ++n)
      nodes_.push_back(detail::read(attest_mask_node(problem, n)));
  }

  // ---- The mask

  // Its nodes, children before parents; none: full.
  const std::vector<attest_mask>& mask_nodes() const { return nodes_; }
  bool full() const { return nodes_.empty() || nodes_.back().kind == ATTEST_MASK_FULL; }
  bool causal() const { return band() && band()->left == ATTEST_UNBOUNDED && band()->right == 0; }
  bool window() const { return band() && !causal(); }

  // Whether query i of batch element b sees key j, under any mask and all lengths (not through a
  // bias of -inf).
  bool sees(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    if (i >= query_len_of(b) || j >= key_len_of(b)) return false;
    if (nodes_.empty()) return true;
    if (nodes_.size() == 1) return allows(nodes_[0], b, h, i, j);
    // One pass, for a tree may be as deep as it has nodes.
    std::vector<char> seen(nodes_.size());
    const auto child = [&](std::int64_t node) { return seen[static_cast<std::size_t>(node)] != 0; };
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      const attest_mask& m = nodes_[n];
      seen[n] = m.kind == ATTEST_MASK_ALL_OF   ? child(m.first) && child(m.second)
                : m.kind == ATTEST_MASK_ANY_OF ? child(m.first) || child(m.second)
                                               : allows(m, b, h, i, j);
    }
    return seen.back() != 0;
  }

  // The keys that a query sees where the mask is full, causal or a window: no others lie between.
  Keys keys(std::int64_t b, std::int64_t i) const {
    if (!full() && !band()) throw std::logic_error("this mask is no band: ask sees() of each key");
    const std::int64_t end = key_len_of(b);
    if (i >= query_len_of(b)) return {0, 0};
    if (full()) return {0, end};
    const std::int64_t diagonal = i + shift(*band(), b);
    Keys keys = {band()->left == ATTEST_UNBOUNDED ? 0 : diagonal - band()->left,
                 band()->right == ATTEST_UNBOUNDED ? end : diagonal + band()->right + 1};
    keys.end = std::clamp<std::int64_t>(keys.end, 0, end);
    keys.begin = std::clamp<std::int64_t>(keys.begin, 0, keys.end);
    return keys;
  }

  // ---- Lengths, heads and places

  // How many are real.
  std::int64_t query_len_of(std::int64_t b) const {
    return length(cu_query_lens, query_lens, b, query_len);
  }
  std::int64_t key_len_of(std::int64_t b) const {
    return length(cu_key_lens, key_lens, b, key_len);
  }
  // How many rows of a batch element have a place in the tensors, and are to be written; how many
  // keys have one.
  std::int64_t rows(std::int64_t b) const {
    return cu_query_lens.data ? query_len_of(b) : query_len;
  }
  std::int64_t columns(std::int64_t b) const {
    return cu_key_lens.data || page_size > 0 ? key_len_of(b) : key_len;
  }

  // The key head that a query head reads (HEAD-1).
  std::int64_t key_head(std::int64_t h) const { return h / (query_heads / key_heads); }

  Place query_place(std::int64_t b, std::int64_t i) const {
    return cu_query_lens.data ? Place{0, integer<std::int64_t>(cu_query_lens, b) + i} : Place{b, i};
  }
  Place key_place(std::int64_t b, std::int64_t j) const {
    if (page_size > 0) {
      return {integer<std::int32_t>(page_table, b, j / page_size), j % page_size};
    }
    return cu_key_lens.data ? Place{0, integer<std::int64_t>(cu_key_lens, b) + j} : Place{b, j};
  }

 private:
  template <class T>
  static std::int64_t integer(const attest_tensor& table, std::int64_t b, std::int64_t entry = 0) {
    return View<T>(Tensor(table))(b, entry, 0, 0);
  }
  static std::int64_t length(const attest_tensor& cu, const attest_tensor& lens, std::int64_t b,
                             std::int64_t whole) {
    if (cu.data) return integer<std::int64_t>(cu, b + 1) - integer<std::int64_t>(cu, b);
    return lens.data ? integer<std::int64_t>(lens, b) : whole;
  }

  const attest_mask* band() const {
    return !nodes_.empty() && nodes_.back().kind == ATTEST_MASK_BAND ? &nodes_.back() : nullptr;
  }
  std::int64_t shift(const attest_mask& m, std::int64_t b) const {
    return m.offset + (m.anchored_bottom_right ? key_len_of(b) - query_len_of(b) : 0);
  }

  bool allows(const attest_mask& m, std::int64_t b, std::int64_t h, std::int64_t i,
              std::int64_t j) const {
    const std::int64_t ahead = j - (i + shift(m, b));  // of a band, a dilation
    switch (m.kind) {
      case ATTEST_MASK_BAND:
        return (m.left == ATTEST_UNBOUNDED || ahead >= -m.left) &&
               (m.right == ATTEST_UNBOUNDED || ahead <= m.right);
      case ATTEST_MASK_DENSE:
        return View<std::uint8_t>(Tensor(m.table))(b, h, i, j) != 0;
      case ATTEST_MASK_PREFIX:
        return j < integer<std::int64_t>(m.table, b);
      case ATTEST_MASK_SEGMENTS: {
        const auto own = View<std::int32_t>(Tensor(m.table))(b, 0, i, 0);
        return own >= 0 && own == View<std::int32_t>(Tensor(m.table2))(b, 0, j, 0);
      }
      case ATTEST_MASK_BLOCK_SPARSE:
        return View<std::uint8_t>(Tensor(m.table))(b, h, i / m.block_query, j / m.block_key) != 0;
      case ATTEST_MASK_DILATED:
        return ahead % m.dilation == 0;
      case ATTEST_MASK_FULL:
        return true;
      default:
        throw std::logic_error("no kind of mask has the number " + std::to_string(m.kind));
    }
  }

  std::vector<attest_mask> nodes_;
};

}  // namespace attest
