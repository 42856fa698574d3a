// The command `attest`.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "harness/command/commands.h"
#include "harness/command/session.h"
#include "harness/process/pool.h"
#include "harness/process/processes.h"
#include "harness/process/testee.h"
#include "harness/run/conclude.h"
#include "harness/run/run.h"
#include "harness/selfcheck/catalogue.h"
#include "reports/text.h"
#include "spec/contains.h"
#include "spec/json_reader.h"
#include "spec/spelling.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExitCodes =
    "Exit codes: 0 nothing failed, and nothing that was asked for is left open; 1 something "
    "failed; "
    "2 a mistake in the call, or Attest's own; 3 incomplete.";

// The words of a command line that are options, in short or in long, up to their values.
std::vector<std::string> options_among(const std::vector<std::string>& words) {
  std::vector<std::string> options;
  for (const std::string& word : words) {
    if (word == "--") break;
    const bool is_option =
        word.starts_with("--") || (word.size() > 1 && word[0] == '-' && std::isalpha(word[1]) != 0);
    if (is_option) options.push_back(word.substr(0, word.find('=')));
  }
  return options;
}

// Looks for options that the command does not have, before they are taken for something else.
void check_options(const CLI::App& command, const std::vector<std::string>& words) {
  std::vector<std::string> names;
  std::string letters;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) letters += name;
  }
  for (const std::string& option : options_among(words)) {
    const bool known = option.starts_with("--") ? contains(names, option)
                                                : letters.find(option[1]) != letters.npos;
    if (known) continue;
    throw InputError("", fmt::format("{} has no option {}; {}", command.get_name(), option,
                                     did_you_mean(option, names)));
  }
}

// The command that the words begin with; throws InputError if they begin otherwise. None: options
// of the program itself.
const CLI::App* command_of(const CLI::App& app, const std::vector<std::string>& words,
                           const std::vector<std::string>& names) {
  const std::string first = words.empty() ? "" : words.front();
  if (contains(names, first)) return app.get_subcommand(first);
  if (first.empty()) {
    throw InputError(
        "", fmt::format("which command? there are {}; --help says more", fmt::join(names, ", ")));
  }
  if (first == "help") throw InputError("", "attest --help says more, attest COMMAND --help too");
  if (!first.starts_with('-')) {
    throw InputError("",
                     fmt::format("there is no command {}; {}", first, did_you_mean(first, names)));
  }
  const auto command = std::find_if(words.begin(), words.end(),
                                    [&](const auto& word) { return contains(names, word); });
  if (command == words.end()) {
    check_options(app, words);
    return nullptr;
  }
  std::string line = "attest " + *command;
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (word != command) line += " " + quoted(*word);
  }
  throw InputError("",
                   fmt::format("{} stands before the command, which comes first: {}", first, line));
}

// What the command line says, though its options are known, and yet is wrong.
[[noreturn]] void complain(const CLI::App& app, const CLI::ParseError& error) {
  const std::string command = app.get_subcommands().front()->get_name();
  const bool extras = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  throw InputError("", extras ? fmt::format("{} does not know what to do with {}", command,
                                            fmt::join(app.remaining(true), " "))
                              : fmt::format("{}: {}; attest {} --help says more", command,
                                            error.what(), command));
}

// Why what was printed could not be written, though somebody is there to read it; else 0.
int error_of_output() {
  int error = std::fflush(stdout) == 0 ? 0 : errno;
  if (error == 0 && std::ferror(stdout) != 0) {  // earlier, and why is forgotten
    std::clearerr(stdout);
    const bool written = std::fputc('\n', stdout) != EOF && std::fflush(stdout) == 0;
    error = written ? EIO : errno;
  }
  if (error == 0) return 0;
  pollfd about{STDOUT_FILENO, POLLOUT, 0};
  const bool nobody_reads = poll(&about, 1, 0) > 0 && (about.revents & POLLERR) != 0;
  return nobody_reads ? 0 : error;
}

int main(int argc, char** argv) {
  CLI::App app("Attest: the conformance and verification suite for attention kernels");
  app.set_version_flag("--version", ATTEST_VERSION);
  app.require_subcommand(1);
  std::vector<Command> commands;
  for (const auto& add : {
           add_list,   add_explain, add_check,     add_run,      add_fuzz,
           add_gate,   add_rank,    add_selfcheck, add_criteria, add_limits,
           add_doctor, add_new,     add_probe,     add_repro,    add_vectors,
           add_judge,  add_report,  add_merge,     add_verify,   add_completion,
       }) {
    commands.push_back(add(app));
  }
  for (const Command& command : commands) {
    const std::string more = command.parser->get_footer();
    command.parser->footer(more.empty() ? kExitCodes : more + "\n" + kExitCodes);
  }
  app.footer(fmt::format("COMMAND --help says more. {}", kExitCodes));

  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.parser->get_name());
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (const CLI::App* named = command_of(app, words, names)) {
    check_options(*named, {words.begin() + 1, words.end()});
  }
  raise_open_files();  // before jobs are counted
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0 && !app.get_subcommands().empty()) complain(app, error);
    return app.exit(error) == 0 ? kConformant : kUsageOrHarnessError;
  }
  // What is asked for is nobody else's: case ids never cross, by no command line either.
  for (int i = 1; i < argc; ++i) std::memset(argv[i], 0, std::strlen(argv[i]));
  harden_this_process();
  const Command& command = *std::find_if(std::begin(commands), std::end(commands),
                                         [](const Command& c) { return c.parser->parsed(); });
  if (command.starts_testees) stop_on_signals();
  return command.carry_out();
}

}  // namespace
}  // namespace attest

int main(int argc, char** argv) {
  // What one case gives back, the next one takes: to return it to the system between them costs
  // more than to keep it.
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that is taken
  mallopt(M_TOP_PAD, 16 << 20);
  // A file that grows beyond its limit is an error of write, not our end.
  signal(SIGXFSZ, SIG_IGN);
  try {
    const int exit_code = attest::main(argc, argv);
    // Whoever stopped reading has read enough.
    if (const int error = attest::error_of_output()) {
      throw std::system_error(error, std::generic_category(), "the output cannot be written");
    }
    return exit_code;
  } catch (const attest::Interrupted& error) {
    std::fputs(fmt::format("attest: {}\n", error.what()).c_str(), stderr);
    return attest::kIncomplete;
  } catch (const std::exception& error) {
    // It may quote what a testee printed.
    std::fputs(fmt::format("attest: {}\n", attest::clean(error.what())).c_str(), stderr);
    return attest::kUsageOrHarnessError;
  }
}
