// The machine that all runs on, in words.
#pragma once

#include <filesystem>
#include <string>

namespace attest {

// What stands behind the name in the first line of a file of /proc that begins with it; empty if
// none does.
std::string entry_of(const std::filesystem::path& file, const std::string& name);

// Its name, hardware threads, and those of its instructions that matter for kernels.
std::string processor();

}  // namespace attest
