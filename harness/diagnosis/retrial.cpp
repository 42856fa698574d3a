#include "harness/diagnosis/retrial.h"

#include "harness/diagnosis/looser.h"
#include "harness/judge/prepared.h"

namespace attest {

std::optional<Retrial> try_again(const Case& failing, const Testee& testee, Executor& executor,
                                 const RunOptions& options, int preparing, LookFor what,
                                 const std::function<bool()>& interrupted) {
  PreparedCase prepared(failing, preparing);
  const Examination again = examination_of(prepared, testee, executor, options);
  const auto declared = testee.description.arithmetic.find(failing.problem.dtype);
  if (!asks_for_names(again.verdict) || declared == testee.description.arithmetic.end()) {
    return std::nullopt;
  }
  Retrial retrial = {again.verdict, alike(prepared, testee.description, declared->second,
                                          again.trial, interrupted)};
  if (what == LookFor::declarations_too) {
    retrial.admitted_by =
        looser_declarations(prepared, testee.description, again.trial, interrupted);
  }
  return retrial;
}

}  // namespace attest
