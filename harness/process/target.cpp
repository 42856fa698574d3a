#include "harness/process/target.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "spec/json_reader.h"
#include "spec/spelling.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

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

}  // namespace

Target parse_target(const std::string& spec, const Installation& installation) {
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
          "", fmt::format("--testee {}: no bundled kernel of that name, and no path of a library, "
                          "which ends in .so; {}",
                          spec, did_you_mean(name, bundled)));
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

}  // namespace attest
