#include "spec/mask_kind.h"

#include <algorithm>

#include "spec/assert.h"

namespace attest {
namespace {

using Kind = Mask::Kind;

constexpr MaskKind::Table kTable[] = {{"table", &attest_mask::table}};
constexpr MaskKind::Table kTwoTables[] = {{"query_table", &attest_mask::table},
                                          {"key_table", &attest_mask::table2}};
constexpr MaskKind::Number kBlocks[] = {
    {"block_query", &Mask::block_query, &attest_mask::block_query},
    {"block_key", &Mask::block_key, &attest_mask::block_key}};
constexpr MaskKind::Number kDilation[] = {{"dilation", &Mask::dilation, &attest_mask::dilation}};

// In the order of the enumerators.
constexpr MaskKind kKinds[] = {
    {.kind = Kind::full,
     .word = "full",
     .declared = "full",
     .in_abi = ATTEST_MASK_FULL,
     .asks_no_query = true},
    {.kind = Kind::band,
     .word = "band",
     .declared = "window",
     .in_abi = ATTEST_MASK_BAND,
     .is_anchored = true},
    {.kind = Kind::dense,
     .word = "dense",
     .declared = "dense-mask",
     .in_abi = ATTEST_MASK_DENSE,
     .tables = kTable},
    {.kind = Kind::prefix,
     .word = "prefix",
     .declared = "prefix",
     .in_abi = ATTEST_MASK_PREFIX,
     .asks_no_query = true,
     .tables = kTable},
    {.kind = Kind::segments,
     .word = "segments",
     .declared = "segments",
     .in_abi = ATTEST_MASK_SEGMENTS,
     .tables = kTwoTables},
    {.kind = Kind::block_sparse,
     .word = "block_sparse",
     .declared = "block-sparse",
     .in_abi = ATTEST_MASK_BLOCK_SPARSE,
     .numbers = kBlocks,
     .tables = kTable},
    {.kind = Kind::dilated,
     .word = "dilated",
     .declared = "dilated",
     .in_abi = ATTEST_MASK_DILATED,
     .is_anchored = true,
     .numbers = kDilation},
    {.kind = Kind::all_of,
     .word = "all_of",
     .declared = "mask-and",
     .in_abi = ATTEST_MASK_ALL_OF,
     .combines = true},
    {.kind = Kind::any_of,
     .word = "any_of",
     .declared = "mask-or",
     .in_abi = ATTEST_MASK_ANY_OF,
     .combines = true},
};

}  // namespace

std::span<const MaskKind> mask_kinds() { return kKinds; }

const MaskKind& about(Mask::Kind kind) {
  const MaskKind& found = kKinds[static_cast<std::size_t>(kind)];
  ATTEST_ASSERT(found.kind == kind);
  return found;
}

const MaskKind* mask_kind_called(std::string_view word) {
  const auto found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                  [&](const MaskKind& each) { return each.word == word; });
  return found == std::end(kKinds) ? nullptr : found;
}

}  // namespace attest
