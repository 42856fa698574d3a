#include "harness/judge/checks.h"

namespace attest {

std::optional<Finding> check_support(Subject& subject, const Problem& p) {
  auto finding = ask(subject.calling, p);
  if (finding && is_too_long_alone(p, finding->reason, finding->message)) {
    subject.verdict.clauses.clear();
  }
  return finding;
}

}  // namespace attest
