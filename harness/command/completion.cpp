#include "harness/command/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cases/shapes.h"
#include "harness/command/commands.h"
#include "harness/process/installation.h"
#include "harness/process/sandbox.h"
#include "harness/run/conclude.h"
#include "spec/clause.h"
#include "spec/dtype.h"
#include "spec/feature.h"
#include "spec/json_reader.h"
#include "spec/profile.h"

namespace attest {
namespace {

constexpr const char* kScript =
    R"(# Completion of the command attest for bash, made by `attest completion bash`.
_attest() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=
  if ((COMP_CWORD == 1)); then
    words="{commands}"
  elif [[ $word == -* ]]; then
    case ${{COMP_WORDS[1]}} in
{options}    esac
  else
    case $before in
{values}    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _attest attest
)";

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

template <class Items, class Name>
std::string names_of(const Items& items, const Name& name_of) {
  std::vector<std::string> names;
  for (const auto& item : items) names.emplace_back(name_of(item));
  return joined(names);
}

// What may stand behind a word.
std::map<std::string, std::string> values() {
  const Installation installation = find_installation();
  const std::string testees = joined(bundled_names(installation));
  const std::string presets = names_of(shape_presets(installation.cases),
                                       [](const ShapePreset& each) { return each.name; });
  const std::string dtypes = names_of(kDTypes, [](DType each) { return name(each); });
  return {
      {"--tier", "smoke standard full"},
      {"--color", "auto always never"},
      {"--inputs", "theirs ours both"},
      {"--dtype", dtypes},
      {"--shapes", presets},
      {"--language", "c c++ cuda python"},
      {"--template", "minimal inference training serving"},
      {"--testee", testees},
      {"run", testees},
      {"check", testees},
      {"fuzz", testees},
      {"probe", testees},
      {"--features", joined(known_features())},
      {"--profile", std::string(kNoProfile) + " " +
                        names_of(profiles(), [](const Profile& each) { return each.name; })},
      {"--require-isolation", names_of(kIsolations, [](const auto& each) { return each.second; })},
      {"explain", names_of(clauses(), [](const Clause& each) { return each.id; })},
      {"completion", "bash"}};
}

std::vector<std::string> options_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  std::vector<std::string> commands;
  std::string options, after;
  for (const CLI::App* command : app.get_subcommands({})) {
    commands.push_back(command->get_name());
    options += fmt::format("      {}) words=\"{}\" ;;\n", command->get_name(),
                           joined(options_of(*command)));
  }
  for (const auto& [word, words] : values()) {
    after += fmt::format("      {}) words=\"{}\" ;;\n", word, words);
  }
  const auto own = options_of(app);
  commands.insert(commands.end(), own.begin(), own.end());
  return fmt::format(kScript, fmt::arg("commands", joined(commands)), fmt::arg("options", options),
                     fmt::arg("values", after));
}

Command add_completion(CLI::App& app) {
  CLI::App& command =
      *app.add_subcommand("completion", "Print a script by which a shell completes words");
  const auto shell = std::make_shared<std::string>();
  command.add_option("shell", *shell, "bash")->required();
  return {.parser = &command,
          .carry_out =
              [&app, shell] {
                if (*shell != "bash") {
                  throw InputError("", fmt::format("completion knows bash, not {}", *shell));
                }
                fmt::print("{}", bash_completion(app));
                return int(kConformant);
              },
          .starts_testees = false};
}

}  // namespace attest
