#include "impl/mask.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace attest::impl {
namespace {

// A mask's table; an axis of size 1 holds for all of its positions.
template <class T>
class Table {
 public:
  explicit Table(const attest_tensor& tensor)
      : data_(static_cast<const T*>(tensor.data)), stride_(tensor) {}

  T at(std::int64_t b, std::int64_t h = 0, std::int64_t i = 0, std::int64_t j = 0) const {
    const std::int64_t* stride = stride_.axes;
    return data_[b * stride[0] + h * stride[1] + i * stride[2] + j * stride[3]];
  }

 private:
  const T* data_;
  UsedStrides stride_;
};

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
  const Table<std::uint8_t> allowed(table);
  for (std::int64_t key = 0; key < block.keys(); ++key) {
    row[key] = allowed.at(batch, head, query, block.key_begin + key) != 0;
  }
}

std::int64_t prefix_of(const attest_mask& node, std::int64_t batch) {
  return Table<std::int64_t>(node.table).at(batch);
}

Coverage cover_prefix(std::int64_t length, const Block& block) {
  if (length <= block.key_begin) return Coverage::empty;
  return length >= block.key_end ? Coverage::full : Coverage::partial;
}

void fill_prefix(std::int64_t length, const Block& block, std::uint8_t* row) {
  for (std::int64_t key = 0; key < block.keys(); ++key) row[key] = block.key_begin + key < length;
}

// The least and the greatest number among some positions.
struct Numbers {
  std::int32_t least = std::numeric_limits<std::int32_t>::max();
  std::int32_t most = std::numeric_limits<std::int32_t>::min();
};

Numbers numbers_of(const attest_tensor& table, std::int64_t batch, std::int64_t begin,
                   std::int64_t end) {
  const Table<std::int32_t> numbers(table);
  Numbers found;
  for (std::int64_t position = begin; position < end; ++position) {
    found.least = std::min(found.least, numbers.at(batch, 0, position));
    found.most = std::max(found.most, numbers.at(batch, 0, position));
  }
  return found;
}

Coverage cover_segments(const attest_mask& node, std::int64_t batch, const Block& block) {
  const Numbers queries = numbers_of(node.table, batch, block.query_begin, block.query_end);
  const Numbers keys = numbers_of(node.table2, batch, block.key_begin, block.key_end);
  if (queries.most < 0 || queries.most < keys.least || keys.most < queries.least) {
    return Coverage::empty;
  }
  const bool one = queries.least == queries.most && keys.least == keys.most;
  return one && queries.least == keys.least ? Coverage::full : Coverage::partial;
}

void fill_segments(const attest_mask& node, std::int64_t batch, std::int64_t query,
                   const Block& block, std::uint8_t* row) {
  const std::int32_t number = Table<std::int32_t>(node.table).at(batch, 0, query);
  const Table<std::int32_t> keys(node.table2);
  for (std::int64_t key = 0; key < block.keys(); ++key) {
    row[key] = number >= 0 && keys.at(batch, 0, block.key_begin + key) == number;
  }
}

Coverage cover_block_sparse(const attest_mask& node, std::int64_t batch, std::int64_t head,
                            const Block& block) {
  const Table<std::uint8_t> allowed(node.table);
  bool some = false, all = true;
  for (std::int64_t x = block.query_begin / node.block_query;
       x <= (block.query_end - 1) / node.block_query; ++x) {
    for (std::int64_t y = block.key_begin / node.block_key;
         y <= (block.key_end - 1) / node.block_key; ++y) {
      const bool seen = allowed.at(batch, head, x, y) != 0;
      some |= seen;
      all &= seen;
    }
  }
  return !some ? Coverage::empty : all ? Coverage::full : Coverage::partial;
}

void fill_block_sparse(const attest_mask& node, std::int64_t batch, std::int64_t head,
                       std::int64_t query, const Block& block, std::uint8_t* row) {
  const Table<std::uint8_t> allowed(node.table);
  for (std::int64_t key = 0; key < block.keys(); ++key) {
    row[key] = allowed.at(batch, head, query / node.block_query,
                          (block.key_begin + key) / node.block_key) != 0;
  }
}

// The distance from the diagonal takes every value from `least` to `most` in a block: one of them
// is a multiple of n, or none is.
Coverage cover_dilated(std::int64_t n, std::int64_t shift, const Block& block) {
  const std::int64_t least = block.key_begin - (block.query_end - 1) - shift;
  const std::int64_t most = block.key_end - 1 - block.query_begin - shift;
  if (n == 1) return Coverage::full;
  // How far `least` lies beyond a multiple; a remainder has the sign of what was divided.
  const std::int64_t past = least % n < 0 ? least % n + n : least % n;
  if (past != 0 && most - least < n - past) return Coverage::empty;
  return least == most ? Coverage::full : Coverage::partial;
}

void fill_dilated(std::int64_t n, std::int64_t diagonal, const Block& block, std::uint8_t* row) {
  for (std::int64_t key = 0; key < block.keys(); ++key) {
    row[key] = (block.key_begin + key - diagonal) % n == 0;
  }
}

}  // namespace

Coverage BlockMask::cover(std::int64_t batch, std::int64_t head, const Block& block,
                          std::uint8_t* visible) {
  const Coverage estimated = estimate(batch, head, block);
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
Coverage BlockMask::estimate(std::int64_t batch, std::int64_t head, const Block& block) {
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
      case ATTEST_MASK_PREFIX:
        coverage_[n] = cover_prefix(prefix_of(node, batch), block);
        break;
      case ATTEST_MASK_SEGMENTS:
        coverage_[n] = cover_segments(node, batch, block);
        break;
      case ATTEST_MASK_BLOCK_SPARSE:
        coverage_[n] = cover_block_sparse(node, batch, head, block);
        break;
      case ATTEST_MASK_DILATED:
        coverage_[n] = cover_dilated(node.dilation, shift_of(node, lengths), block);
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
      case ATTEST_MASK_PREFIX:
        fill_prefix(prefix_of(node, batch), block, row);
        break;
      case ATTEST_MASK_SEGMENTS:
        fill_segments(node, batch, query, block, row);
        break;
      case ATTEST_MASK_BLOCK_SPARSE:
        fill_block_sparse(node, batch, head, query, block, row);
        break;
      case ATTEST_MASK_DILATED:
        fill_dilated(node.dilation, query + shift_of(node, lengths), block, row);
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
