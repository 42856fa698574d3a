// The verdict on outputs that are there already: no testee is called, and what is judged is what
// was given.
#pragma once

#include <string>

#include "harness/oracle/given.h"
#include "spec/description.h"
#include "spec/verdict.h"

namespace attest {

struct Judgement {
  Verdict verdict;           // PASS, WARN, FAIL, INCONCLUSIVE or UNSUPPORTED
  std::string meant = {};    // which common mistake gives just this; empty if none is known
  std::string sampled = {};  // how much was compared; empty: all
  Index unspecified = 0;     // elements of all tensors
};

// Under the arithmetic that `kernel` declares for the problem's format. Long problems are judged on
// heads and rows that are drawn from the problem (cases/shape_excerpt.h): the same in every run. Of
// those of 4 million elements of Q and K at most, all results are held to be finite.
Judgement judge_given(Given given, const Description& kernel, int threads, bool diagnoses);

}  // namespace attest
