// Random masks of all kinds, for properties in RapidCheck.
#pragma once

#include <rapidcheck.h>

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "spec/mask.h"
#include "spec/mask_kind.h"
#include "spec/problem.h"
#include "tests/any.h"

namespace attest {

// A table of ones and few zeros.
inline std::vector<std::uint8_t> any_table(const Shape& shape) {
  std::mt19937 bits(*rc::gen::arbitrary<unsigned>());
  std::vector<std::uint8_t> table;
  for (Index i = 0; i < element_count(shape); ++i) table.push_back(bits() % 3 != 0);
  return table;
}

inline SegmentNumbers any_segments(Index batch, Index length) {
  SegmentNumbers numbers{.batches = one_or(batch), .length = length};
  const auto run = static_cast<unsigned>(*rc::gen::element(1, 3, 20, 70));
  std::mt19937 bits(*rc::gen::arbitrary<unsigned>());
  std::int32_t number = 0;
  for (Index n = 0; n < numbers.batches * length; ++n) {
    if (bits() % run == 0) number = static_cast<std::int32_t>(bits() % 4) - 1;
    numbers.number.push_back(number);
  }
  return numbers;
}

// Of any kind; unions and intersections nest as deep as `depth`.
inline Mask any_mask(const Problem& p, int depth = 2) {
  const Anchor anchor = any_anchor();
  const auto offset = within<Index>(-4, 5);
  const auto width = [] { return within<Index>(0, *rc::gen::element<Index>(5, 70)); };
  std::vector<Mask::Kind> kinds;
  for (const MaskKind& each : mask_kinds()) {
    if (depth > 0 || !each.combines) kinds.push_back(each.kind);
  }
  switch (*rc::gen::elementOf(kinds)) {
    case Mask::Kind::full:
      break;
    case Mask::Kind::band:
      if (*rc::gen::arbitrary<bool>()) return Mask::causal(anchor, offset);
      return Mask::window(width(), width(), anchor, offset);
    case Mask::Kind::dense: {
      const Shape shape{one_or(p.batch), one_or(p.query_heads), one_or(p.query_len),
                        one_or(p.key_len)};
      return Mask::dense({shape, any_table(shape)});
    }
    case Mask::Kind::prefix: {
      std::vector<Index> lens(static_cast<std::size_t>(one_or(p.batch)));
      for (Index& len : lens) len = within<Index>(0, p.key_len + 1);
      return Mask::prefix(lens);
    }
    case Mask::Kind::segments: {
      SegmentNumbers queries = any_segments(p.batch, p.query_len);
      return Mask::documents({std::move(queries), any_segments(p.batch, p.key_len)});
    }
    case Mask::Kind::block_sparse: {
      const Index rows = *rc::gen::element<Index>(1, 2, 3, 16, 64, 200);
      const Index columns = *rc::gen::element<Index>(1, 2, 5, 16, 64, 200);
      const Shape shape{one_or(p.batch), one_or(p.query_heads), (p.query_len + rows - 1) / rows,
                        (p.key_len + columns - 1) / columns};
      return Mask::block_sparse(rows, columns, {shape, any_table(shape)});
    }
    case Mask::Kind::dilated:
      return Mask::dilated(within<Index>(1, 5), anchor, offset);
    case Mask::Kind::all_of:
      return Mask::all_of({any_mask(p, depth - 1), any_mask(p, depth - 1)});
    case Mask::Kind::any_of:
      return Mask::any_of({any_mask(p, depth - 1), any_mask(p, depth - 1)});
  }
  return Mask::full();
}

}  // namespace attest
