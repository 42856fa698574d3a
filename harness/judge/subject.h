// One case on one testee, while it is judged: what every check needs, and what is found so far.
#pragma once

#include <string>

#include "harness/judge/exemptions.h"
#include "harness/judge/prepared.h"
#include "harness/judge/trial.h"
#include "spec/arithmetic.h"
#include "spec/description.h"
#include "spec/verdict.h"

namespace attest {

struct Subject {
  Subject(PreparedCase& prepared_case, const Description& description, const std::string& kernel,
          Executor& executor, int threads);
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  const Problem& problem() const { return prepared.problem(); }
  const Case& test_case() const { return prepared.test_case(); }

  // Whether the testee says of this format that no bound holds: then no number is compared.
  bool beyond_caps() const { return testee.beyond_caps.contains(problem().dtype); }

  bool cites(const char* clause) const;

  Trial try_out(Placement placement) const;

  PreparedCase& prepared;
  const Description& testee;
  std::string captured = {};  // what the testee printed
  Calling calling;
  Exemptions exemptions;
  Arithmetic arithmetic;  // as declared, else the loosest
  Verdict verdict = {};
};

}  // namespace attest
