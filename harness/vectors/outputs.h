// What somebody computed for a problem of a folder of vectors, read as a trial.
#pragma once

#include <filesystem>

#include "harness/judge/prepared.h"
#include "harness/judge/trial.h"
#include "spec/description.h"

namespace attest {

// From the folder of the case. The trial stops with the first file that is not as it should be:
// PROTOCOL_ERROR if one is missing, malformed, of another type or shape, or not asked for, and if
// an input is not what was written; NOT_RUN if there is no folder, or no output in it at all.
Trial read_outputs(const std::filesystem::path& folder, const PreparedCase& prepared,
                   const Description& testee);

}  // namespace attest
