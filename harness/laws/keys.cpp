// Which keys there are, and in which order: LAW-1, LAW-6, and what all keys have in common, LAW-2.
#include <algorithm>
#include <array>

#include "harness/laws/law.h"
#include "harness/laws/variant.h"

namespace attest::laws {
namespace {

bool lies_apart(const Problem& p) { return p.packed || p.paging.page_size > 0; }

// ---- Keys have no order (LAW-1) ----------------------------------------------------------------

std::string unmet_by_permuted_keys(const Problem& p, const Inputs&) {
  if (lies_apart(p)) return "keys are packed or paged";
  if (p.slopes_shape) return "ALiBi tells keys by their places";
  if (p.key_len < 2) return "there are fewer than two keys";
  const bool shared = p.bias_shape && (*p.bias_shape)[0] == 1 && p.batch > 1;
  if (shared && !p.key_lens.empty()) return "the batch shares a bias over keys of several lengths";
  return "";
}

void permuted_keys(Experiment& experiment) {
  const Sample& first = experiment.first();
  const Problem& p = first.problem();
  // Backwards, and turned, so that no key but the odd one stays in its tile.
  const auto key = [&](Index b, Index j) {
    const Index length = p.lengths(b).key;
    return j < length ? (length - 1 - j + length / 3) % length : j;
  };
  const Selection selection = {.query_len = p.query_len, .key_len = p.key_len, .key = key};
  const Sample* other =
      experiment.attempt(selected(p, first.inputs(), selection, mask_of(p, selection)));
  if (!other) return;
  const std::string how = "with the keys in another order";
  experiment.expect_same_rows(first, *other, same_place, how);
  experiment.expect_same_keys(
      first, *other,
      [&](Index b, Index j) {
        return Place{b, key(b, j)};
      },
      how);
  experiment.expect_same(first, *other, TensorName::dsink, how);
  if (!other->has(TensorName::dbias)) return;
  const Result ours = first[TensorName::dbias], theirs = (*other)[TensorName::dbias];
  for (Index n = 0; n < element_count(theirs.shape()); ++n) {
    const At there = coordinates(theirs.shape(), n);
    At here = there;
    if (ours.shape()[3] > 1) here[3] = key(there[0], there[3]);
    experiment.expect_equal(TensorName::dbias, here, ours.at(here), theirs.at(there), how);
  }
}

// ---- One vector added to all keys (LAW-2) ------------------------------------------------------

std::string unmet_by_shifted_keys(const Problem& p, const Inputs&) {
  if (p.softcap != 0) return "a softcap does not commute with a shift";
  if (p.sink) return "a sink is not shifted with the keys";
  return "";
}

void shifted_keys(Experiment& experiment) {
  const Sample& first = experiment.first();
  Variant plain = {first.problem(), first.inputs()};
  plain.inputs.k = coarse(plain.inputs.k);
  Variant moved = plain;
  // Another vector for each key head and batch element: those of one are -2, 0 and 2.
  const auto shift = [](Index b, Index h, Index c) {
    return static_cast<double>((b + h + c) % 3 - 1) * 2;
  };
  const bool shared_pages = first.problem().packed || first.problem().paging.page_size > 0;
  moved.inputs.k = tabulated(plain.inputs.k.shape, [&](Index b, Index h, Index s, Index c) {
    return plain.inputs.k.at(b, h, s, c) + shift(shared_pages ? 0 : b, h, c);
  });
  const Sample* before = experiment.attempt(plain);
  const Sample* after = before ? experiment.attempt(std::move(moved)) : nullptr;
  if (!after) return;
  const Problem& p = first.problem();
  const std::string how = "with one vector added to all keys";
  for (const TensorName tensor : kReturnedTensors) {
    // LSE follows the shift; with dLSE, where sum dS is not 0, so does dQ.
    if (tensor == TensorName::lse || (p.d_lse && tensor == TensorName::dq)) continue;
    experiment.expect_same(*before, *after, tensor, how);
  }
  if (!after->has(TensorName::lse)) return;
  for_each_query(p, [&](const Position& row, const Place& place) {
    if (!first.sees_any(row)) return;
    const Index key_head = row.head / p.group_size();
    Known product = exactly(0);
    for (Index c = 0; c < p.head_dim; ++c) {
      product = product + exactly(plain.inputs.q.at(place.batch, row.head, place.position, c) *
                                  shift(shared_pages ? 0 : row.batch, key_head, c));
    }
    experiment.expect_equal(TensorName::lse, {place.batch, row.head, place.position, 0},
                            before->lse(row) + p.scale * product, after->lse(row), how);
  });
}

// ---- Keys in two parts, merged by LSE (LAW-6) --------------------------------------------------

std::string unmet_by_split_keys(const Problem& p, const Inputs&) {
  if (lies_apart(p)) return "keys are packed or paged";
  if (p.slopes_shape) return "ALiBi counts from the end of the keys";
  if (!p.key_lens.empty()) return "the batch elements have lengths of their own";
  if (p.key_len < 2) return "there are fewer than two keys";
  return "";
}

void split_keys(Experiment& experiment) {
  const Sample& first = experiment.first();
  Problem p = first.problem();
  p.backward = p.d_lse = false;
  const Index half = (p.key_len + 1) / 2;
  std::array<const Sample*, 2> parts = {};
  for (std::size_t n = 0; n < 2; ++n) {
    const Index begin = n == 0 ? 0 : half;
    const Selection selection = {.query_len = p.query_len,
                                 .key_len = n == 0 ? half : p.key_len - half,
                                 .key = [=](Index, Index j) { return begin + j; }};
    Variant part = selected(p, first.inputs(), selection, mask_of(p, selection));
    if (n == 1) part.problem.sink = false;  // it joins once
    parts[n] = experiment.attempt(std::move(part));
    if (!parts[n]) return;
  }
  const std::string how = "merged of two halves of the keys";
  for_each_query(p, [&](const Position& row, const Place&) {
    const Known a = parts[0]->lse(row), b = parts[1]->lse(row);
    At at = {row.batch, row.head, row.query, 0};
    experiment.expect_equal(TensorName::lse, at, first.lse(row), log_sum_exp(a, b), how);
    const Known weight = weight_beside(a, b);
    for (at[3] = 0; at[3] < p.value_dim; ++at[3]) {
      const Known merged = mixture(weight, parts[0]->o(row, at[3]), parts[1]->o(row, at[3]));
      experiment.expect_equal(TensorName::o, at, first.o(row, at[3]), merged, how);
    }
  });
}

constexpr std::array kLawsOfKeys = {
    Law{.name = "permuted_keys", .unmet = unmet_by_permuted_keys, .check = permuted_keys},
    Law{.name = "shifted_keys", .unmet = unmet_by_shifted_keys, .check = shifted_keys},
    Law{.name = "split_keys", .unmet = unmet_by_split_keys, .check = split_keys, .needs_lse = true},
};

}  // namespace

std::span<const Law> laws_of_keys() { return kLawsOfKeys; }

}  // namespace attest::laws
