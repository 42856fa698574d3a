// What a shell offers to complete the words of the command.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace attest {

// A script for bash, made of what `app` takes: its commands, their options, and what these may be
// where that is one of few.
std::string bash_completion(const CLI::App& app);

}  // namespace attest
