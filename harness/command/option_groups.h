// Options that several commands have, in groups, and what their texts may be: a text that an option
// does not take is an InputError that says what it takes.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "harness/command/terminal.h"
#include "harness/process/sandbox.h"
#include "harness/process/worker.h"
#include "harness/run/selection.h"

namespace attest {

// Which testees, and what they run in.
struct TesteeOptions {
  std::vector<std::string> testees = {};
  bool all_targets = false;  // of bundled kernels, where none is named
  int threads = 1;
  Limits limits = {};
  std::vector<std::string> environment = {};  // more names of variables that testees get
  bool network = false;
  bool keep_cache = false;
  bool device_per_job = false;
  std::string sanitizer = {};           // a command that starts their workers; empty: none
  Isolation weakest = Isolation::none;  // that will do
  bool in_process = false;              // of repro alone: in this process, and no worker's
};

// Which cases.
struct CaseOptions {
  std::vector<std::string> filters;
  Tier tier = Tier::standard;
  std::uint64_t seed = 1;
  std::filesystem::path from;       // another file or folder
  std::vector<std::string> shapes;  // presets and files of shapes, in place of cases
};

int hardware_threads();

// Cases at a time: more than there are hardware threads by a quarter, since each waits now and then
// for a worker to wake, or a worker for it.
int usual_jobs();

// How many at a time, where it is written, and how it is told.
struct RecordingOptions {
  int jobs = usual_jobs();
  std::size_t workers = 1;  // that testees have at a time
  std::filesystem::path out = "reports/out";
  TerminalOptions terminal = {};
};

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
void add_testee_options(CLI::App& command, TesteeOptions& options,
                        const std::string& testees = "the bundled kernels");
// --all-targets, where none need be named.
void add_all_targets(CLI::App& command, TesteeOptions& options);
// What they run in, where one is named otherwise.
void add_testee_limits(CLI::App& command, TesteeOptions& options);
// Those by which workers start, for a command that repeats something; empty: as by default.
std::string surroundings_text(const TesteeOptions& options);

// --cases, --tier, --seed and --from; and the latter for who takes no more.
void add_selection(CLI::App& command, CaseOptions& options);
void add_seed(CLI::App& command, CaseOptions& options, const std::string& about);
void add_from(CLI::App& command, CaseOptions& options);
// --shapes, which goes with no --from.
CLI::Option* add_shapes(CLI::App& command, CaseOptions& options);

// --profile, and whether there are such; those of a run that names none: none, where it is about
// shapes.
void add_profiles(CLI::App& command, std::vector<std::string>& profiles);
void check_profiles(const std::vector<std::string>& names);
std::vector<std::string> profiles_asked_for(const std::vector<std::string>& profiles,
                                            const CaseOptions& cases);
// --known.
void add_known(CLI::App& command, std::filesystem::path& file);

// --jobs, of which there will be as many as the limit on open files allows, and --out.
void add_recording(CLI::App& command, RecordingOptions& options);
// Each occurrence of an option takes one value, so that what stands behind it may be what the
// command needs: for commands with an argument that has no name.
void take_one_at_a_time(CLI::App& command);
void add_out(CLI::App& command, RecordingOptions& options, const std::string& of_what);

// --color; and, where there is much to tell or to leave out, -q and -v.
void add_colour(CLI::App& command, TerminalOptions& options);
void add_loudness(CLI::App& command, TerminalOptions& options);

}  // namespace attest
