#include "harness/judge/promise.h"

#include "cases/device_check.h"

namespace attest {

std::string promise_missing(const Case& c, const Description& testee,
                            std::vector<std::string>& clauses) {
  // Whether the case is about that clause first of all.
  const auto abandons = [&](std::string_view clause) {
    const bool first = !clauses.empty() && clauses.front() == clause;
    std::erase(clauses, clause);
    return first;
  };
  if (c.check == Check::neighbours && !testee.arithmetic_in(c.problem.dtype).batch_invariant) {
    return "batch_invariant";
  }
  if (!testee.threads && abandons("CALL-2")) return "threads";
  if (c.check == Check::memory && !testee.memory) return "memory";
  if (const DeviceCheck* of_device = find_device_check(c.check)) {
    const std::string feature(of_device->feature);
    return testee.has(feature) ? "" : feature;
  }
  if (c.check != Check::schedule) return "";
  if (!testee.schedule) return "schedule";
  // Of the clauses about blocks, those that are promised; a case about the others alone says
  // nothing.
  if (!testee.schedule->masks_partial_only && abandons("SCHED-2")) {
    return "schedule/masks_partial_only";
  }
  if (!testee.schedule->imbalance && abandons("SCHED-3")) return "schedule/imbalance";
  return "";
}

}  // namespace attest
