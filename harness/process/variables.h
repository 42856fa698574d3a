// The variables of the environment that a testee finds (SPEC.md, chapter "Worker", Isolation).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace attest {

// The names of variables that testees get, where a * ends a name of which only the beginning
// counts. Others may hold secrets.
const std::vector<std::string>& passed_names();

// The variables (NAME=VALUE) of this process that testees get: those of passed_names, and those
// named besides.
std::vector<std::string> passed_variables(const std::vector<std::string>& more_names = {});

// The GPUs that are to be seen here: those that CUDA_VISIBLE_DEVICES lists, else numbers from 0 on,
// as many as there are /dev/nvidia0 and so on. `root`: where dev/ lies.
std::vector<std::string> visible_devices(const std::filesystem::path& root = "/");

// The variables with that GPU alone to be seen.
std::vector<std::string> seeing(const std::string& device, std::vector<std::string> variables);

// The variables with HOME, TMPDIR and the caches of compilers in that home, and the name of a user
// if it has none. What finds the packages that the user installed keeps its value.
std::vector<std::string> at_home(std::vector<std::string> variables,
                                 const std::filesystem::path& home);

}  // namespace attest
