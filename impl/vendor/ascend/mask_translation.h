// From Attest's masks to a sparse mode with its atten_mask, tokens and prefix.
#pragma once

#include <attest/kernel.h>

#include <cstdint>
#include <vector>

namespace attest::vendor::ascend {

// What the operators are told of a mask. In Attest a 1 attends, here it hides.
struct MaskChoice {
  std::int64_t sparse_mode = 0;
  std::vector<std::uint8_t> atten_mask;  // empty: none
  std::vector<std::int64_t> shape;
  std::int64_t pre_tokens = 2147483647, next_tokens = 2147483647;
  std::vector<std::int64_t> prefix;
};

// How a mask is wanted.
struct MaskForm {
  bool packed;                 // the call is TND, whose mask is one for all sequences and heads,
  std::int64_t queries, keys;  // of the longest ones
  bool contents;               // without, the shape alone, for the query of the workspace
};

MaskChoice choose_mask(const Problem& problem, const MaskForm& form);

}  // namespace attest::vendor::ascend
