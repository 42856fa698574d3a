#include "harness/judge/subject.h"

#include <algorithm>

namespace attest {

Subject::Subject(PreparedCase& prepared_case, const Description& description,
                 const std::string& kernel, Executor& executor, int threads)
    : prepared(prepared_case),
      testee(description),
      calling{description, kernel, executor, threads, captured},
      exemptions(prepared_case.problem(), prepared_case.inputs(), description) {
  arithmetic = testee.arithmetic_in(problem().dtype);
}

bool Subject::cites(const char* clause) const {
  return std::find(verdict.clauses.begin(), verdict.clauses.end(), clause) != verdict.clauses.end();
}

Trial Subject::try_out(Placement placement) const {
  return attest::try_out(calling, problem(), prepared.inputs(), placement);
}

}  // namespace attest
