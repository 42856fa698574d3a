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
  if (found_on_path(program).empty()) complain("is no program on the PATH");
}

// Where the file ends in FILE.so:NAME or FILE.so, or with another extension; 0 if it is neither.
// The name of a kernel may hold the extension, too.
std::size_t end_of_file(const std::string& spec, const std::string& extension) {
  const std::size_t colon = spec.find(extension + ":");
  if (colon != std::string::npos) return colon + extension.size();
  return spec.ends_with(extension) ? spec.size() : 0;
}

// The kernel that is named behind it; empty: all.
std::string kernel_behind(const std::string& spec, std::size_t end) {
  if (end == spec.size()) return "";
  if (end + 1 == spec.size()) {
    throw InputError("", fmt::format("--testee {}: no kernel is named behind the colon", spec));
  }
  return spec.substr(end + 1);
}

// A kernel in Python: FILE.py or FILE.py:NAME, in the interpreter that ATTEST_PYTHON names, which
// must have the package attest_attention.
Target of_python(const std::string& spec, std::size_t end) {
  const fs::path file = fs::absolute(spec.substr(0, end)).lexically_normal();
  const std::string python = python_program();
  if (!fs::exists(file)) {
    throw InputError("", fmt::format("--testee {}: there is no file {}", spec, file.string()));
  }
  if (access(python.c_str(), X_OK) != 0) {
    throw InputError("",
                     fmt::format("--testee {}: there is no Python; ATTEST_PYTHON names one", spec));
  }
  return {.spec = spec,
          .base = file.string(),
          .command = {python, "-m", "attest_attention.worker", file.string()},
          .files = {python, file.string()},
          .plugin = {},
          .kernel = kernel_behind(spec, end),
          .prefix = file.filename().string() + ":"};
}

}  // namespace

std::string found_on_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path file = fs::path(folder) / program;
    if (access(file.c_str(), X_OK) == 0) return file.string();
  }
  return "";
}

std::string python_program() {
  const char* named = std::getenv("ATTEST_PYTHON");
  return named ? named : found_on_path("python3");
}

Target parse_target(const std::string& spec, const Installation& installation) {
  Target target{.spec = spec, .base = spec, .command = {}, .files = {}, .plugin = {}, .kernel = {}};
  if (spec.starts_with("exec:")) {
    if (spec.size() == 5) throw InputError("", "--testee exec: needs a command behind the colon");
    check_program(spec, spec.substr(5));
    target.command = {"/bin/sh", "-c", "exec " + spec.substr(5)};
    target.files = files_of(spec.substr(5));
    return target;
  }
  if (const std::size_t end = end_of_file(spec, ".py")) return of_python(spec, end);
  if (const std::size_t end = end_of_file(spec, ".so")) {
    target.plugin = spec.substr(0, end);
    // Absolute, so that a repro line works from anywhere.
    target.base = fs::absolute(target.plugin).lexically_normal().string();
    target.kernel = kernel_behind(spec, end);
    if (!fs::exists(target.plugin)) {
      throw InputError("", fmt::format("--testee {}: there is no library {}", spec, target.plugin));
    }
  } else {
    const std::string name = spec.substr(0, spec.find('/'));
    const auto bundled = bundled_names(installation);
    if (std::find(bundled.begin(), bundled.end(), name) == bundled.end()) {
      throw InputError(
          "", fmt::format("--testee {}: no bundled kernel of that name, and no FILE.so, FILE.py or "
                          "exec:COMMAND; {}",
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
