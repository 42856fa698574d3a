#include "harness/judge/checks.h"

#include <fmt/format.h>

#include "harness/judge/promise.h"
#include "spec/feature.h"

namespace attest {

std::optional<Finding> check_promises(Subject& subject, const std::optional<std::string>& of_laws) {
  // A testee that returns no LSE is judged on O alone, and proves nothing about LSE.
  if (!subject.testee.returns_lse(subject.test_case().problem.dtype)) {
    for (const auto& demand : find_feature("lse")->demands()) {
      std::erase(subject.verdict.clauses, demand.clause);
    }
    if (subject.verdict.clauses.empty()) {
      return Finding{.outcome = Outcome::unsupported, .message = "returns no LSE"};
    }
  }
  std::string promise = of_laws.value_or("");
  if (promise.empty()) {
    promise = promise_missing(subject.test_case(), subject.testee, subject.verdict.clauses);
  }
  if (promise.empty()) return std::nullopt;
  // A case about a promise says nothing of a testee that does not give it.
  subject.verdict.clauses.clear();
  return Finding{.outcome = Outcome::unsupported,
                 .message = fmt::format("{}{}", kNoPromise, promise)};
}

}  // namespace attest
