#include "harness/laws/law.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "cases/laws.h"
#include "spec/assert.h"

namespace attest::laws {
namespace {

bool has_expanded_tensor(const Layouts& layouts) {
  return std::any_of(kLaidOut.begin(), kLaidOut.end(),
                     [&](TensorName tensor) { return layouts[tensor].expands(); });
}

bool all_finite(const Values& values) {
  return std::all_of(values.data.begin(), values.data.end(),
                     [](double x) { return std::isfinite(x); });
}

// Why the law does not apply to a problem that is too long for any walk over its scores.
std::string unmet_by_length(const Law& law, const Problem& p) {
  if (!find_law(law.name)->of_long)
    return "it takes too long for a problem of which an excerpt is compared";
  if (!has_reaches(p)) return "keys that a row of so many sees do not lie side by side";
  return "";
}

const Law& law_named(const std::string& name) {
  const auto all = all_laws();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Law* law) { return law->name == name; });
  ATTEST_ASSERT(found != all.end());
  return **found;
}

std::optional<Finding> try_law(const Law& law, const Calling& calling, const Arithmetic& arithmetic,
                               const Sample& first, std::vector<SlopeEvidence>* slopes) {
  auto why = unmet(law, first.problem(), first.inputs());
  if (why.empty() && first.is_long()) why = unmet_by_length(law, first.problem());
  if (!why.empty()) {
    return Finding{.outcome = Outcome::inconclusive,
                   .message = fmt::format("the law {} does not apply: {}", law.name, why)};
  }
  Experiment experiment(calling, arithmetic, first);
  law.check(experiment);
  const Experiment::Tally& tally = experiment.tally();
  if (slopes) slopes->insert(slopes->end(), tally.slopes.begin(), tally.slopes.end());
  if (!tally.broken.empty()) {
    return failure(fmt::format("property:{}", law.name), tally.broken,
                   std::string(find_law(law.name)->clause));
  }
  if (tally.stopped) {
    Finding stopped = *tally.stopped;
    stopped.message = fmt::format("law {}: {}", law.name, stopped.message);
    return stopped;
  }
  if (!tally.refused.empty()) {
    return Finding{
        .outcome = Outcome::unsupported,
        .reason = "limits",
        .message = fmt::format("the law {} cannot be tried: {}", law.name, tally.refused)};
  }
  if (tally.compared == 0) {
    return Finding{.outcome = Outcome::inconclusive,
                   .message = fmt::format("the law {} had nothing to compare", law.name)};
  }
  return std::nullopt;
}

}  // namespace

std::vector<const Law*> all_laws() {
  std::vector<const Law*> all;
  for (const auto family :
       {laws_of_keys(), laws_of_values(), laws_of_scores(), laws_of_rows(), laws_of_forms(),
        laws_of_isolation(), laws_of_invariance(), laws_of_gradients(), laws_of_directions()}) {
    for (const Law& law : family) all.push_back(&law);
  }
  return all;
}

std::string unmet(const Law& law, const Problem& problem, const Inputs& inputs) {
  for (const Index size : {problem.batch, problem.query_heads, problem.key_heads, problem.query_len,
                           problem.key_len, problem.head_dim, problem.value_dim}) {
    if (size == 0) return "a size is 0";
  }
  if (problem.stored.any()) return "what a law makes of its inputs cannot be stored in 8 bits";
  if (has_expanded_tensor(problem.layouts)) return "elements of a tensor are one and the same";
  for (const TensorName tensor : kInputValues) {
    if (tensor == TensorName::bias) continue;  // may be -inf (MASK-14)
    if (!all_finite(inputs[tensor])) return "an input is not finite";
  }
  const bool draws = problem.dropout.mode == Dropout::Mode::generated;
  if (draws && !law.knows_drawing) return "the testee draws its own keep-mask";
  return law.unmet(problem, inputs);
}

std::vector<std::string> in_bits(const std::vector<std::string>& names,
                                 const Arithmetic& arithmetic) {
  std::vector<std::string> kept;
  if (!arithmetic.deterministic) return kept;
  std::copy_if(names.begin(), names.end(), std::back_inserter(kept),
               [](const std::string& name) { return law_named(name).in_bits; });
  return kept;
}

std::optional<std::string> missing_promise(const std::vector<std::string>& names,
                                           const Problem& problem, const Description& testee,
                                           const Arithmetic& arithmetic) {
  for (const std::string& name : names) {
    const Law& law = law_named(name);
    const bool needs_lse = law.needs_lse || (law.needs_lse_of_sinks && problem.sink);
    if (needs_lse && !testee.returns_lse(problem.dtype)) return "lse";
    if (law.needs_determinism && !arithmetic.deterministic) return "deterministic";
    if (law.needs_invariance && !arithmetic.form_invariant) return "form_invariant";
  }
  return std::nullopt;
}

std::optional<Finding> try_laws(const Calling& calling, const Arithmetic& arithmetic,
                                const Sample& first, const std::vector<std::string>& names,
                                std::vector<SlopeEvidence>* slopes) {
  std::optional<Finding> worst;
  for (const std::string& name : names) {
    const auto found = try_law(law_named(name), calling, arithmetic, first, slopes);
    if (!found) continue;
    if (!says_nothing(found->outcome)) return found;
    if (!worst || found->outcome == Outcome::inconclusive) worst = found;
  }
  return worst;
}

}  // namespace attest::laws
