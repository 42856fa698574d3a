// The command `attest`.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <system_error>
#include <vector>

#include "harness/command/commands.h"
#include "harness/command/session.h"
#include "harness/process/pool.h"
#include "harness/process/processes.h"
#include "harness/process/testee.h"
#include "harness/run/conclude.h"
#include "harness/selfcheck/catalogue.h"
#include "reports/text.h"
#include "spec/json_reader.h"
#include "spec/spelling.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExitCodes =
    "Exit codes: 0 nothing failed, and nothing that was asked for is left open; 1 something "
    "failed; "
    "2 a mistake in the call, or Attest's own; 3 incomplete.";

// Says which words of the command line mean nothing, and what they may have been meant to be.
[[noreturn]] void complain_of_extras(const CLI::App& app) {
  const CLI::App& command = *app.get_subcommands().front();
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  std::vector<std::string> unknown;
  for (const std::string& word : app.remaining(true)) {
    if (word.starts_with("-")) unknown.push_back(word.substr(0, word.find('=')));
  }
  if (unknown.empty()) {
    throw InputError("", fmt::format("{} does not know what to do with {}", command.get_name(),
                                     fmt::join(app.remaining(true), " ")));
  }
  throw InputError("", fmt::format("{} has no option {}; {}", command.get_name(), unknown.front(),
                                   did_you_mean(unknown.front(), names)));
}

int main(int argc, char** argv) {
  CLI::App app("Attest: the conformance and verification suite for attention kernels");
  app.set_version_flag("--version", ATTEST_VERSION);
  app.require_subcommand(1);
  std::vector<Command> commands;
  for (const auto& add : {
           add_list,
           add_explain,
           add_check,
           add_run,
           add_fuzz,
           add_selfcheck,
           add_criteria,
           add_doctor,
           add_new,
           add_probe,
           add_repro,
           add_vectors,
           add_judge,
           add_report,
           add_verify,
           add_completion,
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
  const std::string first = argc > 1 ? argv[1] : "";
  if (!first.starts_with('-') && std::find(names.begin(), names.end(), first) == names.end()) {
    throw InputError(
        "",
        first.empty()
            ? fmt::format("which command? there are {}; --help says more", fmt::join(names, ", "))
            : fmt::format("there is no command {}; {}", first, did_you_mean(first, names)));
  }
  raise_open_files();  // before jobs are counted
  try {
    app.parse(argc, argv);
  } catch (const CLI::ExtrasError&) {
    complain_of_extras(app);
  } catch (const CLI::ParseError& error) {
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
    if (std::fflush(stdout) != 0 && errno != EPIPE) {
      throw std::system_error(errno, std::generic_category(), "cannot write the output");
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
