#include "harness/diagnosis/retrial.h"

#include "harness/judge/prepared.h"
#include "harness/run/examine.h"

namespace attest {

std::optional<Retrial> try_again(const Case& failing, const Testee& testee, Executor& executor,
                                 int threads, int preparing,
                                 const std::function<bool()>& interrupted) {
  PreparedCase prepared(failing, preparing);
  const Examination again = examine(prepared, testee.description, testee.kernel, executor, threads);
  const auto declared = testee.description.arithmetic.find(failing.problem.dtype);
  if (!asks_for_names(again.verdict) || declared == testee.description.arithmetic.end()) {
    return std::nullopt;
  }
  return Retrial{again.verdict,
                 alike(prepared, testee.description, declared->second, again.trial, interrupted)};
}

}  // namespace attest
