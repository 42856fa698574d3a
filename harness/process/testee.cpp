#include "harness/process/testee.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "harness/process/processes.h"
#include "harness/process/target.h"
#include "spec/json_reader.h"
#include "spec/spelling.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSystemFolders[] = {"/usr/", "/lib/", "/lib64/", "/bin/", "/sbin/"};

// Names stand in records, reports and command lines.
void check_name(const std::string& name) {
  constexpr std::size_t kLongest = 100;
  const bool printable =
      std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (name.empty() || name.size() > kLongest || !printable) {
    throw InputError(
        "/name",
        fmt::format("a kernel's name has 1 to {} printable characters, no space", kLongest));
  }
}

// What a kernel lacks that its plug-in would have elsewhere; empty if that isn't said.
std::string why_absent(const nlohmann::json& description, const std::string& kernel) {
  const auto absent = description.find("absent_kernels");
  if (absent == description.end() || !absent->is_array()) return "";
  for (const nlohmann::json& each : *absent) {
    if (each.is_object() && each.value("name", nlohmann::json()) == kernel) {
      const nlohmann::json why = each.value("why", nlohmann::json());
      return why.is_string() ? why.get<std::string>() : "";
    }
  }
  return "";
}

// Whether a library came with the system.
bool is_of_the_system(const std::string& file) {
  if (file.starts_with("/usr/local/")) return false;
  return std::any_of(std::begin(kSystemFolders), std::end(kSystemFolders),
                     [&](const char* folder) { return file.starts_with(folder); });
}

