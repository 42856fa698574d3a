#include "harness/judge/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>

#include "harness/judge/drawn.h"
#include "harness/judge/judge.h"
#include "harness/judge/pictures.h"

namespace attest {
namespace {

// Whether NaN in some queries stays in their rows for every kernel, since no sum over queries
// makes the tensor (FINITE-1, but FINITE-3).
bool keeps_to_its_row(const Subject& subject, TensorName tensor) {
  return subject.test_case().hidden == Hidden::nan_query && !is_of_keys(tensor) &&
         tensor != TensorName::dbias;
}

// Of what keeps to its row: a sum over rows that is a number is wrong without the NaN too.
std::string breach_of_row(TensorName tensor, const TensorVerdict& judged) {
  return tensor == TensorName::dsink && !judged.nonfinite ? "SINK-2" : "FINITE-1";
}

// Whether nothing but what is declared beyond the default column keeps the bound from saying
// anything.
bool is_conclusive_by_default(const Subject& subject, const Returned& tensor,
                              PreparedCase& prepared) {
  if (beyond_default(subject.arithmetic).empty()) return false;
  const Arithmetic usual = loosest(subject.problem().dtype);
  return judge(tensor.bits, tensor.dtype, tensor.shape, expected_of(tensor.name, prepared, usual),
               Rounding::faithful)
      .conclusive;
}

// "exact 0" where nothing else may stand there.
std::string how_far(const TensorEvidence& e) {
  if (e.bound == 0) return fmt::format("exact {}, and nothing else will do", e.exact);
  return fmt::format("exact {}, bound {:.3g}: {:.3g} times the bound", e.exact, e.bound,
                     e.max_ratio);
}

// In rows without keys, what the testee declares that they hold, but where the reference leaves
// them open (FINITE-1).
void put_declared(const Subject& subject, const Expected& whole, const Returned& tensor,
                  Expected& part) {
  for (std::size_t i = 0; i < tensor.bits.size(); ++i) {
    if (std::isnan(whole.value[i])) continue;
    const auto value = subject.exemptions.declared(tensor.name, tensor.shape, i);
    if (!value) continue;
    part.value[i] = *value;
    part.bound[i] = 0;
    if (!part.rest.empty()) part.rest[i] = 0;
    if (!part.recommended.empty()) part.recommended[i] = std::numeric_limits<double>::infinity();
  }
}

// Whether the worst element is one of these.
bool is_declared(const Subject& subject, const Returned& tensor, const TensorEvidence& e) {
  const auto element = static_cast<std::size_t>(
      dense_index(tensor.shape, e.worst[0], e.worst[1], e.worst[2], e.worst[3]));
  return subject.exemptions.declared(tensor.name, tensor.shape, element).has_value();
}

std::string why_nothing_is_told(TensorName tensor, const TensorEvidence& evidence) {
  if (evidence.compared > 0) {
    return fmt::format(
        "the bound of {} admits any value; a tighter declared arithmetic (such as "
        "kv_splits) may narrow it",
        name(tensor));
  }
  return fmt::format(
      "no element of {} is specified: NaN, infinity, or a score of half of the "
      "largest number (as a bias of finfo.min, where -inf would hide the key) "
      "reaches all of it",
      name(tensor));
}

// Once of each tensor, though it is judged in each of its calls.
void add_heat_picture(Subject& subject, const Returned& tensor, const Expected& expected) {
  auto& pictures = subject.verdict.pictures;
  for (const Picture& picture : pictures) {
    if (picture.kind == "heat" && picture.of == name(tensor.name)) return;
  }
  pictures.push_back(heat_picture(tensor.name, tensor.bits, tensor.dtype, tensor.shape, expected,
                                  rounding_of(tensor.name, subject.arithmetic)));
}

}  // namespace

std::optional<Expected> without_exempt(const Subject& subject, const Expected& whole,
                                       const Returned& tensor) {
  if (!subject.exemptions.any()) return std::nullopt;
  std::optional<Expected> part;
  for (std::size_t i = 0; i < tensor.bits.size(); ++i) {
    if (!subject.exemptions.unjudged(tensor.name, tensor.shape, i)) continue;
    if (!part) part = whole;
    part->value[i] = std::numeric_limits<double>::quiet_NaN();
  }
  return part;
}

std::optional<Finding> check_bounds(Subject& subject, const Trial& trial, PreparedCase& prepared) {
  std::optional<Finding> worst;
  if (subject.beyond_caps()) return worst;
  bool left_out = false, forward_fails = false;
  for (const Returned& tensor : trial.returned) {
    const bool gradient = is_gradient(tensor.name);
    // The bounds of gradients presume a forward pass within its own.
    if (gradient && forward_fails) break;
    const Expected& whole = expected_of(tensor.name, prepared, subject.arithmetic);
    std::optional<Expected> part = without_exempt(subject, whole, tensor);
    if (part) put_declared(subject, whole, tensor, *part);
    const TensorVerdict judged =
        judge(tensor.bits, tensor.dtype, tensor.shape, part ? *part : whole,
              rounding_of(tensor.name, subject.arithmetic));
    const TensorEvidence& e = judged.evidence;
    if (part && e.compared == 0) {
      left_out = true;
      continue;
    }
    const auto [entry, fresh] = subject.verdict.tensors.emplace(tensor.name, e);
    if (!fresh && e.max_ratio > entry->second.max_ratio) entry->second = e;
    if (!judged.passed) {
      add_heat_picture(subject, tensor, part ? *part : whole);
      forward_fails |= !gradient;
      const bool of_row = keeps_to_its_row(subject, tensor.name);
      const bool declared = is_declared(subject, tensor, e);
      const bool known = worst && worst->outcome == Outcome::fail;
      if (known && (!of_row || !worst->clause.empty())) continue;
      worst = failure(
          judged.nonfinite ? "nonfinite" : "bound",
          declared ? fmt::format("{}[{}] = {}, of a row that sees no key, where it is {} "
                                 "by the testee's own declaration",
                                 name(tensor.name), fmt::join(e.worst, ","), e.actual, e.exact)
                   : fmt::format("{}[{}] = {}, {}", name(tensor.name), fmt::join(e.worst, ","),
                                 e.actual, how_far(e)),
          declared ? "EMPTY-5"
          : of_row ? breach_of_row(tensor.name, judged)
                   : "");
    } else if (!judged.advised && !worst) {
      worst = Finding{.outcome = Outcome::warn,
                      .reason = "bound",
                      .message = fmt::format("{}[{}] = {}, exact {}: {:.3g} times the bound, at "
                                             "scores beyond SOFTMAX-2",
                                             name(tensor.name), fmt::join(e.worst, ","), e.actual,
                                             e.exact, e.max_ratio),
                      .clause = "SOFTMAX-3"};
    } else if (!judged.conclusive && !worst &&
               is_conclusive_by_default(subject, tensor, prepared)) {
      worst = Finding{
          .outcome = Outcome::unsupported,
          .reason = "not_judgeable",
          .message = fmt::format("the bound of {} admits any value under {}", name(tensor.name),
                                 fmt::join(beyond_default(subject.arithmetic), ", "))};
    } else if (!judged.conclusive && !worst) {
      worst =
          Finding{.outcome = Outcome::inconclusive, .message = why_nothing_is_told(tensor.name, e)};
    }
  }
  if (!worst && left_out && subject.verdict.tensors.empty() && !subject.exemptions.dialect()) {
    worst = Finding{.outcome = Outcome::inconclusive, .message = "nothing is left to be compared"};
  }
  return worst ? worst : check_shown(prepared, trial);
}

std::optional<Finding> check_bounds(Subject& subject, const Trial& first, const Trial& second) {
  // What a testee drew is part of its problem: nobody else shares these expected values.
  std::optional<PreparedCase> own;
  if (first.keep) own = subject.prepared.with_keep(*first.keep);
  PreparedCase& prepared = own ? *own : subject.prepared;
  auto finding = check_bounds(subject, first, prepared);
  if (!difference(first, second, subject.exemptions)) return finding;
  // Other bits for other addresses are no crime, but they are judged as the first were.
  const auto again = check_bounds(subject, second, prepared);
  if (again && (!finding || finding->outcome != Outcome::fail)) finding = again;
  if (finding || !subject.arithmetic.deterministic) return finding;
  const Trial repeated = subject.try_out(Placement::end_flush);
  if (repeated.stopped) return repeated.stopped;
  if (const auto where = difference(first, repeated, subject.exemptions)) {
    return failure("nondeterministic", fmt::format("two equal calls differ: {}", *where));
  }
  return std::nullopt;
}

}  // namespace attest
