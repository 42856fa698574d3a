// The mistakes that explain a failure of which nothing is left but the case: it is tried once more.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cases/case.h"
#include "harness/diagnosis/likeness.h"
#include "harness/process/executor.h"
#include "harness/process/testee.h"
#include "harness/run/run.h"
#include "spec/verdict.h"

namespace attest {

struct Retrial {
  Verdict verdict;
  std::optional<Testimony> said = {};         // as alike() of likeness.h
  std::vector<std::string> admitted_by = {};  // as looser_declarations() of looser.h
};

// What explains it: declarations that would admit it take as long again.
enum class LookFor { mistakes, declarations_too };

// Nothing if the testee passes now, or if it is not numbers that are wrong. `preparing`: threads of
// ours.
std::optional<Retrial> try_again(const Case& failing, const Testee& testee, Executor& executor,
                                 const RunOptions& options, int preparing, LookFor what,
                                 const std::function<bool()>& interrupted);

}  // namespace attest
