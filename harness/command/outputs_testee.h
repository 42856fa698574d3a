// Whoever computed the outputs of a folder of vectors, as a testee that is never started.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "harness/process/testee.h"

namespace attest {

// The JSON of a file. Throws InputError.
nlohmann::json read_declaration(const std::filesystem::path& file);

// Of that declaration; throws InputError that names `where` if it is wrong.
Testee outputs_testee(const nlohmann::json& declared, const std::filesystem::path& folder,
                      const std::string& where);

}  // namespace attest
