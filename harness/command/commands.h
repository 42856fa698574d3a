// The commands of `attest`: each lies in a file of its own, with the options that it alone has.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "harness/command/options.h"

namespace attest {

struct Command {
  CLI::App* parser;  // its options, which it writes into those that it was added with
  // The exit code. Throws InputError, or Interrupted.
  std::function<int(const Options&)> carry_out;
  bool starts_testees = true;
};

Command add_list(CLI::App& app, Options& options);
Command add_run(CLI::App& app, Options& options);
Command add_fuzz(CLI::App& app, Options& options);
Command add_selfcheck(CLI::App& app, Options& options);
Command add_criteria(CLI::App& app, Options& options);
Command add_repro(CLI::App& app, Options& options);
Command add_report(CLI::App& app, Options& options);
Command add_verify(CLI::App& app, Options& options);
Command add_check(CLI::App& app, Options& options);
Command add_vectors(CLI::App& app, Options& options);
Command add_judge(CLI::App& app, Options& options);
Command add_explain(CLI::App& app, Options& options);
Command add_completion(CLI::App& app, Options& options);

}  // namespace attest