std::vector<std::string> made_of(const Target& target, const WorkerExecutor& executor,
                                 const Surroundings& around) {
  std::vector<std::string> files;
  const auto add = [&](const std::string& file) {
    std::error_code none;
    if (fs::is_regular_file(file, none)) files.push_back(fs::absolute(file).lexically_normal());
  };
  for (const std::string& file :
       target.plugin.empty() ? target.files : std::vector{target.plugin}) {
    add(file);
  }
  // What it compiles for itself, in its home, it may compile again.
  std::vector<std::string> apart = {fs::read_symlink("/proc/self/exe").parent_path().string()};
  if (around.homes) apart.push_back(around.homes->folder().string());
  for (const std::string& file : code_of(executor.family())) {
    const bool left_out = std::any_of(apart.begin(), apart.end(), [&](const std::string& folder) {
      return file.starts_with(folder + "/");
    });
    if (!left_out && !is_of_the_system(file)) add(file);
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

// That it describes itself wrongly, or not at all: with what it printed at last.
[[noreturn]] void complain(const Target& target, const Reply& reply, const std::string& what) {
  constexpr std::size_t kMostQuoted = 4096;  // of what a testee says or prints
  const std::size_t printed = reply.captured.size();
  throw InputError("",
                   fmt::format("--testee {}: {}{}{}", target.spec, what.substr(0, kMostQuoted),
                               printed == 0 ? "" : "\nIt printed:\n",
                               reply.captured.substr(printed - std::min(printed, kMostQuoted))));
}

// What it answers to "describe".
Reply ask(WorkerExecutor& executor, const Target& target, const Surroundings& around) {
  Reply reply = executor.execute({{"op", "describe"}});
  if (reply.kind == Reply::Kind::interrupted) throw Interrupted();
  if (reply.kind != Reply::Kind::answered) {
    std::string hint;
    if (!around.sanitizer.empty()) {
      hint = fmt::format("; it was started by --sanitizer {}: does it run without?",
                         fmt::join(around.sanitizer, " "));
    } else if (!target.prefix.empty() && reply.kind != Reply::Kind::timed_out) {
      hint = fmt::format(
          "; has {} the package attest_attention? ATTEST_PYTHON names one that has "
          "it, PYTHONPATH a folder where it lies",
          target.command.front());
    }
    complain(target, reply, reply.message + hint);
  }
  if (!reply.ok()) {
    const auto message = reply.body.find("message");
    const bool said = message != reply.body.end() && message->is_string();
    complain(target, reply, said ? message->get<std::string>() : "it does not describe itself");
  }
  return reply;
}

// The --testee that names one of so many kernels alone.
std::string spec_of(const Target& target, const std::string& kernel, std::size_t kernels) {
  if (target.spec.starts_with("exec:") || kernels == 1) return target.base;
  const bool is_file = target.base.ends_with(".so") || target.base.ends_with(".py");
  if (is_file) return target.base + ":" + kernel;
  return kernel;  // bundled: the kernel's name begins with the library's
}

// None of the kernels of those names is the one that is asked for.
[[noreturn]] void complain_of_absence(const Target& target, const Reply& reply,
                                      const std::vector<std::string>& names) {
  const std::string why = why_absent(reply.body, target.kernel);
  if (!why.empty()) {
    complain(target, reply, fmt::format("this kernel is absent here: {}", why));
  }
  complain(
      target, reply,
      fmt::format("it has no kernel {}; {}", target.kernel, did_you_mean(target.kernel, names)));
}

std::vector<Testee> describe(const Target& target, const Limits& limits, Isolation isolation,
                             const Surroundings& around, const std::function<bool()>& interrupted) {
  WorkerExecutor executor({.command = target.command,
                           .limits = limits,
                           .isolation = isolation,
                           .user = user_for(target.command),
                           .around = around,
                           .interrupted = interrupted});
  const Reply reply = ask(executor, target, around);
  const std::vector<std::string> files = made_of(target, executor, around);
  const nlohmann::json kernels =
      reply.body.contains("kernels") ? reply.body["kernels"] : nlohmann::json::array();
  if (!kernels.is_array() || kernels.empty()) complain(target, reply, "it describes no kernel");
  std::vector<Testee> testees;
  std::vector<std::string> names;
  for (const auto& entry : kernels) {
    if (interrupted && interrupted()) throw Interrupted();
    Testee testee;
    try {
      ObjectReader reader(entry, "/kernels");
      testee.kernel = reader.get<std::string>("name");
      check_name(testee.kernel);
      names.push_back(testee.kernel);
      if (!target.kernel.empty() && target.kernel != testee.kernel) continue;
      testee.description = parse_description(reader.at("description"));
      reader.finish();
    } catch (const InputError& error) {
      complain(target, reply,
               fmt::format("its description is wrong: {}{}{}", error.pointer(),
                           error.pointer().empty() ? "" : ": ", error.what()));
    }
    testee.name = target.prefix + testee.kernel;
    testee.spec = spec_of(target, testee.kernel, kernels.size());
    testee.command = target.command;
    testee.plugin = target.plugin;
    testee.files = files;
    testee.isolation = isolation;
    testee.user = user_for(target.command);
    testees.push_back(std::move(testee));
  }
  if (target.kernel.empty() && std::count(names.begin(), names.end(), target.first_choice) > 0) {
    std::erase_if(testees, [&](const Testee& t) { return t.kernel != target.first_choice; });
  }
  if (testees.empty()) complain_of_absence(target, reply, names);
  return testees;
}

}  // namespace

std::vector<Testee> find_testees(const std::vector<std::string>& specs,
                                 const Installation& installation, const Limits& limits,
                                 const Surroundings& around,
                                 const std::function<bool()>& interrupted) {
  const auto names = specs.empty() ? bundled_names(installation) : specs;
  if (names.empty()) {
    throw InputError(
        "", fmt::format("there are no bundled kernels in {}", installation.plugins.string()));
  }
  std::vector<Target> targets;
  for (const std::string& name : names) {
    targets.push_back(parse_target(name, installation));
    if (specs.empty()) targets.back().first_choice.clear();
  }
  std::vector<Testee> testees;
  std::map<std::string, int> uses;
  for (const Target& target : targets) {
    std::vector<std::string> needed = target.files;
    if (!around.sanitizer.empty()) needed.push_back(around.sanitizer.front());
    const Isolation isolation = strongest_isolation(needed, user_for(target.command));
    std::string unisolated;
    if (isolation == Isolation::none) {
      unisolated =
          strongest_isolation({}) == Isolation::none
              ? "the system allows none"
              : fmt::format("no other user may read all of {}", fmt::join(target.files, ", "));
    }
    for (Testee& testee : describe(target, limits, isolation, around, interrupted)) {
      testee.unisolated = unisolated;
      ++uses[testee.name];
      testees.push_back(std::move(testee));
    }
  }
  for (Testee& testee : testees) {
    if (uses[testee.name] > 1) testee.name = testee.spec;
  }
  std::set<std::string> taken;
  for (const Testee& testee : testees) {
    if (!taken.insert(testee.name).second) {
      throw InputError("", fmt::format("--testee {} is named twice", testee.spec));
    }
  }
  return testees;
}

Isolation weakest_isolation(const std::vector<Testee>& testees) {
  Isolation weakest = Isolation::other_user;
  for (const Testee& testee : testees) weakest = std::max(weakest, testee.isolation);
  return weakest;
}

WorkerOptions worker_options(const Testee& testee, const Limits& limits,
                             const Surroundings& around) {
  return {.command = testee.command,
          .limits = limits,
          .isolation = testee.isolation,
          .user = testee.user,
          .around = around,
          .counts_old_memory = !testee.plugin.empty()};
}

std::vector<std::string> files_to_keep(const Installation& installation,
                                       const std::vector<std::string>& specs) {
  std::vector<std::string> files = {installation.worker.parent_path().string(),
                                    installation.plugins.string(), installation.cases.string()};
  for (const std::string& spec : specs) {
    const Target target = parse_target(spec, installation);
    for (const std::string& file : target.files) {
      if (!fs::is_directory(file)) files.push_back(file);
    }
  }
  for (std::string& file : files) file = fs::absolute(file).lexically_normal().string();
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  std::erase_if(files, [](const std::string& file) { return !fs::exists(file); });
  return files;
}

}  // namespace attest
