// Options that several commands have, and what their texts may be: a text that an option does not
// take is an InputError that says what it takes.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "harness/command/options.h"

namespace attest {

constexpr std::uint64_t kMostOfASeed = std::numeric_limits<std::uint64_t>::max();

// Lets text pass of which `accepts` is true; of other text it says what the option takes instead.
CLI::Validator takes(const std::string& option, const std::string& what,
                     const std::function<bool(const std::string&)>& accepts);

// A whole number within those limits.
CLI::Validator takes_count(const std::string& option, std::uint64_t least, std::uint64_t most);

// The name of a format.
CLI::Validator takes_dtype();

CLI::Validator takes_seconds(const std::string& option);

// --testee, and what it runs in; `testees` says which there are where none is named.
void add_testee_options(CLI::App& command, Options& options,
                        const std::string& testees = "all bundled kernels");
// What it runs in alone.
void add_running(CLI::App& command, Options& options);
void add_selection(CLI::App& command, Options& options);
// --shapes, which goes with no --from.
CLI::Option* add_shapes(CLI::App& command, Options& options);
// --profile, and whether there are such; and --known.
void add_profiles(CLI::App& command, Options& options);
void check_profiles(const std::vector<std::string>& names);
void add_known(CLI::App& command, Options& options);
void add_recording(CLI::App& command, Options& options);
// --color; and, where there is much to tell or to leave out, -q and -v.
void add_colour(CLI::App& command, Options& options);
void add_loudness(CLI::App& command, Options& options);

}  // namespace attest
