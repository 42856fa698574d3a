#include "harness/judge/checks.h"

#include <fmt/format.h>

#include "harness/judge/alone.h"

namespace attest {

std::optional<Finding> check_neighbours(Subject& subject, const Trial& first) {
  for (Index b = 0; b < subject.problem().batch; ++b) {
    const Alone one = alone(subject.problem(), subject.prepared.inputs(), b);
    if (const auto refused = check_support(subject, one.problem)) {
      if (refused->outcome == Outcome::unsupported) continue;  // such as a size of 0
      return refused;
    }
    const Trial trial = try_out(subject.calling, one.problem, one.inputs, Placement::end_flush);
    if (trial.stopped) return trial.stopped;
    const Exemptions exemptions(one.problem, one.inputs, subject.testee);
    for (std::size_t t = 0; t < trial.returned.size(); ++t) {
      const auto share = share_of(subject.problem(), first.returned[t], b);
      if (!share) continue;
      if (const auto where = difference(*share, trial.returned[t], exemptions)) {
        return failure(
            "nondeterministic",
            fmt::format("batch element {} alone differs from itself in its batch: {}", b, *where),
            "DET-2");
      }
    }
  }
  return std::nullopt;
}

}  // namespace attest
