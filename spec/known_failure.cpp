#include "spec/known_failure.h"

#include <fmt/format.h>

#include <algorithm>

#include "spec/pattern.h"

namespace attest {

bool speaks_of(const KnownFailure& known, const VerdictRecord& verdict) {
  return (known.testee.empty() || known.testee == verdict.testee) &&
         matches(verdict.case_id, known.cases);
}

const KnownFailure* find_known(const std::vector<KnownFailure>& known,
                               const VerdictRecord& verdict) {
  const auto found = std::find_if(known.begin(), known.end(), [&](const KnownFailure& each) {
    return each.outcome == verdict.verdict.outcome && each.reason == verdict.verdict.reason &&
           speaks_of(each, verdict);
  });
  return found == known.end() ? nullptr : &*found;
}

std::string text_of(const KnownFailure& known) {
  return fmt::format("{}{}", name(known.outcome),
                     known.reason.empty() ? "" : fmt::format(" ({})", known.reason));
}

}  // namespace attest
