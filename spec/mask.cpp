#include "spec/mask.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace attest {
namespace {

std::string anchor_to_string(const Mask& mask) {
  std::string text = fmt::format(" {}", name(mask.anchor));
  if (mask.offset != 0) text += fmt::format(" offset={}", mask.offset);
  return text;
}

std::string band_to_string(const Mask& mask) {
  std::string text;
  if (is_causal(mask)) {
    text = "causal";
  } else {
    const auto bound = [](const char* sign, Index width) {
      return width == kUnbounded ? std::string("*") : fmt::format("{}{}", sign, width);
    };
    text = fmt::format("window {}..{}", bound("-", mask.left), bound("", mask.right));
  }
  return text + anchor_to_string(mask);
}

void add_tables(const Mask& mask, std::vector<MaskTable>& tables) {
  switch (mask.kind) {
    case Mask::Kind::dense:
    case Mask::Kind::block_sparse:
      tables.push_back({mask.table->shape, &mask.table->allowed});
      break;
    case Mask::Kind::prefix:
      tables.push_back({{static_cast<Index>(mask.prefix_lens.size()), 1, 1, 1}, &mask.prefix_lens});
      break;
    case Mask::Kind::segments:
      for (const SegmentNumbers* side : {&mask.segments->query, &mask.segments->key}) {
        tables.push_back({{side->batches, 1, side->length, 1}, &side->number});
      }
      break;
    case Mask::Kind::full:
    case Mask::Kind::band:
    case Mask::Kind::dilated:
      break;
    case Mask::Kind::all_of:
    case Mask::Kind::any_of:
      for (const Mask& part : mask.parts) add_tables(part, tables);
      break;
  }
}

// A table's rows and columns for one batch element.
std::shared_ptr<const DenseMask> of_batch(const DenseMask& whole, Index b, Index rows,
                                          Index columns) {
  const Box box = {{broadcast(whole.shape[kBatch], b), 0, 0, 0},
                   {1, whole.shape[1], rows, columns}};
  return std::make_shared<const DenseMask>(
      DenseMask{.shape = box.size, .allowed = cut(whole.allowed, whole.shape, box)});
}

SegmentNumbers of_batch(const SegmentNumbers& whole, Index b, Index length) {
  const Box box = {{broadcast(whole.batches, b), 0, 0, 0}, {1, 1, 1, length}};
  return {.batches = 1,
          .length = length,
          .number = cut(whole.number, {whole.batches, 1, 1, whole.length}, box)};
}

}  // namespace

Mask of_batch(Mask mask, Index b, const Lengths& sizes) {
  switch (mask.kind) {
    case Mask::Kind::dense: {
      const Shape& shape = mask.table->shape;
      mask.table =
          of_batch(*mask.table, b, shape[2] == 1 ? 1 : sizes.query, shape[3] == 1 ? 1 : sizes.key);
      break;
    }
    case Mask::Kind::block_sparse:
      mask.table = of_batch(*mask.table, b, ceil_div(sizes.query, mask.block_query),
                            ceil_div(sizes.key, mask.block_key));
      break;
    case Mask::Kind::prefix:
      mask.prefix_lens = {std::min(mask.prefix_of(b), sizes.key)};
      break;
    case Mask::Kind::segments:
      mask.segments = std::make_shared<const Segments>(
          Segments{.query = of_batch(mask.segments->query, b, sizes.query),
                   .key = of_batch(mask.segments->key, b, sizes.key)});
      break;
    case Mask::Kind::full:
    case Mask::Kind::band:
    case Mask::Kind::dilated:
    case Mask::Kind::all_of:
    case Mask::Kind::any_of:
      break;  // the same for every batch element, or by its parts
  }
  for (Mask& part : mask.parts) part = of_batch(std::move(part), b, sizes);
  return mask;
}

bool operator==(const Mask& a, const Mask& b) {
  const auto same = [](const auto& one, const auto& other) {
    return one == other || (one && other && *one == *other);
  };
  return a.kind == b.kind && a.anchor == b.anchor && a.offset == b.offset && a.left == b.left &&
         a.right == b.right && same(a.table, b.table) && a.block_query == b.block_query &&
         a.block_key == b.block_key && a.prefix_lens == b.prefix_lens &&
         same(a.segments, b.segments) && a.dilation == b.dilation && a.parts == b.parts;
}

std::vector<MaskTable> tables_of(const Mask& mask) {
  std::vector<MaskTable> tables;
  add_tables(mask, tables);
  return tables;
}

std::string to_string(const Mask& mask) {
  switch (mask.kind) {
    case Mask::Kind::full:
      return "full";
    case Mask::Kind::band:
      return band_to_string(mask);
    case Mask::Kind::dense:
      return fmt::format("dense [{}]", fmt::join(mask.table->shape, ","));
    case Mask::Kind::prefix:
      return fmt::format("prefix [{}]", fmt::join(mask.prefix_lens, ","));
    case Mask::Kind::segments:
      return "segments";
    case Mask::Kind::block_sparse:
      return fmt::format("block_sparse {}x{} [{}]", mask.block_query, mask.block_key,
                         fmt::join(mask.table->shape, ","));
    case Mask::Kind::dilated:
      return fmt::format("dilated {}{}", mask.dilation, anchor_to_string(mask));
    case Mask::Kind::all_of:
    case Mask::Kind::any_of: {
      std::vector<std::string> parts;
      for (const Mask& part : mask.parts) parts.push_back(to_string(part));
      return fmt::format("({})",
                         fmt::join(parts, mask.kind == Mask::Kind::all_of ? " and " : " or "));
    }
  }
  return "?";
}

}  // namespace attest
