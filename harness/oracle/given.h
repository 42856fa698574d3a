// What a caller of attest_judge hands over, checked and in our own terms. The opposite direction is
// plug-ins': harness/process/plugin_host.h.
#pragma once

#include <vector>

#include "harness/judge/trial.h"
#include "spec/attest_plugin.h"
#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest {

struct Given {
  Problem problem;  // without layouts: only the numbers count
  Inputs inputs;
  std::vector<Returned> returned;  // those that are there, the forward pass first
};

// Throws InputError for whatever is not as attest_plugin.h says, with its place ("inputs.q") as the
// pointer: "problem" with the clause in front where the problem as a whole is ill formed.
Given read_given(const attest_problem* problem, const attest_inputs* inputs,
                 const attest_outputs* outputs);

}  // namespace attest
