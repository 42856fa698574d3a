#include "harness/command/option_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "harness/process/sandbox.h"
#include "harness/process/surroundings.h"
#include "harness/run/conclude.h"
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

void add_testee_options(CLI::App& command, Options& options, const std::string& testees) {
  command.add_option("--testee", options.testees,
                     fmt::format("A bundled kernel's name, LIBRARY.so, LIBRARY.so:KERNEL, "
                                 "exec:COMMAND, or mutant:NAME; may be given again. Default: {}",
                                 testees));
  add_running(command, options);
}

void add_running(CLI::App& command, Options& options) {
  command.add_option("--threads", options.threads, "Threads that a testee may use in a call")
      ->check(takes_count("--threads", 1, 4096))
      ->capture_default_str();
  command
      .add_option("--start-limit", options.limits.start_seconds,
                  "Seconds to load and describe a testee")
      ->check(takes_seconds("--start-limit"))
      ->capture_default_str();
  command
      .add_option("--call-limit", options.limits.call_seconds, "Seconds for one call of a testee")
      ->check(takes_seconds("--call-limit"))
      ->capture_default_str();
  command
      .add_option("--memory-limit", options.memory_mib,
                  "MiB of memory for a testee, beside the tensors")
      ->check(takes_count("--memory-limit", 1, 1 << 30))
      ->capture_default_str();
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

void add_selection(CLI::App& command, Options& options) {
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
  command.add_option("--seed", options.seed, "The s of case ids: other numbers, same cases")
      ->check(takes_count("--seed", 0, kMostOfASeed))
      ->capture_default_str();
  command.add_option("--from", options.from, "Another file or folder of cases");
}

CLI::Option* add_shapes(CLI::App& command, Options& options) {
  return command
      .add_option("--shapes", options.shapes,
                  "Shapes in place of cases: a preset (attest list --shapes), or a file of shapes, "
                  "lines B,Hq,Hkv,Sq,Sk,D,Dv,mask or FlashInfer traces. May be given again")
      ->type_name("NAME|FILE")
      ->excludes("--from");
}

void add_colour(CLI::App& command, Options& options) {
  command
      .add_option_function<std::string>(
          "--color",
          [&](const std::string& when) { options.terminal.colour = *colour_named(when); },
          "auto (on a terminal, unless NO_COLOR is set), always or never")
      ->check(takes("--color", "auto, always or never",
                    [](const std::string& when) { return colour_named(when).has_value(); }))
      ->type_name("WHEN")
      ->option_text("WHEN [auto]");
}

void add_loudness(CLI::App& command, Options& options) {
  const auto become = [&](Loudness loudness) {
    return [&, loudness] { options.terminal.loudness = loudness; };
  };
  CLI::Option* quiet = command.add_flag_callback("-q,--quiet", become(Loudness::quiet),
                                                 "Say nothing but what it comes to");
  command
      .add_flag_callback("-v,--verbose", become(Loudness::verbose),
                         "A line for each verdict as it is given, and messages uncut")
      ->excludes(quiet);
}

void check_profiles(const std::vector<std::string>& names) {
  std::vector<std::string> known = {kNoProfile};
  for (const Profile& profile : profiles()) known.emplace_back(profile.name);
  for (const std::string& name : names) {
    if (name != kNoProfile && !find_profile(name)) {
      throw InputError("",
                       fmt::format("there is no profile {} ({} and {} may stand behind each "
                                   "but none); {}",
                                   name, kTakesDeclared, kTakesLimits, did_you_mean(name, known)));
    }
    if (name == kNoProfile && names.size() > 1)
      throw InputError("", "--profile none goes with no other profile");
  }
}

void add_profiles(CLI::App& command, Options& options) {
  command.add_option("--profile", options.profiles,
                     "A profile to be met, or none; X+declared takes arithmetic that is "
                     "declared beyond the default, too, X/limits what is met within the limits "
                     "that are declared. Default: all that a testee declares");
}

void add_known(CLI::App& command, Options& options) {
  command
      .add_option("--known", options.known, "A file of failures that are known, and don't count")
      ->type_name("FILE");
}

void add_recording(CLI::App& command, Options& options) {
  command
      .add_option("--jobs", options.jobs, "Cases examined at a time. Default: the hardware threads")
      ->check(takes_count("--jobs", 1, 1024));
  command.add_option("--out", options.out, "The folder of the record and its reports")
      ->capture_default_str();
}

}  // namespace attest
