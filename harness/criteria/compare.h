// All judges on the same results: which wrong kernels does each catch, which right ones does it
// fail?
//
// The judges are the rules of rule.h, Attest's bounds by themselves, and Attest with all that it
// looks at. A testee is called through its worker, as in `attest run`, and what it returned first
// is what all of them are given. They agree that it failed where it returned nothing: it crashed,
// hung, refused what it declares. Where only a guard stopped it, the rules are given what it
// returns with room behind its tensors: their suites have no guards.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cases/case.h"
#include "harness/process/testee.h"
#include "harness/run/run.h"

namespace attest::criteria {

struct Subject {
  Testee testee;
  bool wrong;                 // on purpose
  std::vector<DType> dtypes;  // that its fault concerns; of a right one, those that it has
  std::vector<std::string> clauses = {};  // that its fault violates
};

struct Judge {
  std::string name;
  std::string source, says, nan;
  std::vector<DType> dtypes;
  std::string data;                // the class of inputs of its project; empty: any
  std::vector<std::string> lacks;  // the features that its project's tests do not try
};

// The rules, Attest's bounds, Attest.
const std::vector<Judge>& judges();

struct CaseSet {
  std::string name;   // "theirs", "ours"
  std::string about;  // in a sentence
  // Each rule sees those cases alone whose inputs are of its class, and whose features its
  // project's tests have.
  bool own_inputs = false;
  std::vector<Case> cases;  // a wrong kernel is tried on those of the clauses that it violates
};

// What one judge made of all subjects in one format, by their names.
struct Score {
  std::set<std::string> caught, missed;  // wrong
  std::set<std::string> failed, passed;  // right
};

struct Side {
  std::string name, about;
  Index cases = 0;
  std::map<std::string, std::map<DType, Score>> scores;  // by the judge's name
  // Where a rule sees its own inputs alone: what Attest made of just these.
  std::map<std::string, std::map<DType, Score>> attest_beside;
};

// Calls `seen` after each case. The result does not depend on the number of jobs, unless a kernel
// remembers earlier calls: each job has processes of its own.
Side compare(const CaseSet& set, const std::vector<Subject>& subjects, const RunOptions& options,
             const MakeExecutor& make_executor, const std::function<void()>& seen,
             const std::function<bool()>& interrupted);

}  // namespace attest::criteria
