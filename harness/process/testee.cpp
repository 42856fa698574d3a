#include "harness/process/testee.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>

#include "spec/json_reader.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSystemFolders[] = {"/usr/", "/lib/", "/lib64/", "/bin/", "/sbin/"};

// One --testee, taken apart.
struct Target {
  std::string spec;  // as given
  std::string base;  // the spec without a kernel's name
  std::vector<std::string> command;
  std::vector<std::string> files;  // that its worker must be able to read
  std::string plugin;
  std::string kernel;             // empty: all
  std::string first_choice = {};  // the only one, if there is one of that name
};

// The words of a shell command that name something in the file system, and the folder that it
// starts in.
std::vector<std::string> files_of(const std::string& command) {
  std::vector<std::string> files = {fs::current_path().string()};
  std::string word;
  const auto end_word = [&] {
    std::error_code none;
    if (!word.empty() && fs::exists(word, none)) files.push_back(fs::absolute(word).string());
    word.clear();
  };
  char quote = '\0';
  for (const char c : command) {
    if (quote != '\0' ? c == quote : c == '"' || c == '\'') {
      quote = quote == '\0' ? c : '\0';
    } else if (quote == '\0' && (c == ' ' || c == '\t' || c == '\n')) {
      end_word();
    } else {
      word += c;
    }
  }
  end_word();
  return files;
}

std::vector<std::string> bundled_names(const Installation& installation) {
  std::vector<std::string> names;
  if (!fs::is_directory(installation.plugins)) return names;
  for (const auto& entry : fs::directory_iterator(installation.plugins)) {
    if (entry.path().extension() == ".so") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Throws InputError if a command begins with the plain name of a program that there isn't.
void check_program(const std::string& spec, const std::string& command) {
  const std::string program = command.substr(0, command.find_first_of(" \t\n"));
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-./";
  if (program.empty() || program.find_first_not_of(kPlain) != std::string::npos) return;
  const auto complain = [&](const char* what) {
    throw InputError("", fmt::format("--testee {}: {} {}", spec, program, what));
  };
  if (program.find('/') != std::string::npos) {
    if (!fs::exists(program)) complain("does not exist");
    if (fs::is_directory(program)) complain("is a folder");
    if (access(program.c_str(), X_OK) != 0) complain("is no program: it may not be executed");
    return;
  }
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access((fs::path(folder) / program).c_str(), X_OK) == 0) return;
  }
  complain("is no program on the PATH");
}

