#include "harness/oracle/oracle.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cases/citation.h"
#include "cases/shape_excerpt.h"
#include "harness/diagnosis/culprit.h"
#include "harness/diagnosis/likeness.h"
#include "harness/diagnosis/looser.h"
#include "harness/judge/blame.h"
#include "harness/judge/checks.h"
#include "harness/judge/excerpt.h"
#include "harness/judge/subject.h"
#include "harness/laws/law.h"
#include "harness/oracle/least_bias.h"
#include "harness/oracle/magnitude.h"
#include "harness/process/nobody.h"
#include "spec/contains.h"
#include "spec/dialect.h"

namespace attest {
namespace {

// What was meant is told if it is known by then: it decides nothing, and tests wait.
constexpr auto kLongestDiagnosis = std::chrono::seconds(5);

bool has_nonfinite(const Values& values) {
  return std::any_of(values.data.begin(), values.data.end(),
                     [](double value) { return !std::isfinite(value); });
}

// What lies in the inputs that is not finite, by the tensor that has it; where lengths leave keys
// out, it is taken to lie there.
Hidden hidden_in(const Problem& p, const Inputs& in) {
  if (has_nonfinite(in.k) || has_nonfinite(in.v)) {
    return p.key_lens.empty() ? Hidden::nan_key : Hidden::nan;
  }
  if (has_nonfinite(in.q)) return p.query_lens.empty() ? Hidden::nan_query : Hidden::nan_rows;
  return has_nonfinite(in.d_o) ? Hidden::nan_gradient : Hidden::plain;
}

// Of the features that it has, and what any problem may break.
std::vector<std::string> clauses_of(const Case& c) {
  std::vector<std::string> all = {"SOFTMAX-1", "SOFTMAX-2", "MASK-1", "LSE-1", "NUM-1"};
  for (const std::string& clause : implied_clauses(c)) {
    if (!contains(all, clause)) all.push_back(clause);
  }
  return all;
}

Case case_of(const Problem& problem, const Inputs& inputs) {
  Case c = {.id = to_string(problem),
            .clauses = {},
            .because = "",
            .problem = problem,
            .data = "",
            .hidden = hidden_in(problem, inputs)};
  choose_excerpt(c);
  if (c.hidden == Hidden::plain) choose_laws(c);
  c.clauses = clauses_of(c);
  return c;
}

// LSE in base e, if the kernel declares that it has it in base 2.
void translate(const LseForm& form, std::vector<Returned>& returned) {
  if (!form.base_2) return;
  for (Returned& tensor : returned) {
    if (tensor.name != TensorName::lse) continue;
    for (std::uint64_t& bits : tensor.bits) {
      const double value = decode(tensor.dtype, bits);
      bits = encode(DType::f64, natural_lse(form, value, value));
    }
    tensor.dtype = DType::f64;
  }
}

// Of what is compared in part, whether all of it is finite, where that can be told.
std::optional<Finding> look_at_all(Subject& subject, const Trial& trial) {
  const PreparedCase& prepared = subject.prepared;
  const std::vector<std::string>& laws = prepared.test_case().laws;
  if (laws.empty() || subject.beyond_caps()) return std::nullopt;
  const Problem& p = prepared.problem();
  const laws::Bounds bounds = laws::coarse_bounds(p, prepared.inputs(), subject.arithmetic);
  const laws::Sample sample(p, prepared.inputs(), trial, subject.testee, subject.arithmetic,
                            bounds);
  auto found = laws::try_laws(subject.calling, subject.arithmetic, sample, laws);
  if (found && !is_fault(found->outcome)) found.reset();
  return found;
}

// Whether no score, no sum of weighted values on its way (weights up to 2^max_lag, or twice that),
// and no O can be too large for its format, whatever is done first.
bool cannot_overflow(const Problem& p, const Inputs& in, const Arithmetic& arithmetic) {
  constexpr double kShare = 0.125;
  double added = 0;
  for (const double b : in.bias.data) added = std::isinf(b) ? added : std::max(added, std::abs(b));
  const double score =
      largest_score(p, in, std::max(1.0, std::abs(p.scale))) + added + largest_in(in.sink);
  const double value = largest_in(in.v) / (1 - p.dropout.probability);
  const double sum = value * std::exp2(arithmetic.max_lag + 1) * static_cast<double>(p.key_len + 1);
  const double wide = largest_finite(p.lse_dtype());
  const bool is_stored = arithmetic.scores != Narrowing{};
  return score < kShare * (is_stored ? largest_finite(p.dtype) : wide) && sum < kShare * wide &&
         value < kShare * largest_finite(p.dtype);
}

// O and LSE are finite wherever nothing can overflow: of what is compared in part, all of them.
std::optional<Finding> look_for_nan(const Subject& subject, const Trial& trial) {
  if (subject.test_case().excerpt == 0 || subject.beyond_caps() ||
      !cannot_overflow(subject.problem(), subject.prepared.inputs(), subject.arithmetic)) {
    return std::nullopt;
  }
  for (const Returned& tensor : trial.returned) {
    const bool is_o = tensor.name == TensorName::o;
    if (!is_o && tensor.name != TensorName::lse) continue;
    for (std::size_t i = 0; i < tensor.bits.size(); ++i) {
      const double each = decode(tensor.dtype, tensor.bits[i]);
      if (is_o ? std::isfinite(each) : !std::isnan(each)) continue;
      if (subject.exemptions.unjudged(tensor.name, tensor.shape, i)) continue;
      return failure("nonfinite",
                     fmt::format("{}[{}] = {}, where nothing can overflow", name(tensor.name),
                                 fmt::join(coordinates(tensor.shape, Index(i)), ","), each),
                     "SOFTMAX-2");
    }
  }
  return std::nullopt;
}

// The clause that is to blame by these too: no case was written for one, so all count as cited.
std::string culprit_of(const Verdict& verdict, Case c, const std::vector<Likeness>& meant) {
  for (const Likeness& each : meant) c.clauses.push_back(each.clause);
  return culprit(verdict, c, meant, {});
}

}  // namespace

Judgement judge_given(Given given, const Description& kernel, int threads, bool diagnoses) {
  Trial trial = {.returned = std::move(given.returned)};
  translate(kernel.dialect.lse, trial.returned);
  hide_by_least_bias(given.problem, given.inputs);
  const Case c = case_of(given.problem, given.inputs);
  PreparedCase prepared(c, std::move(given.inputs), threads);
  Nobody nobody;
  const std::string name;
  Subject subject(prepared, kernel, name, nobody, threads);
  subject.verdict.clauses = c.clauses;
  auto finding = check_bounds(subject, trial, prepared);
  if (!finding) finding = look_for_nan(subject, trial);
  if (!finding) finding = look_at_all(subject, trial);
  if (!finding) finding = check_zeros(prepared, subject.arithmetic, trial);
  Verdict& v = subject.verdict;
  v.outcome = finding ? finding->outcome : Outcome::pass;
  Judgement judgement;
  if (finding) {
    v.reason = finding->reason;
    v.message = finding->message;
    v.blamed = blamed_clause(subject, *finding, trial, {});
    if (diagnoses && asks_for_names(v)) {
      const auto end = std::chrono::steady_clock::now() + kLongestDiagnosis;
      const auto is_late = [end] { return std::chrono::steady_clock::now() > end; };
      auto meant = sure(alike(prepared, kernel, subject.arithmetic, trial, is_late));
      v.blamed = culprit_of(v, c, meant);
      put_first(meant, v.blamed);
      judgement.meant = explanation(meant, prepared, kernel, trial, is_late);
      if (meant.empty() && !judgement.meant.empty()) v.blamed = kClauseOfDeclarations;
    }
  }
  if (c.excerpt > 0) judgement.sampled = shares_of(v);
  for (const auto& [tensor, evidence] : v.tensors) judgement.unspecified += evidence.unspecified;
  judgement.verdict = std::move(v);
  return judgement;
}

}  // namespace attest
