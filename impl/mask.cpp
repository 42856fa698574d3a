#include "impl/mask.h"

#include <algorithm>
#include <cstring>

namespace attest::impl {
namespace {

std::int64_t shift_of(const attest_mask& node, const Lengths& lengths) {
  return node.offset + (node.anchored_bottom_right ? lengths.key - lengths.query : 0);
}

// How far a key lies ahead of the diagonal takes every value from `least` to `most` in a block, and
// -left ... right contains 0: so the comparison of the two intervals is exact.
Coverage cover_band(const attest_mask& node, std::int64_t shift, const Block& block) {
  const std::int64_t least = block.key_begin - (block.query_end - 1) - shift;
  const std::int64_t most = block.key_end - 1 - block.query_begin - shift;
  if (most < -node.left || least > node.right) return Coverage::empty;
  return least >= -node.left && most <= node.right ? Coverage::full : Coverage::partial;
}

// The keys that one query sees through a band: a range, cut to the block. `left` and `right` may be
// as large as their type allows, so they are compared and only added to when small.
void fill_band(const attest_mask& node, std::int64_t diagonal, const Block& block,
               std::uint8_t* row) {
  std::int64_t begin = block.key_begin, end = block.key_end;
  if (node.left < diagonal - begin) begin = std::min(diagonal - node.left, end);
  if (node.right < end - 1 - diagonal) end = std::max(diagonal + node.right + 1, begin);
  std::memset(row, 0, static_cast<std::size_t>(block.keys()));
  std::memset(row + (begin - block.key_begin), 1, static_cast<std::size_t>(end - begin));
}

void fill_dense(const attest_tensor& table, std::int64_t batch, std::int64_t head,
                std::int64_t query, const Block& block, std::uint8_t* row) {
  const UsedStrides stride(table);
  const auto* bytes = static_cast<const std::uint8_t*>(table.data) + batch * stride.axes[0] +
                      head * stride.axes[1] + query * stride.axes[2];
  for (std::int64_t key = 0; key < block.keys(); ++key) {
    row[key] = bytes[(block.key_begin + key) * stride.axes[3]] != 0;
  }
}

}  // namespace

Coverage BlockMask::cover(std::int64_t batch, std::int64_t head, const Block& block,
                          std::uint8_t* visible) {
  const Coverage estimated = estimate(batch, block);
  if (estimated != Coverage::partial) return estimated;
  std::int64_t seen = 0;
  for (std::int64_t query = block.query_begin; query < block.query_end; ++query) {
    std::uint8_t* row = visible + (query - block.query_begin) * block.keys();
    fill_row(batch, head, query, block, row);
    seen += std::count(row, row + block.keys(), 1);
  }
  if (seen == 0) return Coverage::empty;
  return seen == block.queries() * block.keys() ? Coverage::full : Coverage::partial;
}

// Partial here means: not known without looking at the elements.
Coverage BlockMask::estimate(std::int64_t batch, const Block& block) {
  if (call_.mask.empty()) return Coverage::full;
  const Lengths& lengths = call_.lengths[static_cast<std::size_t>(batch)];
  for (std::size_t n = 0; n < call_.mask.size(); ++n) {
    const attest_mask& node = call_.mask[n];
    switch (node.kind) {
      case ATTEST_MASK_FULL:
        coverage_[n] = Coverage::full;
        break;
      case ATTEST_MASK_BAND:
        coverage_[n] = cover_band(node, shift_of(node, lengths), block);
        break;
      case ATTEST_MASK_DENSE:
        coverage_[n] = Coverage::partial;
        break;
      default: {
        const Coverage a = coverage_[static_cast<std::size_t>(node.first)];
        const Coverage b = coverage_[static_cast<std::size_t>(node.second)];
        // An empty part decides an intersection, a full one a union; the other kind is neutral.
        const bool all_of = node.kind == ATTEST_MASK_ALL_OF;
        const Coverage deciding = all_of ? Coverage::empty : Coverage::full;
        const Coverage neutral = all_of ? Coverage::full : Coverage::empty;
        coverage_[n] = a == deciding || b == deciding ? deciding
                       : a == neutral                 ? b
                       : b == neutral                 ? a
                                                      : Coverage::partial;
      }
    }
  }
  return coverage_.back();
}

void BlockMask::fill_row(std::int64_t batch, std::int64_t head, std::int64_t query,
                         const Block& block, std::uint8_t* visible) {
  const auto keys = static_cast<std::size_t>(block.keys());
  const Lengths& lengths = call_.lengths[static_cast<std::size_t>(batch)];
  rows_.resize(std::max(rows_.size(), call_.mask.size() * keys));
  for (std::size_t n = 0; n < call_.mask.size(); ++n) {
    const attest_mask& node = call_.mask[n];
    std::uint8_t* row = n + 1 == call_.mask.size() ? visible : rows_.data() + n * keys;
    switch (node.kind) {
      case ATTEST_MASK_FULL:
        std::memset(row, 1, keys);
        break;
      case ATTEST_MASK_BAND:
        fill_band(node, query + shift_of(node, lengths), block, row);
        break;
      case ATTEST_MASK_DENSE:
        fill_dense(node.table, batch, head, query, block, row);
        break;
      default: {
        const std::uint8_t* a = rows_.data() + static_cast<std::size_t>(node.first) * keys;
        const std::uint8_t* b = rows_.data() + static_cast<std::size_t>(node.second) * keys;
        const bool all_of = node.kind == ATTEST_MASK_ALL_OF;
        for (std::size_t key = 0; key < keys; ++key) {
          row[key] = all_of ? a[key] & b[key] : a[key] | b[key];
        }
      }
    }
  }
}

}  // namespace attest::impl
