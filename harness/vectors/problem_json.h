// What problem.json says in a folder of vectors (SPEC.md, chapter "Vectors").
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "cases/case.h"
#include "harness/process/tensors.h"
#include "spec/description.h"

namespace attest {

// The outputs that are wanted of a testee: of the forward pass, then of the backward pass.
std::vector<Crossing> outputs_wanted(const Problem& problem, const Description& testee);

// The case in words, the problem as it crosses to a worker, and the file, type and shape of each
// tensor.
nlohmann::json problem_json(const Case& test_case, const Description& testee);

}  // namespace attest
