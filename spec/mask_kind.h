// The kinds of masks in one table: what each is called, and what a node of it has in a request and
// in the plug-in ABI, beside the diagonal of those that are anchored and the ends of a band.
#pragma once

#include <span>
#include <string_view>

#include "spec/attest_plugin.h"
#include "spec/mask.h"

namespace attest {

struct MaskKind {
  // A number and a table of it, by their key in a request.
  struct Number {
    std::string_view key;
    Index Mask::*in_mask;
    std::int64_t attest_mask::*in_node;
  };
  struct Table {
    std::string_view key;
    attest_tensor attest_mask::*in_node;
  };

  Mask::Kind kind;
  std::string_view word;      // in requests and case files: "block_sparse"
  std::string_view declared;  // by testees, in features and limits: "block-sparse"
  attest_mask_kind in_abi;
  bool is_anchored = false;    // whether it counts from a corner
  bool asks_no_query = false;  // what it allows is the same for all queries
  bool combines = false;       // other masks
  std::span<const Number> numbers = {};
  std::span<const Table> tables = {};  // in the order of tables_of
};

std::span<const MaskKind> mask_kinds();
const MaskKind& about(Mask::Kind kind);
const MaskKind* mask_kind_called(std::string_view word);  // null if there is none

}  // namespace attest
