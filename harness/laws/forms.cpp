// One problem written in two ways: LAW-9 and LAW-10.
#include <array>

#include "harness/judge/alone.h"
#include "harness/laws/law.h"
#include "harness/laws/variant.h"

namespace attest::laws {
namespace {

// ---- A group of heads is a key head that is repeated (LAW-9) -----------------------------------

std::string unmet_by_repeated_heads(const Problem& p, const Inputs&) {
  return p.key_heads == p.query_heads ? "no key head has several query heads" : "";
}

void repeated_heads(Experiment& experiment) {
  const Sample& first = experiment.first();
  const Problem& p = first.problem();
  const Index group = p.group_size();
  Variant variant = {p, first.inputs()};
  variant.problem.key_heads = p.query_heads;
  const auto repeated = [&](const Values& values, const Shape& shape) {
    return tabulated(
        shape, [&](Index b, Index h, Index s, Index c) { return values.at(b, h / group, s, c); });
  };
  variant.inputs.k = repeated(first.inputs().k, variant.problem.k_shape());
  variant.inputs.v = repeated(first.inputs().v, variant.problem.v_shape());
  const Sample* many = experiment.attempt(std::move(variant));
  if (!many) return;
  const std::string how = "with a key head for each query head";
  for (const TensorName tensor : kReturnedTensors) {
    if (!is_of_keys(tensor)) experiment.expect_same(first, *many, tensor, how);
  }
  for (const TensorName tensor : kKeyTensors) {
    if (!many->has(tensor)) continue;
    const Result ours = first[tensor], theirs = (*many)[tensor];
    for (Index n = 0; n < element_count(ours.shape()); ++n) {
      const At here = coordinates(ours.shape(), n);
      Known sum = exactly(0);
      for (Index member = 0; member < group; ++member) {
        sum = sum + theirs.at({here[0], here[1] * group + member, here[2], here[3]});
      }
      experiment.expect_equal(tensor, here, ours.at(here), sum, "as the sum " + how);
    }
  }
}

// ---- Packed, paged, padded, alone; other strides (LAW-10) --------------------------------------

std::string unmet_by_padded(const Problem& p, const Inputs&) {
  return !p.packed || p.paging.page_size > 0 ? "its keys are not packed" : "";
}
std::string unmet_by_contiguous(const Problem& p, const Inputs&) {
  return p.paging.page_size == 0 ? "it has no pages" : "";
}

// Without packing and pages: of each batch element, what lies beyond its lengths is padding.
void compare_padded(Experiment& experiment, const std::string& how) {
  const Sample& first = experiment.first();
  const Problem& p = first.problem();
  const Selection all = {.query_len = p.query_len, .key_len = p.key_len};
  const Sample* padded = experiment.attempt(selected(p, first.inputs(), all, p.mask));
  if (!padded) return;
  const auto within = [](Index length, Index b, Index n) {
    return n < length ? std::optional(Place{b, n}) : std::nullopt;
  };
  experiment.expect_same_rows(
      first, *padded, [&](Index b, Index i) { return within(p.lengths(b).query, b, i); }, how);
  experiment.expect_same_keys(
      first, *padded, [&](Index b, Index j) { return within(p.lengths(b).key, b, j); }, how);
  experiment.expect_same(first, *padded, TensorName::dbias, how);
  experiment.expect_same(first, *padded, TensorName::dsink, how);
}

void padded(Experiment& experiment) {
  compare_padded(experiment, "where batch elements are padded");
}
void contiguous(Experiment& experiment) { compare_padded(experiment, "where keys lie in a row"); }

std::string unmet_by_alone(const Problem& p, const Inputs&) {
  return p.batch < 2 ? "it is alone" : "";
}

void alone_in_its_batch(Experiment& experiment) {
  const Sample& first = experiment.first();
  const Problem& p = first.problem();
  for (Index b = 0; b < p.batch; ++b) {
    Alone one = alone(p, first.inputs(), b);
    const Sample* sample = experiment.attempt({std::move(one.problem), std::move(one.inputs)});
    if (!sample) return;
    const auto of_whole = [b](Index, Index n) { return Place{b, n}; };
    const std::string how = "alone in its batch";
    experiment.expect_same_rows(first, *sample, of_whole, how);
    experiment.expect_same_keys(first, *sample, of_whole, how);
  }
}

void layouts(Experiment& experiment) {
  const Sample& first = experiment.first();
  const Problem& p = first.problem();
  Variant variant = {p, first.inputs()};
  const bool usual = p.layouts.q == Layout();
  const Layout other = usual ? Layout::parse("bshd gap=3") : Layout();
  variant.problem.layouts = {other, other, other, other, other, other, other, other, {}};
  if (p.bias_shape) variant.problem.layouts.bias = other;
  const Sample* sample = experiment.attempt(std::move(variant));
  if (!sample) return;
  for (const TensorName tensor : kReturnedTensors) {
    experiment.expect_same(first, *sample, tensor, "in another layout");
  }
}

std::string unmet_by_nothing(const Problem&, const Inputs&) { return ""; }

constexpr std::array kLawsOfForms = {
    Law{.name = "repeated_heads", .unmet = unmet_by_repeated_heads, .check = repeated_heads},
    Law{.name = "padded", .unmet = unmet_by_padded, .check = padded},
    Law{.name = "contiguous", .unmet = unmet_by_contiguous, .check = contiguous},
    Law{.name = "alone", .unmet = unmet_by_alone, .check = alone_in_its_batch},
    Law{.name = "layouts", .unmet = unmet_by_nothing, .check = layouts},
};

}  // namespace

std::span<const Law> laws_of_forms() { return kLawsOfForms; }

}  // namespace attest::laws
