#include "harness/judge/checks.h"

#include <fmt/format.h>

#include "cases/device_check.h"
#include "spec/feature.h"

namespace attest {

std::optional<Finding> check_promises(Subject& subject, const std::optional<std::string>& of_laws) {
  // A testee that returns no LSE is judged on O alone, and proves nothing about LSE.
  if (!subject.testee.has("lse")) {
    for (const auto& demand : find_feature("lse")->demands()) {
      std::erase(subject.verdict.clauses, demand.clause);
    }
    if (subject.verdict.clauses.empty()) {
      return Finding{.outcome = Outcome::unsupported, .message = "returns no LSE"};
    }
  }
  // A case about a promise says nothing of a testee that does not give it.
  const auto not_promised = [&](const char* promise) {
    subject.verdict.clauses.clear();
    return Finding{.outcome = Outcome::unsupported,
                   .message = fmt::format("does not declare {}", promise)};
  };
  if (of_laws) return not_promised(of_laws->c_str());
  const Check wanted = subject.prepared.test_case().check;
  if (wanted == Check::neighbours && !subject.arithmetic.batch_invariant) {
    return not_promised("batch_invariant");
  }
  if (!subject.testee.threads && subject.abandons("CALL-2")) return not_promised("threads");
  if (wanted == Check::schedule && !subject.testee.schedule) return not_promised("schedule");
  if (wanted == Check::memory && !subject.testee.memory) return not_promised("memory");
  if (const DeviceCheck* of_device = find_device_check(wanted)) {
    const std::string feature(of_device->feature);
    if (!subject.testee.has(feature)) return not_promised(feature.c_str());
  }
  if (wanted == Check::schedule) {
    // Of the clauses about blocks, those that are promised; a case about the others alone says
    // nothing.
    if (!subject.testee.schedule->masks_partial_only && subject.abandons("SCHED-2")) {
      return not_promised("schedule/masks_partial_only");
    }
    if (!subject.testee.schedule->imbalance && subject.abandons("SCHED-3")) {
      return not_promised("schedule/imbalance");
    }
  }
  return std::nullopt;
}

}  // namespace attest
