// Mutants on cases: each on those of the clauses that it violates, until one catches it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cases/case.h"
#include "harness/process/testee.h"
#include "harness/run/run.h"
#include "harness/selfcheck/catalogue.h"
#include "spec/record.h"

namespace attest {

// What became of one mutant in one dtype.
struct Hunted {
  std::size_t mutant;  // in the catalogue
  DType dtype;
  Index candidates = 0;                      // cases of a clause that it violates
  Index tried = 0;                           // of them: all, or as many as it took
  Index catching = 0;                        // of those that were tried
  std::optional<VerdictRecord> caught = {};  // the first
  std::string culprit = {};                  // the clause blamed, once that is diagnosed
  // Of the cases before, the largest ratio of an error to its bound.
  double nearest = 0;
  std::string nearest_case = {};
};

struct Hunt {
  std::vector<Hunted> hunted = {};            // in the order of the catalogue
  std::map<std::string, Index> catches = {};  // by case: of how many mutants, each dtype by itself
  std::vector<VerdictRecord> accused = {};    // controls that fail what catches a mutant
  std::vector<VerdictRecord> our_own = {};    // our own errors
  bool interrupted = false;
};

// Whether a verdict convicts the mutant: the testee does not conform, on a case of a clause that
// the mutant violates, or with blame on such a clause. A verdict on blocks or memory, and a
// warning, speak of the clause alone that they name first; that a call did not return convicts only
// what violates SAFE-4 (or, if it crashed, SAFE-1).
bool convicts(const Verdict& verdict, const Mutant& mutant);

// Roughly how long a case takes, in products of two numbers.
double cost_of(const Case& test_case);

// In the order in which they are worth trying: the cheap ones first, and of the cases of one entry,
// which have much in common, the second as if it cost twice as much, and so on.
std::vector<Case> by_worth(std::vector<Case> cases);

struct HuntOptions {
  bool all = false;  // goes on after the first case that catches
  // Tries each on all cases in the end, whatever they cite, and takes any failure for a catch, and
  // any warning about a clause that it violates: in a narrow kernel few cases are left of a clause.
  bool anywhere = false;
  // Whether the mutants, which are of one plug-in, share their workers: quicker, where what one of
  // them leaves behind is caught with it.
  bool share_workers = false;
  RunOptions run = {};
};

// Tries each mutant first on the cases that are said to show it, then on those of several clauses
// that it violates, and among those in the order that `cases` have. Then tries the controls on
// whatever caught a mutant: so a catch is the fault's doing. Which mutants are caught does not
// depend on the number of jobs. Which case catches one that keeps state between calls may: that is
// a matter of the cases that its worker served before. `testees` are the kernels of the plug-in;
// throws InputError if a mutant or control is not among them.
Hunt hunt(const std::vector<Case>& cases, const Catalogue& catalogue,
          const std::vector<Testee>& testees, const HuntOptions& options,
          const MakeExecutor& make_executor, const std::function<void(const VerdictRecord&)>& seen,
          const std::function<bool()>& interrupted);

}  // namespace attest
