// `attest new`: a kernel to begin with, in a folder of its own, that builds, is judged and passes.
//
// What it writes lies as it is in impl/new/, but for lines between marks, which are those of some
// languages and templates alone, and for its name:
//
//   // [training serving]     what follows is for these, up to the next mark
//   // [end]                  for all again
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "harness/command/commands.h"
#include "harness/command/option_groups.h"
#include "harness/process/installation.h"
#include "harness/process/target.h"
#include "harness/run/conclude.h"
#include "harness/run/run.h"
#include "reports/files.h"
#include "spec/contains.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

struct NewArguments {
  std::string language = "c++", name, template_name = "minimal";
};

struct Language {
  std::string name;
  std::vector<std::string> files;  // in impl/new/; kernel.* is named after the kernel
};

const std::vector<Language>& languages() {
  static const std::vector<Language> kLanguages = {
      {"c", {"kernel.c", "CMakeLists.txt", "README.md"}},
      {"c++", {"kernel.cpp", "CMakeLists.txt", "README.md"}},
      {"cuda", {"kernel.cu", "CMakeLists.txt", "README.md"}},
      {"python", {"kernel.py", "README.md"}}};
  return kLanguages;
}
constexpr const char* kTemplates[] = {"minimal", "inference", "training", "serving"};

// The lines of a file that are for a language or a template of these, with the kernel's name.
std::string lines_for(const fs::path& file, const std::vector<std::string>& words,
                      const std::string& name) {
  static const std::regex mark(R"(\s*(?://|#|/\*|<!--) \[([a-z+ ]+)\](?: \*/| -->)?)");
  std::ifstream in(file);
  if (!in) throw InputError("", fmt::format("cannot read {}", file.string()));
  std::string text;
  bool wanted = true;
  for (std::string line; std::getline(in, line);) {
    std::smatch match;
    if (std::regex_match(line, match, mark)) {
      std::istringstream for_whom(match[1]);
      wanted = match[1] == "end";
      for (std::string word; for_whom >> word;) wanted = wanted || contains(words, word);
    } else if (wanted) {
      text += line + "\n";
    }
  }
  constexpr std::string_view kName = "@NAME@";
  for (std::size_t at = 0; (at = text.find(kName, at)) != std::string::npos; at += name.size()) {
    text.replace(at, kName.size(), name);
  }
  return text;
}

// Whether there is a module of that name, which the kernel's file would stand in the way of: of
// those that kernels are written with, and of what Python has of its own, if there is one to ask.
bool is_module(const std::string& name) {
  static const std::vector<std::string> kKnown = {"attest_attention",
                                                  "cupy",
                                                  "flash_attn",
                                                  "jax",
                                                  "jaxlib",
                                                  "ml_dtypes",
                                                  "numba",
                                                  "numpy",
                                                  "pytest",
                                                  "scipy",
                                                  "test",
                                                  "torch",
                                                  "transformers",
                                                  "triton",
                                                  "xformers",
                                                  "tensorflow",
                                                  "typing"};
  if (contains(kKnown, name)) return true;
  const std::string python = python_program();
  if (python.empty()) return false;
  return std::system(fmt::format("{} -I -c 'import importlib.util, keyword, sys; name = \"{}\"; "
                                 "sys.exit(not (keyword.iskeyword(name) or "
                                 "importlib.util.find_spec(name)))' > /dev/null 2>&1",
                                 quoted(python), name)
                         .c_str()) == 0;
}

// A target of CMake, a module of Python, the name of a file.
void check_kernel_name(const std::string& name, const std::string& language) {
  static const std::regex fits("[A-Za-z][A-Za-z0-9_]{0,63}");
  if (!std::regex_match(name, fits)) {
    throw InputError("", fmt::format("new: a name has letters, digits and _, up to 64 of them, and "
                                     "begins with a letter, unlike \"{}\"",
                                     name));
  }
  static const std::vector<std::string> kTargets = {
      "all",     "attest", "clean",   "codegen",        "edit_cache",    "help",
      "install", "m",      "package", "package_source", "rebuild_cache", "test"};
  if (name == "attest" || (language != "python" && contains(kTargets, name))) {
    throw InputError("", fmt::format("new: {} is the name of a target or library that CMake or "
                                     "Attest has; another one, as my_{}, will do",
                                     name, name));
  }
  if (language == "python" && is_module(name)) {
    throw InputError("",
                     fmt::format("new: {} is a module or a word of Python: {}.py would stand in "
                                 "its way; another name, as my_{}, will do",
                                 name, name, name));
  }
}

int write_skeleton(const NewArguments& asked) {
  check_kernel_name(asked.name, asked.language);
  const Language& language =
      *std::find_if(languages().begin(), languages().end(),
                    [&](const Language& each) { return each.name == asked.language; });
  const fs::path sources = find_installation().skeletons;
  if (fs::exists(fs::symlink_status(asked.name))) {
    throw InputError("", fmt::format("new: {} is there already; nothing was written", asked.name));
  }
  NewFolder folder(asked.name);
  std::vector<std::pair<fs::path, std::string>> files;
  for (const std::string& file : language.files) {
    const fs::path path = file;
    const bool is_kernel = path.stem() == "kernel";
    files.emplace_back(folder.path() / (is_kernel ? asked.name + path.extension().string() : file),
                       lines_for(sources / file, {language.name, asked.template_name}, asked.name));
  }
  for (const auto& [path, text] : files) write_file(path, text);
  folder.put_in_place();
  // What is next stands in its README.
  fmt::print("{}: {}, {}\n\n    cd {}\n", asked.name, language.name, asked.template_name,
             asked.name);
  std::istringstream readme(files.back().second);
  for (std::string line; std::getline(readme, line);) {
    if (line.starts_with("    ")) fmt::print("{}\n", line);
  }
  return kConformant;
}

}  // namespace

Command add_new(CLI::App& app) {
  const auto asked = std::make_shared<NewArguments>();
  CLI::App& command = *app.add_subcommand("new", "Write a kernel to begin with, in a new folder");
  std::vector<std::string> names;
  for (const Language& each : languages()) names.push_back(each.name);
  const std::vector<std::string> templates(std::begin(kTemplates), std::end(kTemplates));
  const auto one_of = [](const char* option, const std::vector<std::string>& known) {
    return takes(option, fmt::format("{}", fmt::join(known, ", ")),
                 [known](const std::string& text) { return contains(known, text); });
  };
  command.add_option("NAME", asked->name, "Of the folder, the kernel, its file")->required();
  command.add_option("--language", asked->language, "c, c++, cuda or python")
      ->check(one_of("--language", names))
      ->type_name("LANGUAGE")
      ->capture_default_str();
  command
      .add_option("--template", asked->template_name,
                  "What it declares: minimal, the forward pass in f32, full or causal; inference, "
                  "with windows, lengths and f16, bf16 beside; training, with a backward pass; "
                  "serving, with packed rows and keys in pages")
      ->check(one_of("--template", templates))
      ->type_name("TEMPLATE")
      ->capture_default_str();
  return {.parser = &command,
          .carry_out = [=] { return write_skeleton(*asked); },
          .starts_testees = false};
}

}  // namespace attest
