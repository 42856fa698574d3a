#include "harness/oracle/given_mask.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "harness/oracle/strided.h"

namespace attest {
namespace {

constexpr std::size_t kNodeBytes = offsetof(attest_mask, table2) + sizeof(attest_tensor);
// A node may be the child of many, so that few nodes can mean any number of parts.
constexpr std::size_t kMostParts = 1024;

std::size_t parts_of(const Mask& mask) {
  std::size_t sum = 1;
  for (const Mask& part : mask.parts) sum += parts_of(part);
  return sum;
}

int depth_of(const Mask& mask) {
  int most = 0;
  for (const Mask& part : mask.parts) most = std::max(most, 1 + depth_of(part));
  return most;
}

DenseMask table_of(const attest_tensor& tensor, const Shape& whole, const std::string& where) {
  const Shape shape = broadcast_shape(tensor, whole, where);
  return {shape, read_booleans(tensor, {where, ATTEST_U8, shape})};
}

SegmentNumbers segments_of(const attest_tensor& tensor, const Problem& p, Index length,
                           const std::string& where) {
  const Shape shape = broadcast_shape(tensor, {p.batch, 1, length, 1}, where);
  if (shape[kPosition] != length) {
    throw InputError(where, fmt::format("has {} positions, expected {}", shape[kPosition], length));
  }
  SegmentNumbers numbers = {.batches = shape[kBatch], .length = length};
  for (const Index number : read_integers(tensor, {where, ATTEST_I32, shape})) {
    numbers.number.push_back(static_cast<std::int32_t>(number));
  }
  return numbers;
}

Index blocks(Index size, Index block) { return size / block + (size % block != 0); }

// One that combines two earlier ones. Parts of its own kind are its own: a chain becomes a list.
Mask combined(const attest_mask& node, const std::vector<Mask>& before, const std::string& where) {
  Mask mask = {.kind = node.kind == ATTEST_MASK_ALL_OF ? Mask::Kind::all_of : Mask::Kind::any_of};
  std::size_t parts = 0;
  for (const std::int64_t child : {node.first, node.second}) {
    if (child < 0 || child >= static_cast<std::int64_t>(before.size())) {
      throw InputError(where,
                       fmt::format("has the child {}, which does not stand before it", child));
    }
    const Mask& part = before[static_cast<std::size_t>(child)];
    parts += parts_of(part);
    if (parts > kMostParts) {
      throw InputError(where, fmt::format("has more than {} parts", kMostParts));
    }
    if (part.kind == mask.kind) {
      mask.parts.insert(mask.parts.end(), part.parts.begin(), part.parts.end());
    } else {
      mask.parts.push_back(part);
    }
  }
  if (depth_of(mask) > kDeepestMask) {
    throw InputError(where, fmt::format("masks nest deeper than {}", kDeepestMask));
  }
  return mask;
}

Mask mask_of(const attest_mask& node, const Problem& p, const std::vector<Mask>& before,
             const std::string& where) {
  const Anchor anchor = node.anchored_bottom_right ? Anchor::bottom_right : Anchor::top_left;
  switch (node.kind) {
    case ATTEST_MASK_FULL:
      return Mask::full();
    case ATTEST_MASK_BAND:
      return Mask::window(node.left, node.right, anchor, node.offset);
    case ATTEST_MASK_DENSE:
      return Mask::dense(table_of(node.table, p.keep_shape(), where + ".table"));
    case ATTEST_MASK_PREFIX: {
      const Shape shape = broadcast_shape(node.table, {p.batch, 1, 1, 1}, where + ".table");
      return Mask::prefix(read_integers(node.table, {where + ".table", ATTEST_I64, shape}));
    }
    case ATTEST_MASK_SEGMENTS:
      return Mask::documents({segments_of(node.table, p, p.query_len, where + ".table"),
                              segments_of(node.table2, p, p.key_len, where + ".table2")});
    case ATTEST_MASK_BLOCK_SPARSE: {
      if (node.block_query < 1 || node.block_key < 1) {
        throw InputError(where,
                         fmt::format("has blocks of {} x {}", node.block_query, node.block_key));
      }
      const Shape whole = {p.batch, p.query_heads, blocks(p.query_len, node.block_query),
                           blocks(p.key_len, node.block_key)};
      return Mask::block_sparse(node.block_query, node.block_key,
                                table_of(node.table, whole, where + ".table"));
    }
    case ATTEST_MASK_DILATED:
      return Mask::dilated(node.dilation, anchor, node.offset);
    case ATTEST_MASK_ALL_OF:
    case ATTEST_MASK_ANY_OF:
      return combined(node, before, where);
    default:
      throw InputError(where, fmt::format("is of kind {}, which is not known", node.kind));
  }
}

}  // namespace

Mask given_mask(const attest_problem& given, const Problem& shape) {
  if (given.mask_count == 0) return Mask::full();
  if (given.mask_count < 0 || given.mask_count > static_cast<std::int64_t>(kMostParts)) {
    throw InputError("problem.mask_count",
                     fmt::format("is {}, expected 0 to {}", given.mask_count, kMostParts));
  }
  std::vector<Mask> masks;
  const auto* bytes = reinterpret_cast<const char*>(given.mask);
  for (std::int64_t n = 0; n < given.mask_count; ++n) {
    const std::string where = fmt::format("problem.mask[{}]", n);
    const auto* node = reinterpret_cast<const attest_mask*>(bytes);
    masks.push_back(mask_of(known_fields(node, kNodeBytes, where), shape, masks, where));
    bytes += given.mask->struct_size;
  }
  return std::move(masks.back());
}

}  // namespace attest
