#include "impl/vendor/splash/mask_info.h"

#include <algorithm>
#include <stdexcept>

namespace attest::vendor::splash {
namespace {

// Of each line of blocks the places that are kept; -1: an empty place that fills it up.
using Kept = std::vector<std::vector<std::int64_t>>;

// Lines are rows, or columns where `across`; filled up in front where `at_the_front`.
Kept places_kept(const BlockTable& mask, bool across, bool at_the_front) {
  const std::int64_t lines = across ? mask.columns : mask.rows;
  const std::int64_t places = across ? mask.rows : mask.columns;
  Kept kept(static_cast<std::size_t>(lines));
  std::size_t longest = 0;
  for (std::int64_t line = 0; line < lines; ++line) {
    auto& of = kept[static_cast<std::size_t>(line)];
    for (std::int64_t place = 0; place < places; ++place) {
      if ((across ? mask.at(0, place, line) : mask.at(0, line, place)) != 0) of.push_back(place);
    }
    longest = std::max(longest, of.size());
  }
  // The real one is an assertion, which fails likewise.
  if (longest == 0) throw std::logic_error("assertion failed: the mask has no visible pair");
  for (auto& of : kept) {
    of.insert(at_the_front ? of.begin() : of.end(), longest - of.size(), -1);
  }
  return kept;
}

void keep(BlockTable& table, const Kept& kept, bool across) {
  const auto width = static_cast<std::int64_t>(kept[0].size());
  BlockTable shrunk(table.heads, across ? width : table.rows, across ? table.columns : width);
  for (std::int64_t head = 0; head < shrunk.heads; ++head) {
    for (std::int64_t row = 0; row < shrunk.rows; ++row) {
      for (std::int64_t column = 0; column < shrunk.columns; ++column) {
        const auto& of = kept[static_cast<std::size_t>(across ? column : row)];
        const std::int64_t place = of[static_cast<std::size_t>(across ? row : column)];
        if (place < 0) continue;
        shrunk.at(head, row, column) =
            across ? table.at(head, place, column) : table.at(head, row, place);
      }
    }
  }
  table = std::move(shrunk);
}

void shrink(MaskInfo& info, bool across) {
  const Kept kept = places_kept(info.block_mask, across, across);
  keep(info.block_mask, kept, across);
  keep(info.data_next, kept, across);
  if (info.mask_next) keep(*info.mask_next, kept, across);
}

}  // namespace

void shrink_mask_info(MaskInfo& info) { shrink(info, false); }
void shrink_mask_info_dkv(MaskInfo& info) { shrink(info, true); }

}  // namespace attest::vendor::splash
