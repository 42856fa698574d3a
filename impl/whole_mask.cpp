#include "impl/whole_mask.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "impl/mask.h"
#include "impl/parallel.h"
#include "impl/schedule.h"

namespace attest::impl {
namespace {

std::int64_t product(std::int64_t a, std::int64_t b) {
  std::int64_t result;
  if (__builtin_mul_overflow(a, b, &result)) throw std::bad_alloc();
  return result;
}

// Whether a table of the mask has more than one entry along an axis.
bool tables_differ_along(const Call& call, int axis) {
  return std::any_of(call.mask.begin(), call.mask.end(), [axis](const attest_mask& node) {
    for (const attest_tensor* table : {&node.table, &node.table2}) {
      if (table->data && table->shape[axis] > 1) return true;
    }
    return false;
  });
}

bool lengths_differ(const Call& call) {
  return std::any_of(call.lengths.begin(), call.lengths.end(), [&](const Lengths& lengths) {
    return lengths.query != call.lengths[0].query || lengths.key != call.lengths[0].key;
  });
}

// One plane is shared, unless there is nobody to share it.
std::int64_t least(std::int64_t size) { return std::min<std::int64_t>(size, 1); }

}  // namespace

WholeMask::WholeMask(const Call& call, std::int64_t query_block, std::int64_t key_block,
                     Arena arena)
    : call_(call),
      query_block_(query_block),
      key_block_(key_block),
      rows_(blocks_of(call.problem.query_len, query_block)),
      columns_(blocks_of(call.problem.key_len, key_block)),
      batches_(lengths_differ(call) || tables_differ_along(call, 0) ? call.problem.batch
                                                                    : least(call.problem.batch)),
      heads_(tables_differ_along(call, 1) ? call.problem.query_heads
                                          : least(call.problem.query_heads)),
      visible_(arena.take<std::uint8_t>(product(product(batches_, heads_), call.problem.query_len),
                                        call.problem.key_len)),
      coverage_(arena.take<Coverage>(product(product(batches_, heads_), rows_), columns_)),
      bytes_(arena.used()) {}

std::int64_t WholeMask::plane_of(std::int64_t batch, std::int64_t head) const {
  return (batches_ == 1 ? 0 : batch) * heads_ + (heads_ == 1 ? 0 : head);
}

void WholeMask::make() {
  const std::int64_t rows = batches_ * heads_ * rows_;
  share_out(rows, call_.workers, [&](int, std::int64_t begin, std::int64_t end) {
    BlockMask mask(call_);
    for (std::int64_t n = begin; n < end; ++n) make_row_of_blocks(mask, n / rows_, n % rows_);
  });
}

void WholeMask::make_row_of_blocks(BlockMask& mask, std::int64_t plane, std::int64_t row) {
  const std::int64_t batch = plane / heads_, head = plane % heads_;
  const Lengths& lengths = call_.lengths_of(batch);
  const std::int64_t begin = row * query_block_;
  const Block strip = {begin, std::min(begin + query_block_, lengths.query), 0, lengths.key};
  if (strip.query_begin >= strip.query_end || strip.keys() == 0) return;
  Coverage* const coverage = coverage_ + (plane * rows_ + row) * columns_;
  for (std::int64_t query = begin; query < strip.query_end; ++query) {
    std::uint8_t* const visible =
        visible_ + (plane * call_.problem.query_len + query) * call_.problem.key_len;
    mask.fill_row(batch, head, query, strip, visible);
    for (std::int64_t key = 0; key < strip.keys(); key += key_block_) {
      add_row(visible + key, std::min(key_block_, strip.keys() - key), query == begin,
              coverage[key / key_block_]);
    }
  }
}

Coverage WholeMask::cover(std::int64_t batch, std::int64_t head, const Block& block,
                          std::uint8_t* visible) const {
  const std::int64_t plane = plane_of(batch, head);
  const Coverage coverage =
      coverage_[(plane * rows_ + block.query_begin / query_block_) * columns_ +
                block.key_begin / key_block_];
  if (coverage != Coverage::partial) return coverage;
  for (std::int64_t query = block.query_begin; query < block.query_end; ++query) {
    std::memcpy(visible + (query - block.query_begin) * block.keys(),
                visible_ + (plane * call_.problem.query_len + query) * call_.problem.key_len +
                    block.key_begin,
                static_cast<std::size_t>(block.keys()));
  }
  return coverage;
}

}  // namespace attest::impl
