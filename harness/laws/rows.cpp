// Which rows there are, and how their band is put: LAW-7 and LAW-8.
#include <algorithm>
#include <array>

#include "harness/laws/law.h"
#include "harness/laws/variant.h"
#include "spec/mask_kind.h"

namespace attest::laws {
namespace {

std::string unmet_by_lengths(const Problem& p) {
  if (p.packed || p.paging.page_size > 0) return "positions are packed or paged";
  if (!p.query_lens.empty()) return "the batch elements have query lengths of their own";
  if (p.query_len < 2) return "there are fewer than two queries";
  return "";
}

// ---- The first rows of a causal problem, alone (LAW-7) -----------------------------------------

// How many keys the first `rows` rows reach.
Index reach_of(const Mask& mask, Index rows) { return rows + mask.offset + mask.right; }

std::string unmet_by_causal_prefix(const Problem& p, const Inputs&) {
  if (auto why = unmet_by_lengths(p); !why.empty()) return why;
  if (p.mask.kind != Mask::Kind::band || p.mask.anchor != Anchor::top_left ||
      p.mask.right == kUnbounded) {
    return "its rows are not bounded by a diagonal from the top left";
  }
  if (!p.key_lens.empty()) return "the batch elements have key lengths of their own";
  if (p.slopes_shape) return "ALiBi counts from the end of the keys";
  if (reach_of(p.mask, (p.query_len + 1) / 2) < 1) return "the first rows see no key";
  return "";
}

void causal_prefix(Experiment& experiment) {
  const Sample& first = experiment.first();
  const Problem& p = first.problem();
  const Index rows = (p.query_len + 1) / 2;
  const Selection selection = {.query_len = rows,
                               .key_len = std::min(p.key_len, reach_of(p.mask, rows))};
  const Sample* prefix = experiment.attempt(selected(p, first.inputs(), selection, p.mask));
  if (!prefix) return;
  experiment.expect_same_rows(first, *prefix, same_place,
                              "without the queries and keys that come later");
}

// ---- The last row, as a decoding step computes it (LAW-7) --------------------------------------

std::string unmet_by_decode_row(const Problem& p, const Inputs&) {
  if (auto why = unmet_by_lengths(p); !why.empty()) return why;
  const MaskKind& kind = about(p.mask.kind);
  const bool at_the_end = kind.is_anchored && p.mask.anchor == Anchor::bottom_right;
  if (at_the_end || kind.asks_no_query) return "";
  return "the mask does not place its last row by the end of the keys";
}

void decode_row(Experiment& experiment) {
  const Sample& first = experiment.first();
  const Problem& p = first.problem();
  const Index last = p.query_len - 1;
  const Selection selection = {
      .query_len = 1, .key_len = p.key_len, .query = [=](Index, Index) { return last; }};
  const Sample* step = experiment.attempt(selected(p, first.inputs(), selection, p.mask));
  if (!step) return;
  experiment.expect_same_rows(
      first, *step,
      [&](Index b, Index) {
        return Place{b, last};
      },
      "as the only row");
}

// ---- A window wider than everything (LAW-8) ----------------------------------------------------

std::string unmet_by_wide_window(const Problem& p, const Inputs&) {
  const bool unbounded = p.mask.kind == Mask::Kind::full ||
                         (p.mask.kind == Mask::Kind::band && p.mask.left == kUnbounded);
  return unbounded ? "" : "the mask is no causal one, and not full";
}

void wide_window(Experiment& experiment) {
  const Sample& first = experiment.first();
  const Problem& p = first.problem();
  Variant variant = {p, first.inputs()};
  Mask& mask = variant.problem.mask;
  if (mask.kind == Mask::Kind::full) mask = Mask::window(0, kUnbounded, Anchor::top_left);
  mask.left = p.query_len + p.key_len + std::abs(mask.offset);
  if (mask.right == kUnbounded) mask.right = mask.left;
  const Sample* wide = experiment.attempt(std::move(variant));
  if (!wide) return;
  for (const TensorName tensor : kReturnedTensors) {
    experiment.expect_same(first, *wide, tensor, "under a window that is wider than all");
  }
}

constexpr std::array kLawsOfRows = {
    Law{.name = "causal_prefix", .unmet = unmet_by_causal_prefix, .check = causal_prefix},
    Law{.name = "decode_row", .unmet = unmet_by_decode_row, .check = decode_row},
    Law{.name = "wide_window", .unmet = unmet_by_wide_window, .check = wide_window},
};

}  // namespace

std::span<const Law> laws_of_rows() { return kLawsOfRows; }

}  // namespace attest::laws
