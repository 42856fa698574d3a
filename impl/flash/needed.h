// Which blocks of scores have to be computed. Only a band is looked into here, as it is what makes
// rows differ in length; what other masks hide, BlockMask leaves out.
#pragma once

#include <algorithm>
#include <vector>

#include "impl/call.h"
#include "impl/schedule.h"

namespace attest::impl {

// All scores of a batch element, unless the mask is one band.
inline BandOfScores band_of(const Call& call, std::int64_t b) {
  constexpr std::int64_t kUnbounded = std::int64_t{1} << 60;
  const Lengths& lengths = call.lengths_of(b);
  BandOfScores band = {lengths.query, lengths.key, kUnbounded, kUnbounded, 0};
  if (call.mask.size() == 1 && call.mask[0].kind == ATTEST_MASK_BAND) {
    const attest_mask& node = call.mask[0];
    band.left = std::min(node.left, kUnbounded);
    band.right = std::min(node.right, kUnbounded);
    band.shift = node.offset + (node.anchored_bottom_right ? lengths.key - lengths.query : 0);
  }
  return band;
}

// The same with keys down and queries across: key j is seen by query i if it sees key j.
inline BandOfScores transposed(const BandOfScores& band) {
  return {band.keys, band.queries, band.right, band.left, -band.shift};
}

}  // namespace attest::impl