Target parse(const std::string& spec, const Installation& installation) {
  Target target{.spec = spec, .base = spec, .command = {}, .files = {}, .plugin = {}, .kernel = {}};
  if (spec.starts_with("exec:")) {
    if (spec.size() == 5) throw InputError("", "--testee exec: needs a command behind the colon");
    check_program(spec, spec.substr(5));
    target.command = {"/bin/sh", "-c", "exec " + spec.substr(5)};
    target.files = files_of(spec.substr(5));
    return target;
  }
  const auto colon = spec.find(".so:");  // the name of a kernel may have ".so" in it, too
  if (colon != std::string::npos || spec.ends_with(".so")) {
    target.plugin = spec.substr(0, colon == std::string::npos ? colon : colon + 3);
    // Absolute, so that a repro line works from anywhere.
    target.base = fs::absolute(target.plugin).lexically_normal().string();
    if (colon != std::string::npos) {
      target.kernel = spec.substr(colon + 4);
      if (target.kernel.empty()) {
        throw InputError("", fmt::format("--testee {}: no kernel is named behind the colon", spec));
      }
    }
    if (!fs::exists(target.plugin)) {
      throw InputError("", fmt::format("--testee {}: there is no library {}", spec, target.plugin));
    }
  } else {
    const std::string name = spec.substr(0, spec.find('/'));
    const auto bundled = bundled_names(installation);
    if (std::find(bundled.begin(), bundled.end(), name) == bundled.end()) {
      throw InputError(
          "", fmt::format("--testee {}: no bundled kernel of that name; there are {}. A library "
                          "of yours is named by its path, which ends in .so",
                          spec, fmt::join(bundled, ", ")));
    }
    target.base = name;
    target.first_choice = name;
    target.plugin = (installation.plugins / (name + ".so")).string();
    if (spec != name) target.kernel = spec;
  }
  target.command = {installation.worker.string(), fs::absolute(target.plugin).string()};
  target.files = target.command;
  return target;
}

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
  for (const std::string& file : executor.code()) {
    const bool left_out = std::any_of(apart.begin(), apart.end(), [&](const std::string& folder) {
      return file.starts_with(folder + "/");
    });
    if (!left_out && !is_of_the_system(file)) add(file);
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

std::vector<Testee> describe(const Target& target, const Limits& limits, Isolation isolation,
                             const Surroundings& around, const std::function<bool()>& interrupted) {
  constexpr std::size_t kMostQuoted = 4096;  // of what a testee says or prints
  WorkerExecutor executor({.command = target.command,
                           .limits = limits,
                           .isolation = isolation,
                           .user = user_for(target.command),
                           .around = around,
                           .interrupted = interrupted});
  const Reply reply = executor.execute({{"op", "describe"}});
  if (reply.kind == Reply::Kind::interrupted) throw Interrupted();
  const auto complain = [&](const std::string& what) {
    throw InputError("",
                     fmt::format("--testee {}: {}{}{}", target.spec, what.substr(0, kMostQuoted),
                                 reply.captured.empty() ? "" : "\nIt printed:\n",
                                 reply.captured.substr(0, kMostQuoted)));
  };
  if (reply.kind != Reply::Kind::answered) complain(reply.message);
  if (!reply.ok()) {
    const auto message = reply.body.find("message");
    const bool said = message != reply.body.end() && message->is_string();
    complain(said ? message->get<std::string>() : "it does not describe itself");
  }
  const std::vector<std::string> files = made_of(target, executor, around);
  const nlohmann::json kernels =
      reply.body.contains("kernels") ? reply.body["kernels"] : nlohmann::json::array();
  if (!kernels.is_array() || kernels.empty()) complain("it describes no kernel");
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
      complain(fmt::format("its description is wrong: {}{}{}", error.pointer(),
                           error.pointer().empty() ? "" : ": ", error.what()));
    }
    testee.name = testee.kernel;
    testee.command = target.command;
    testee.plugin = target.plugin;
    testee.files = files;
    testee.isolation = isolation;
    testee.user = user_for(target.command);
    if (target.plugin.empty() || kernels.size() == 1) {
      testee.spec = target.base;
    } else if (target.base.ends_with(".so")) {
      testee.spec = target.base + ":" + testee.kernel;
    } else {
      testee.spec = testee.kernel;  // bundled: the kernel's name begins with the library's
    }
    testees.push_back(std::move(testee));
  }
  if (target.kernel.empty() && std::count(names.begin(), names.end(), target.first_choice) > 0) {
    std::erase_if(testees, [&](const Testee& t) { return t.kernel != target.first_choice; });
  }
  if (testees.empty()) {
    const std::string why = why_absent(reply.body, target.kernel);
    if (!why.empty()) complain(fmt::format("this kernel is absent here: {}", why));
    constexpr std::size_t kFew = 30;
    const bool few = names.size() <= kFew;
    complain(fmt::format("it has no kernel {}; {} {}", target.kernel,
                         few ? "there are" : fmt::format("of {}, the nearest are", names.size()),
                         fmt::join(few ? names : nearest_names(target.kernel, names), ", ")));
  }
  return testees;
}

}  // namespace

Installation find_installation() {
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path prefix = program.parent_path();
  const char* cases = std::getenv("ATTEST_CASES");
  const fs::path installed = prefix / "share" / "attest" / "cases";
  return {.worker = program / "attest-worker",
          .plugins = prefix / "lib" / "attest",
          .cases = cases                   ? fs::path(cases)
                   : fs::exists(installed) ? installed
                                           : fs::path(ATTEST_CASES_DIR),
          .test_plugins = prefix / "tests" / "plugins"};
}

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
    targets.push_back(parse(name, installation));
    if (specs.empty()) targets.back().first_choice.clear();
  }
  std::vector<Testee> testees;
  std::map<std::string, int> uses;
  for (const Target& target : targets) {
    const Isolation isolation = strongest_isolation(target.files, user_for(target.command));
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
    const Target target = parse(spec, installation);
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
