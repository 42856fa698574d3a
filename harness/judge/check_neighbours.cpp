#include "harness/judge/checks.h"

#include <fmt/format.h>

#include "harness/judge/alone.h"

namespace attest {
namespace {

// What batch element `b` has of all that the whole batch returned, and in its place what it
// returned alone where that sums over the batch: nothing to compare.
Trial shares_of(const Problem& problem, const Trial& whole, const Trial& alone, Index b) {
  Trial shares;
  for (std::size_t t = 0; t < alone.returned.size(); ++t) {
    shares.returned.push_back(share_of(problem, whole.returned[t], b).value_or(alone.returned[t]));
  }
  for (const Returned& statistic : whole.statistics) {
    shares.statistics.push_back(*share_of(problem, statistic, b));
  }
  return shares;
}

}  // namespace

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
    const Trial shares = shares_of(subject.problem(), first, trial, b);
    if (const auto where = difference(shares, trial, exemptions)) {
      return failure(
          "nondeterministic",
          fmt::format("batch element {} alone differs from itself in its batch: {}", b, *where),
          "DET-2");
    }
  }
  return std::nullopt;
}

}  // namespace attest
