#include "impl/mask.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

namespace attest::impl {
namespace {

// A mask's table; an axis of size 1 holds for all of its positions.
template <class T>
class Table {
 public:
  explicit Table(const attest_tensor& tensor)
      : data_(static_cast<const T*>(tensor.data)), stride_(tensor) {}

  const T& at(std::int64_t b, std::int64_t h = 0, std::int64_t i = 0, std::int64_t j = 0) const {
    const std::int64_t* stride = stride_.axes;
    return data_[b * stride[0] + h * stride[1] + i * stride[2] + j * stride[3]];
  }

  // How far apart positions are, and keys.
  std::int64_t stride() const { return stride_.axes[2]; }
  std::int64_t key_stride() const { return stride_.axes[3]; }

 private:
  const T* data_;
  UsedStrides stride_;
};

// Calls loop(step). The usual step, 1, is a constant for it, so that it vectorises.
template <class Loop>
auto with_step(std::int64_t step, const Loop& loop) {
  return step == 1 ? loop(std::integral_constant<std::int64_t, 1>()) : loop(step);
}

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
  const std::uint8_t* const first = &allowed.at(batch, head, query, block.key_begin);
  with_step(allowed.key_stride(), [&](auto step) {
    for (std::int64_t key = 0; key < block.keys(); ++key) row[key] = first[key * step] != 0;
  });
}

std::int64_t prefix_of(const attest_mask& node, std::int64_t batch) {
  return Table<std::int64_t>(node.table).at(batch);
}

Coverage cover_prefix(std::int64_t length, const Block& block) {
  if (length <= block.key_begin) return Coverage::empty;
  return length >= block.key_end ? Coverage::full : Coverage::partial;
}

void fill_prefix(std::int64_t length, const Block& block, std::uint8_t* row) {
  const std::int64_t seen = std::clamp<std::int64_t>(length - block.key_begin, 0, block.keys());
  std::memset(row, 0, static_cast<std::size_t>(block.keys()));
  std::memset(row, 1, static_cast<std::size_t>(seen));
}

// What numbers some positions have. Negative ones do not count, for nobody sees them.
struct Numbers {
  std::uint32_t least = std::numeric_limits<std::uint32_t>::max();  // that counts
  std::int32_t most = std::numeric_limits<std::int32_t>::min();     // negative if none counts
  std::int32_t lowest = std::numeric_limits<std::int32_t>::max();   // whether it counts or not
};

Numbers numbers_of(const attest_tensor& table, std::int64_t batch, std::int64_t begin,
                   std::int64_t end) {
  const Table<std::int32_t> numbers(table);
  const std::int32_t* const first = &numbers.at(batch, 0, begin);
  return with_step(numbers.stride(), [&](auto step) {
    Numbers found;
    for (std::int64_t n = 0; n < end - begin; ++n) {
      const std::int32_t number = first[n * step];
      found.least = std::min(found.least, static_cast<std::uint32_t>(number));
      found.most = std::max(found.most, number);
      found.lowest = std::min(found.lowest, number);
    }
    return found;
  });
}

Coverage cover_segments(const attest_mask& node, std::int64_t batch, const Block& block) {
  const Numbers queries = numbers_of(node.table, batch, block.query_begin, block.query_end);
  const Numbers keys = numbers_of(node.table2, batch, block.key_begin, block.key_end);
  const std::int32_t most = std::min(queries.most, keys.most);
  if (most < 0 || std::max(queries.least, keys.least) > static_cast<std::uint32_t>(most)) {
    return Coverage::empty;
  }
  const bool one = std::min(queries.lowest, keys.lowest) == std::max(queries.most, keys.most);
  return one ? Coverage::full : Coverage::partial;
}

void fill_segments(const attest_mask& node, std::int64_t batch, std::int64_t query,
                   const Block& block, std::uint8_t* row) {
  const std::int32_t number = Table<std::int32_t>(node.table).at(batch, 0, query);
  const Table<std::int32_t> keys(node.table2);
  const std::int32_t* const first = &keys.at(batch, 0, block.key_begin);
  with_step(keys.stride(), [&](auto step) {
    for (std::int64_t key = 0; key < block.keys(); ++key) {
      row[key] = number >= 0 && first[key * step] == number;
    }
  });
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
  for (std::int64_t key = block.key_begin; key < block.key_end;) {
    const std::int64_t column = key / node.block_key;
    const std::int64_t run = std::min(node.block_key - key % node.block_key, block.key_end - key);
    std::memset(row + (key - block.key_begin),
                allowed.at(batch, head, query / node.block_query, column) != 0,
                static_cast<std::size_t>(run));
    key += run;
  }
}

// How far x lies beyond a multiple of n; a remainder has the sign of what was divided.
std::int64_t beyond_multiple(std::int64_t x, std::int64_t n) {
  return x % n < 0 ? x % n + n : x % n;
}

// The distance from the diagonal takes every value from `least` to `most` in a block: one of them
// is a multiple of n, or none is.
Coverage cover_dilated(std::int64_t n, std::int64_t shift, const Block& block) {
  const std::int64_t least = block.key_begin - (block.query_end - 1) - shift;
  const std::int64_t most = block.key_end - 1 - block.query_begin - shift;
  if (n == 1) return Coverage::full;
  const std::int64_t past = beyond_multiple(least, n);
  if (past != 0 && most - least < n - past) return Coverage::empty;
  return least == most ? Coverage::full : Coverage::partial;
}

void fill_dilated(std::int64_t n, std::int64_t diagonal, const Block& block, std::uint8_t* row) {
  const std::int64_t past = beyond_multiple(block.key_begin - diagonal, n);
  std::memset(row, 0, static_cast<std::size_t>(block.keys()));
  // A step beyond the block's end ends there, lest sums overflow.
  const std::int64_t step = std::min(n, block.keys());
  for (std::int64_t key = past == 0 ? 0 : n - past; key < block.keys(); key += step) row[key] = 1;
}

}  // namespace

void add_row(const std::uint8_t* visible, std::int64_t keys, bool first, Coverage& block) {
  if (!first && block == Coverage::partial) return;
  const auto bytes = static_cast<std::size_t>(keys);
  const Coverage row = !std::memchr(visible, 0, bytes)   ? Coverage::full
                       : !std::memchr(visible, 1, bytes) ? Coverage::empty
                                                         : Coverage::partial;
  block = first || block == row ? row : Coverage::partial;
}

Coverage BlockMask::cover(std::int64_t batch, std::int64_t head, const Block& block,
                          std::uint8_t* visible) {
  if (call_.whole_mask) return call_.whole_mask->cover(batch, head, block, visible);
  const Coverage classified = classify(batch, head, block);
  if (classified != Coverage::partial) return classified;
  Coverage coverage = Coverage::partial;
  for (std::int64_t query = block.query_begin; query < block.query_end; ++query) {
    std::uint8_t* row = visible + (query - block.query_begin) * block.keys();
    fill_row(batch, head, query, block, row);
    add_row(row, block.keys(), query == block.query_begin, coverage);
  }
  return coverage;
}

Coverage BlockMask::classify(std::int64_t batch, std::int64_t head, const Block& block) {
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
  if (call_.mask.empty()) std::memset(visible, 1, keys);
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
