// Cases of the plain kind of a testee, with numbers drawn as those of case files are.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cases/case.h"
#include "harness/probe/bench.h"
#include "spec/inputs.h"

namespace attest {

// As the plain problem of the format, with lengths of about 24, where `fields` say nothing else, in
// the words of case files. Throws InputError for what is no problem.
Case drawn_case(const Bench& bench, DType dtype, const nlohmann::json& fields);

// Whether what came back is right under the loosest arithmetic there is, LSE among it where that
// tells anything, and O of rows without keys as it was told; else the worst of it.
std::optional<std::string> wrong_of(const Bench& bench, const Case& test_case, const Inputs& inputs,
                                    const Reaction& reaction);
// Of one tensor alone.
std::optional<std::string> wrong_in(const Bench& bench, TensorName tensor, const Case& test_case,
                                    const Inputs& inputs, const Reaction& reaction);

}  // namespace attest
