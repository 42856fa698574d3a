#include "harness/command/option_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "harness/process/pool.h"
#include "harness/process/surroundings.h"
#include "harness/run/conclude.h"
#include "harness/run/run.h"
#include "spec/dtype.h"
#include "spec/json_reader.h"
#include "spec/profile.h"
#include "spec/spelling.h"

namespace attest {
namespace {

// The name of an isolation, but for none.
CLI::Validator takes_isolation() {
  return takes("--require-isolation", "other-user, namespaces or user",
               [](const std::string& text) {
                 return std::any_of(kIsolations.begin(), kIsolations.end(), [&](const auto& each) {
                   return each.second == text && each.first != Isolation::none;
                 });
               });
}

}  // namespace

int hardware_threads() {
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

int usual_jobs() { return hardware_threads() + (hardware_threads() + 3) / 4; }

CLI::Validator takes(const std::string& option, const std::string& what,
                     const std::function<bool(const std::string&)>& accepts) {
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        if (accepts(text)) return "";
        throw InputError("", fmt::format("{} takes {}, not {}", option, what, text));
      },
      "");
}

CLI::Validator takes_count(const std::string& option, std::uint64_t least, std::uint64_t most) {
  return takes(option, fmt::format("a number from {} to {}", least, most),
               [=](const std::string& text) {
                 std::uint64_t number = 0;
                 const char* end = text.data() + text.size();
                 const auto [rest, error] = std::from_chars(text.data(), end, number);
                 return error == std::errc() && rest == end && number >= least && number <= most;
               });
}

CLI::Validator takes_dtype() {
  std::vector<std::string_view> names;
  for (const DType dtype : kDTypes) names.push_back(name(dtype));
  return takes("--dtype", fmt::format("one of {}", fmt::join(names, ", ")),
               [](const std::string& text) { return dtype_named(text).has_value(); });
}

CLI::Validator takes_seconds(const std::string& option) {
  constexpr double kLongest = 1'000'000;  // beyond any run, within any clock
  return takes(option, fmt::format("a number of seconds above 0, at most {}", kLongest),
               [](const std::string& text) {
                 char* end = nullptr;
                 const double seconds = std::strtod(text.c_str(), &end);
                 return end != text.c_str() && *end == '\0' && seconds > 0 && seconds <= kLongest;
               });
}

void add_testee_options(CLI::App& command, TesteeOptions& options, const std::string& testees) {
  const auto has_no_name = [](const CLI::Option* option) { return option->get_positional(); };
  const bool alone = command.get_options(has_no_name).empty();  // then this needs none
  command.add_option(
      alone ? "testees,--testee" : "--testee", options.testees,
      fmt::format("A bundled kernel's name, FILE.py, LIBRARY.so, either with :KERNEL "
                  "behind it, exec:COMMAND, or mutant:NAME; may be given again. "
                  "Default: {}",
                  testees));
  add_testee_limits(command, options);
}

void add_all_targets(CLI::App& command, TesteeOptions& options) {
  command
      .add_flag("--all-targets", options.all_targets,
                "The bundled kernels for each instruction set, and their variants, too")
      ->excludes("--testee");
}

void add_testee_limits(CLI::App& command, TesteeOptions& options) {
  command.add_option("--threads", options.threads, "Threads that a testee may use in a call")
      ->check(takes_count("--threads", 1, 4096))
      ->capture_default_str();
  command
      .add_option("--start-limit", options.limits.start_seconds,
                  "Seconds to load and describe a testee")
      ->check(takes_seconds("--start-limit"))
      ->capture_default_str();
  command
      .add_option("--call-limit", options.limits.call_seconds,
                  "Seconds for one call of a testee; large shapes get more")
      ->check(takes_seconds("--call-limit"))
      ->capture_default_str();
  command
      .add_option_function<std::size_t>(
          "--memory-limit", [&](std::size_t mib) { options.limits.memory_bytes = mib << 20; },
          "MiB of memory for a testee, beside the tensors")
      ->check(takes_count("--memory-limit", 1, 1 << 30))
      ->default_str(std::to_string(options.limits.memory_bytes >> 20));
  command
      .add_option("--env", options.environment,
                  fmt::format("A variable that testees get besides {}; a * may end the name. May "
                              "be given again",
                              fmt::join(passed_names(), ", ")))
      ->type_name("NAME");
  command.add_flag("--allow-network", options.network,
                   "Leave testees the network, of which they have none where that can be");
  command.add_flag("--keep-cache", options.keep_cache,
                   "Keep the homes of testees, with what they compiled, and print where they are");
  command.add_flag("--device-per-job", options.device_per_job,
                   "Deal the GPUs of this machine, or those of CUDA_VISIBLE_DEVICES, to the jobs: "
                   "each worker sees one");
  command
      .add_option("--sanitizer", options.sanitizer,
                  "A command that starts the workers of testees, as \"compute-sanitizer --tool "
                  "memcheck\" or \"valgrind -q\"; what it prints is the testee's")
      ->type_name("COMMAND");
  command
      .add_option_function<std::string>(
          "--require-isolation",
          [&](const std::string& text) {
            for (const auto& [isolation, name] : kIsolations) {
              if (name == text) options.weakest = isolation;
            }
          },
          "Refuse to run testees with less: other-user, namespaces or user")
      ->check(takes_isolation())
      ->type_name("LEVEL");
}

