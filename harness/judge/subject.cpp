#include "harness/judge/subject.h"

#include <algorithm>

namespace attest {

Subject::Subject(PreparedCase& prepared_case, const Description& description,
                 const std::string& kernel, Executor& executor, int threads)
    : prepared(prepared_case),
      testee(description),
      calling{description, kernel, executor, threads, captured},
      exemptions(prepared_case.problem(), prepared_case.inputs(), description) {
  const auto declared = testee.arithmetic.find(problem().dtype);
  arithmetic = declared != testee.arithmetic.end() ? declared->second : loosest(problem().dtype);
}

bool Subject::cites(const char* clause) const {
  return std::find(verdict.clauses.begin(), verdict.clauses.end(), clause) != verdict.clauses.end();
}

bool Subject::abandons(const char* clause) {
  const bool first = !verdict.clauses.empty() && verdict.clauses.front() == clause;
  std::erase(verdict.clauses, clause);
  return first;
}

Trial Subject::try_out(Placement placement) const {
  return attest::try_out(calling, problem(), prepared.inputs(), placement);
}

}  // namespace attest
