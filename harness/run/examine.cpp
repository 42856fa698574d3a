#include "harness/run/examine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "cases/fit.h"
#include "harness/judge/blame.h"
#include "harness/judge/checks.h"
#include "harness/judge/drawn.h"
#include "harness/judge/judge.h"
#include "harness/judge/subject.h"
#include "harness/laws/law.h"
#include "harness/process/captured.h"
#include "harness/process/nobody.h"
#include "harness/process/stage.h"
#include "spec/clause.h"
#include "spec/contains.h"
#include "spec/feature.h"

namespace attest {
namespace {

// What may lie there instead of NaN: numbers like all others, and where no row sees them, huge
// ones.
std::vector<Hidden> finite_instead_of(Hidden hidden) {
  switch (hidden) {
    case Hidden::plain:
    case Hidden::huge:
    case Hidden::large:
      return {};
    case Hidden::nan_masked:
      return {Hidden::plain, Hidden::huge};
    case Hidden::nan:
    case Hidden::nan_scales:
    case Hidden::nan_rows:
    case Hidden::nan_query:
    case Hidden::nan_key:
    case Hidden::nan_value:
    case Hidden::nan_gradient:
      return {Hidden::plain};
  }
  return {};
}

bool is_numeric(const Finding& finding) {
  return finding.reason == "bound" || finding.reason == "statistical" ||
         finding.reason == "nonfinite";
}

// A case about a recommended clause, whose loss leaves a testee conformant: where nothing else is
// wrong. Where the recommendation is about what lies hidden, finite numbers in its place tell.
Finding lenient(Subject& subject, Finding finding) {
  const auto& clauses = subject.test_case().clauses;
  if (!is_numeric(finding) || !finding.clause.empty() || clauses.empty() ||
      !is_recommended(clauses.front())) {
    return finding;
  }
  for (const Hidden hidden : finite_instead_of(subject.test_case().hidden)) {
    Case finite = subject.test_case();
    finite.bits = finite.bits.empty() ? finite.id : finite.bits;
    finite.hidden = hidden;
    std::erase_if(finite.clauses, is_recommended);
    finite.clauses.push_back("NUM-1");
    PreparedCase prepared(finite, 1);
    const Verdict other = examine(prepared, subject.testee, subject.calling.kernel,
                                  subject.calling.executor, subject.calling.threads)
                              .verdict;
    if (!is_fault(other.outcome) && other.outcome != Outcome::not_run) continue;
    subject.captured += other.captured;
    finding.message += "; with finite numbers in place of what is hidden: " + other.message;
    finding.clause = other.clauses.front();
    finding.outcome = other.outcome;
    finding.reason = other.reason;
    if (!other.time.empty()) finding.time = other.time.front();
    return finding;
  }
  finding.outcome = Outcome::warn;
  return finding;
}

// What only another number of threads gets wrong breaks DET-3.
Finding of_threads(Subject& subject, Finding finding) {
  finding = lenient(subject, std::move(finding));
  if (is_numeric(finding) && finding.outcome == Outcome::fail && finding.clause.empty()) {
    finding.clause = "DET-3";
  }
  return finding;
}

std::optional<Finding> check(Subject& subject, const Trial& first) {
  switch (subject.test_case().check) {
    case Check::none:
      return std::nullopt;
    case Check::threads:
      if (auto finding = check_threads(subject, first)) {
        return of_threads(subject, std::move(*finding));
      }
      return std::nullopt;
    case Check::neighbours:
      return check_neighbours(subject, first);
    case Check::schedule:
      return check_schedule(subject, first);
    case Check::memory:
      return check_memory(subject);
    case Check::stream:
    case Check::two_streams:
    case Check::graph:
    case Check::new_shapes:
      return check_device(subject);
  }
  return std::nullopt;
}

// A case whose own sizes and lengths say something may say nothing where it is fitted to others.
std::optional<Finding> of_fitted(const Subject& subject, std::optional<Finding> finding) {
  const std::string& id = subject.test_case().id;
  if (finding && finding->outcome == Outcome::inconclusive && base_id(id) != id) {
    finding->outcome = Outcome::unsupported;
    finding->reason = "limits";
  }
  return finding;
}

std::optional<Finding> try_laws(Subject& subject, const Trial& first) {
  std::vector<std::string> names = subject.prepared.test_case().laws;
  if (subject.beyond_caps()) names = laws::in_bits(names, subject.arithmetic);
  if (names.empty()) return std::nullopt;
  std::optional<PreparedCase> own;
  if (first.keep) own = subject.prepared.with_keep(*first.keep);
  PreparedCase& prepared = own ? *own : subject.prepared;
  const InStage stage(RunStage::law);
  laws::Bounds bounds;
  if (prepared.test_case().excerpt > 0) {
    // The reference knows a part of it, laws are about the whole.
    bounds = laws::coarse_bounds(prepared.problem(), prepared.inputs(), subject.arithmetic);
  } else {
    bounds.forward = [&]() -> const ForwardExpected& {
      return prepared.forward(subject.arithmetic);
    };
    bounds.backward = [&]() -> const BackwardExpected& {
      return prepared.backward(subject.arithmetic);
    };
  }
  const laws::Sample sample(prepared.problem(), prepared.inputs(), first, subject.testee,
                            subject.arithmetic, bounds);
  auto found =
      laws::try_laws(subject.calling, subject.arithmetic, sample, names, &subject.verdict.slopes);
  if (!subject.verdict.slopes.empty()) subject.verdict.features = features_of(subject.problem());
  return of_fitted(subject, std::move(found));
}

// Of a case in which nothing is wrong, that not all of it was judged.
std::optional<Finding> judged_in_part(const Subject& subject) {
  if (subject.exemptions.dialect()) {
    return Finding{.outcome = Outcome::unsupported,
                   .reason = "dialect",
                   .message =
                       "rows that see no key hold what the testee declares; all else is "
                       "right"};
  }
  if (subject.beyond_caps()) {
    return Finding{.outcome = Outcome::unsupported,
                   .reason = "beyond_caps",
                   .message =
                       "the arithmetic declared lies beyond the caps, so that no number has a "
                       "bound; what needs none is right"};
  }
  return std::nullopt;
}

// Puts the case to the testee; `first` and `second` become the two trials that all have.
std::optional<Finding> find(Subject& subject, Trial& first, Trial& second) {
  const auto missing = laws::missing_promise(subject.test_case().laws, subject.problem(),
                                             subject.testee, subject.arithmetic);
  if (auto finding = check_promises(subject, missing)) return finding;
  if (auto finding = check_support(subject, subject.problem())) return finding;
  // Twice: with the tensors flush against a guard at their end, then at their start.
  Calling calling = subject.calling;
  calling.trace = calling.measure = subject.test_case().check == Check::schedule;
  first = try_out(calling, subject.problem(), subject.prepared.inputs(), Placement::end_flush);
  if (first.stopped) return first.stopped;
  second = subject.try_out(Placement::start_flush);
  if (second.stopped) return second.stopped;
  if (auto finding = check_whole(subject, first, second)) return finding;
  auto finding = of_fitted(subject, check_bounds(subject, first, second));
  if (finding && finding->outcome == Outcome::fail) return lenient(subject, *finding);
  if (first.keep &&
      tells_draws(subject.problem(), subject.prepared.inputs(), subject.testee.keep_quantum)) {
    if (auto broken = check_draws(subject, *first.keep)) return broken;
  }
  if (auto broken = check(subject, first)) return broken;
  if (subject.test_case().statistical && !subject.beyond_caps()) {
    if (auto found = of_fitted(subject, check_noise(subject, first))) return found;
  }
  if (const auto found = try_laws(subject, first)) {
    if (!finding || !says_nothing(found->outcome)) return found;
  }
  return finding ? finding : judged_in_part(subject);
}

// A case about a recommended clause, as lenient() has it, where nobody can be asked again: NaN that
// leaks from where it lies hidden is all that is seen to be wrong, or more may be.
Finding lenient_on_outputs(const Subject& subject, const Trial& trial, PreparedCase& prepared,
                           Finding finding) {
  const Case& test_case = subject.test_case();
  if (!is_numeric(finding) || !finding.clause.empty() || test_case.clauses.empty() ||
      !is_recommended(test_case.clauses.front())) {
    return finding;
  }
  finding.outcome = Outcome::warn;
  if (finite_instead_of(test_case.hidden).empty()) return finding;
  for (const Returned& tensor : trial.returned) {
    const Expected& expected = expected_of(tensor.name, prepared, subject.arithmetic);
    for (const std::size_t i : beyond_bounds(tensor.bits, tensor.dtype, expected,
                                             rounding_of(tensor.name, subject.arithmetic))) {
      if (!std::isfinite(decode(tensor.dtype, tensor.bits[i]))) continue;
      finding.outcome = Outcome::inconclusive;
      finding.message +=
          "; whether that is so with finite numbers in place of what is hidden, "
          "takes a call";
      return finding;
    }
  }
  return finding;
}

// Whether a clause is cited for the sake of laws, which try other problems than this one: it speaks
// of a feature that the problem has not.
bool is_of_other_problems(const Problem& problem, std::string_view clause) {
  const auto needed = needed_by(problem);
  const auto with = features_with(clause);
  return !with.empty() && std::none_of(with.begin(), with.end(), [&](const Feature* feature) {
    return contains(needed, feature) || is_of_testee(*feature);
  });
}

std::optional<Finding> find_in_outputs(Subject& subject, const Trial& trial) {
  auto& cited = subject.verdict.clauses;
  const bool cites_any = !cited.empty();
  std::erase_if(cited, [&](const std::string& each) {
    return takes_calls(each) || is_of_other_problems(subject.problem(), each);
  });
  if (auto finding = check_promises(subject, std::nullopt)) return finding;
  if (auto finding = left_out(subject.testee, subject.problem())) return finding;
  if (trial.stopped) return trial.stopped;
  std::optional<PreparedCase> own;
  if (trial.keep) {
    own = subject.prepared.with_keep(*trial.keep);
    if (auto finding = check_keep(subject.problem(), subject.prepared.inputs(),
                                  subject.testee.keep_quantum, *trial.keep, *trial.keep)) {
      return finding;
    }
  }
  PreparedCase& prepared = own ? *own : subject.prepared;
  auto finding = of_fitted(subject, check_bounds(subject, trial, prepared));
  if (finding && finding->outcome == Outcome::fail) {
    return lenient_on_outputs(subject, trial, prepared, *finding);
  }
  if (!finding) finding = judged_in_part(subject);
  if (!finding && cites_any && cited.empty()) {
    return Finding{.outcome = Outcome::unsupported,
                   .reason = "not_called",
                   .message = "all that the case is about takes calls"};
  }
  return finding;
}

// Writes down what was found.
void tell(Subject& subject, const std::optional<Finding>& finding, const Trial& first,
          const Trial& second) {
  Verdict& v = subject.verdict;
  v.outcome = finding ? finding->outcome : Outcome::pass;
  if (subject.test_case().excerpt > 0 && v.outcome == Outcome::pass) {
    if (const std::string shares = shares_of(v); !shares.empty()) v.message = "compared: " + shares;
  }
  if (!finding) return;
  v.reason = finding->reason;
  v.message = finding->message.substr(0, kCaptureBytes);
  v.captured = as_captured(subject.captured);
  v.blamed = blamed_clause(subject, *finding, first, second);
  if (finding->time) v.time.push_back(*finding->time);
  if (!finding->clause.empty()) {
    std::erase(v.clauses, finding->clause);
    v.clauses.insert(v.clauses.begin(), finding->clause);
  }
}

}  // namespace

Examination examine(PreparedCase& prepared, const Description& testee, const std::string& kernel,
                    Executor& executor, int threads) {
  const InStage stage(RunStage::judge);
  Subject subject(prepared, testee, kernel, executor, threads);
  subject.verdict.clauses = prepared.test_case().clauses;
  Trial first, second;
  auto finding = find(subject, first, second);
  // A second reply to the last request must not become the next case's trouble.
  if (const Reply late = executor.settle(); !late.ok()) {
    if (!finding || finding->outcome != Outcome::fail) finding = finding_of(late, "afterwards");
    subject.captured += late.captured;
  }
  tell(subject, finding, first, second);
  return {std::move(subject.verdict), std::move(first)};
}

Examination examine_outputs(PreparedCase& prepared, const Description& testee, Trial trial) {
  Nobody nobody;
  const std::string kernel;
  Subject subject(prepared, testee, kernel, nobody, 1);
  const auto& clauses = prepared.test_case().clauses;
  subject.verdict.clauses = clauses;
  const auto finding = find_in_outputs(subject, trial);
  tell(subject, finding, trial, {});
  Verdict& v = subject.verdict;
  std::vector<std::string> unjudged;
  std::copy_if(clauses.begin(), clauses.end(), std::back_inserter(unjudged), takes_calls);
  if (v.outcome == Outcome::pass && !unjudged.empty()) {
    v.message += fmt::format("{}not judged, as nothing was called: {}",
                             v.message.empty() ? "" : "; ", fmt::join(unjudged, ", "));
  }
  return {std::move(v), std::move(trial)};
}

std::string untold_by_outputs(const Case& test_case, const Description& testee) {
  PreparedCase prepared(test_case, Inputs(), 1);
  Nobody nobody;
  const std::string kernel;
  Subject subject(prepared, testee, kernel, nobody, 1);
  subject.verdict.clauses = test_case.clauses;
  std::erase_if(subject.verdict.clauses, takes_calls);
  const auto finding = check_promises(subject, std::nullopt);
  return finding ? finding->message : "";
}

}  // namespace attest