std::string surroundings_text(const TesteeOptions& options) {
  std::string text;
  for (const std::string& name : options.environment) text += " --env " + quoted(name);
  if (options.network) text += " --allow-network";
  if (!options.sanitizer.empty()) text += " --sanitizer " + quoted(options.sanitizer);
  return text;
}

void add_from(CLI::App& command, CaseOptions& options) {
  command.add_option("--from", options.from, "Another file or folder of cases");
}

void add_seed(CLI::App& command, CaseOptions& options, const std::string& about) {
  command.add_option("--seed", options.seed, about)
      ->check(takes_count("--seed", 0, kMostOfASeed))
      ->capture_default_str();
}

void add_selection(CLI::App& command, CaseOptions& options) {
  command
      .add_option("--cases", options.filters,
                  "A case's id, the beginning of one, or a pattern with * and **")
      ->type_name("GLOB");
  command
      .add_option_function<std::string>(
          "--tier", [&](const std::string& text) { options.tier = tier_named(text); },
          "smoke, standard or full")
      ->check(takes("--tier", "smoke, standard or full", is_tier))
      ->type_name("TIER")
      ->option_text("TIER [standard]");
  add_seed(command, options, "The s of case ids: other numbers, same cases");
  add_from(command, options);
}

CLI::Option* add_shapes(CLI::App& command, CaseOptions& options) {
  CLI::Option* const option =
      command
          .add_option("--shapes", options.shapes,
                      "Shapes in place of cases: a preset (attest list --shapes), or a file of "
                      "shapes, lines B,Hq,Hkv,Sq,Sk,D,Dv,mask or FlashInfer traces. May be given "
                      "again")
          ->type_name("NAME|FILE");
  if (CLI::Option* const from = command.get_option_no_throw("--from")) option->excludes(from);
  return option;
}

void take_one_at_a_time(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    if (!option->get_positional()) option->allow_extra_args(false);
  }
}

void add_colour(CLI::App& command, TerminalOptions& options) {
  command
      .add_option_function<std::string>(
          "--color", [&](const std::string& when) { options.colour = *colour_named(when); },
          "auto (on a terminal, unless NO_COLOR is set), always or never")
      ->check(takes("--color", "auto, always or never",
                    [](const std::string& when) { return colour_named(when).has_value(); }))
      ->type_name("WHEN")
      ->option_text("WHEN [auto]");
}

void add_loudness(CLI::App& command, TerminalOptions& options) {
  const auto become = [&](Loudness loudness) {
    return [&, loudness] { options.loudness = loudness; };
  };
  CLI::Option* quiet = command.add_flag_callback("-q,--quiet", become(Loudness::quiet),
                                                 "Say nothing but what it comes to");
  command
      .add_flag_callback("-v,--verbose", become(Loudness::verbose),
                         "A line for each verdict as it is given, and messages uncut")
      ->excludes(quiet);
}

void check_profiles(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (name != kNoProfile && !find_profile(name)) throw InputError("", no_profile(name));
    if (name == kNoProfile && names.size() > 1)
      throw InputError("", "--profile none goes with no other profile");
  }
}

std::vector<std::string> profiles_asked_for(const std::vector<std::string>& profiles,
                                            const CaseOptions& cases) {
  const bool none = profiles.empty() && !cases.shapes.empty();  // no profile is about shapes
  return none ? std::vector<std::string>{kNoProfile} : profiles;
}

void add_profiles(CLI::App& command, std::vector<std::string>& profiles) {
  command.add_option("--profile", profiles,
                     "A profile to be met, or none; X+declared takes arithmetic that is "
                     "declared beyond the default, too, X/limits what is met within the limits "
                     "that are declared. Default: all that a testee declares");
}

void add_known(CLI::App& command, std::filesystem::path& file) {
  command.add_option("--known", file, "A file of failures that are known, and don't count")
      ->type_name("FILE");
}

void add_out(CLI::App& command, RecordingOptions& options, const std::string& of_what) {
  command.add_option("--out", options.out, "The folder of " + of_what)->capture_default_str();
}

void add_recording(CLI::App& command, RecordingOptions& options) {
  command
      .add_option("--jobs", options.jobs,
                  "Cases examined at a time. Default: the hardware threads, and a quarter more")
      ->check(takes_count("--jobs", 1, 1024));
  add_out(command, options, "the record and its reports");
  command.callback([&] {
    const Crew crew = crew_for(options.jobs);
    if (crew.jobs < options.jobs) {
      fmt::print(stderr, "attest: {} jobs instead of {}: the system lets it open too few files\n",
                 crew.jobs, options.jobs);
    }
    options.jobs = crew.jobs;
    options.workers = crew.workers;
  });
}

}  // namespace attest
