// The same bits in another form, where that is promised: DET-4 to DET-7. Of O and LSE.
#include <algorithm>
#include <array>

#include "harness/laws/law.h"
#include "harness/laws/variant.h"

namespace attest::laws {
namespace {

// Rows that are counted from the end, or not at all, whose mask is no table.
std::string unmet_by_rows(const Problem& p) {
  if (p.packed || p.paging.page_size > 0) return "positions are packed or paged";
  if (!p.query_lens.empty()) return "the batch elements have query lengths of their own";
  if (p.query_len < 2) return "there are fewer than two queries";
  const bool at_the_end = p.mask.kind == Mask::Kind::band && p.mask.anchor == Anchor::bottom_right;
  if (p.mask.kind != Mask::Kind::full && !at_the_end) {
    return "its rows are not placed by the end of the keys";
  }
  return "";
}

// ---- Packed, padded, and padded more (DET-4); in pages or in a row (DET-5) ----------------------

std::string unmet_by_packed_bits(const Problem& p, const Inputs&) {
  return !p.packed || p.paging.page_size > 0 ? "its keys are not packed" : "";
}
std::string unmet_by_paged_bits(const Problem& p, const Inputs&) {
  return p.paging.page_size == 0 ? "it has no pages" : "";
}
std::string unmet_by_padded_bits(const Problem& p, const Inputs&) {
  if (p.packed || p.paging.page_size > 0) return "positions are packed or paged";
  if (p.bias_shape) return "its bias would be wider";
  if (p.mask.kind != Mask::Kind::full && p.mask.kind != Mask::Kind::band)
    return "its mask is wider";
  return "";
}

// With `more` positions beyond the longest of either.
void compare_padded(Experiment& experiment, Lengths more, const std::string& how) {
  const Sample& first = experiment.first();
  const Problem& p = first.problem();
  const Selection all = {.query_len = p.query_len + more.query, .key_len = p.key_len + more.key};
  Variant variant = selected(p, first.inputs(), all, p.mask);
  const auto batch = static_cast<std::size_t>(p.batch);
  Problem& padded = variant.problem;
  if (more.query > 0 && p.query_lens.empty()) {
    padded.query_lens = std::vector<Index>(batch, p.query_len);
  }
  if (more.key > 0 && p.key_lens.empty()) padded.key_lens = std::vector<Index>(batch, p.key_len);
  const Sample* other = experiment.attempt(std::move(variant));
  if (!other) return;
  experiment.expect_same_rows(
      first, *other,
      [&](Index b, Index i) {
        return i < p.lengths(b).query ? std::optional(Place{b, i}) : std::nullopt;
      },
      how, true);
}

void packed_bits(Experiment& experiment) {
  compare_padded(experiment, {.query = 0, .key = 0}, "where batch elements are padded");
}
void paged_bits(Experiment& experiment) {
  compare_padded(experiment, {.query = 0, .key = 0}, "where keys lie in a row");
}
void padded_bits(Experiment& experiment) {
  compare_padded(experiment, {.query = 5, .key = 67}, "with more padding");
}

// ---- In one call, in two, as a decoding step (DET-6, DET-7) -------------------------------------

// The rows from `begin` on, so many, by themselves, with the keys up to the one that the last of
// them stands for, where the mask counts so.
void compare_rows(Experiment& experiment, Index begin, Index rows, const std::string& how) {
  const Sample& first = experiment.first();
  const Problem& p = first.problem();
  const Index later = p.mask.kind == Mask::Kind::full ? 0 : p.query_len - (begin + rows);
  const Selection selection = {.query_len = rows,
                               .key_len = p.key_len - later,
                               .query = [=](Index, Index i) { return begin + i; }};
  const Sample* part = experiment.attempt(selected(p, first.inputs(), selection, p.mask));
  if (!part) return;
  experiment.expect_same_rows(
      first, *part,
      [=](Index b, Index i) {
        return Place{b, begin + i};
      },
      how, true);
}

std::string unmet_by_chunk_bits(const Problem& p, const Inputs&) {
  if (auto why = unmet_by_rows(p); !why.empty()) return why;
  if (!p.key_lens.empty()) return "the batch elements have key lengths of their own";
  if (p.slopes_shape) return "ALiBi counts from the end of the keys";
  return p.key_len < p.query_len ? "there are fewer keys than queries" : "";
}

void chunk_bits(Experiment& experiment) {
  const Index all = experiment.first().problem().query_len, some = (2 * all + 2) / 3;
  compare_rows(experiment, 0, some, "as the first of two chunks");
  compare_rows(experiment, some, all - some, "as the second of two chunks");
}

std::string unmet_by_decode_bits(const Problem& p, const Inputs&) { return unmet_by_rows(p); }

void decode_bits(Experiment& experiment) {
  const Index last = experiment.first().problem().query_len - 1;
  compare_rows(experiment, last, 1, "as the only row");
}

constexpr Law in_form(std::string_view name,
                      std::string (*unmet)(const Problem& problem, const Inputs& inputs),
                      void (*check)(Experiment& experiment)) {
  return {.name = name, .unmet = unmet, .check = check, .needs_invariance = true, .in_bits = true};
}

constexpr std::array kLawsOfInvariance = {
    in_form("packed_bits", unmet_by_packed_bits, packed_bits),
    in_form("padded_bits", unmet_by_padded_bits, padded_bits),
    in_form("paged_bits", unmet_by_paged_bits, paged_bits),
    in_form("chunk_bits", unmet_by_chunk_bits, chunk_bits),
    in_form("decode_bits", unmet_by_decode_bits, decode_bits),
};

}  // namespace

std::span<const Law> laws_of_invariance() { return kLawsOfInvariance; }

}  // namespace attest::laws
