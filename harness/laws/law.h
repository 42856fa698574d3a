// The laws: what must hold between the results of several calls, or within those of one (SPEC.md,
// LAW-1 to LAW-16, and HIDE-1, DET-1, DET-4 to DET-7, DROP-3, SOFTMAX-2). A law is one entry in the
// file of its family, with the function that tries it; cases/laws.cpp has its name and its clause.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/laws/experiment.h"

namespace attest::laws {

struct Law {
  std::string_view name;
  // Why it does not apply to a problem with such inputs; empty if it does.
  std::string (*unmet)(const Problem& problem, const Inputs& inputs);
  void (*check)(Experiment& experiment);
  bool needs_lse = false;
  bool needs_lse_of_sinks = false;  // where there is a sink, whose share is told by LSE alone
  bool needs_determinism = false;   // says nothing of kernels that do not declare it
  bool needs_invariance = false;    // nor of those that do not declare that, of forms
  bool knows_drawing = false;       // applies to dropout that is generated
  // Of a deterministic kernel it compares bits alone, and so needs no bound.
  bool in_bits = false;
};

// The families, a file each.
// Which keys there are, in which order: permuted_keys, shifted_keys, split_keys.
std::span<const Law> laws_of_keys();
// O as a weighted mean of V: linear_values, ones, identity_values, hull, finite, zero_query,
// loud_key.
std::span<const Law> laws_of_values();
// What makes the scores: row_bias, rescaled_query, sink_as_key, alibi_as_bias, huge_softcap.
std::span<const Law> laws_of_scores();
// Which rows there are: causal_prefix, decode_row, wide_window.
std::span<const Law> laws_of_rows();
// One problem written in two ways: repeated_heads, padded, contiguous, alone, layouts.
std::span<const Law> laws_of_forms();
// What must not matter: hidden_keys, unseen_keys, after_others, drawn_as_given.
std::span<const Law> laws_of_isolation();
// Sums, zeros and linearity: linear_gradient, zero_loss, value_sums, key_sums, zero_scores,
// logit_sums.
std::span<const Law> laws_of_gradients();
// The same bits in another form: packed_bits, padded_bits, paged_bits, chunk_bits, decode_bits.
std::span<const Law> laws_of_invariance();
// Gradients against differences: directions.
std::span<const Law> laws_of_directions();

std::vector<const Law*> all_laws();

// Why the law does not apply to a problem, be it for reasons of its own or of all laws.
std::string unmet(const Law& law, const Problem& problem, const Inputs& inputs);

// Of these laws, those that compare bits alone: what holds whatever the arithmetic is.
std::vector<std::string> in_bits(const std::vector<std::string>& names,
                                 const Arithmetic& arithmetic);

// What one of these laws needs of a problem and the testee does not promise: "lse",
// "deterministic" or "form_invariant".
std::optional<std::string> missing_promise(const std::vector<std::string>& names,
                                           const Problem& problem, const Description& testee,
                                           const Arithmetic& arithmetic);

// Tries the laws of these names on a problem and what the testee made of it: the first that is
// broken, or a trial that went wrong; else one that could not be tried or said nothing. What they
// found of slopes is added to `slopes`.
std::optional<Finding> try_laws(const Calling& calling, const Arithmetic& arithmetic,
                                const Sample& first, const std::vector<std::string>& names,
                                std::vector<SlopeEvidence>* slopes = nullptr);

}  // namespace attest::laws
