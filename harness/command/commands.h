// The commands of `attest`: each lies in a file of its own, with what it takes.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace attest {

struct Command {
  CLI::App* parser;
  // Does what was parsed; the exit code. Throws InputError, or Interrupted.
  std::function<int()> carry_out;
  bool starts_testees = true;  // which signals then end; false also where it sees to that itself
};

Command add_list(CLI::App& app);
Command add_explain(CLI::App& app);
Command add_check(CLI::App& app);
Command add_run(CLI::App& app);
Command add_fuzz(CLI::App& app);
Command add_gate(CLI::App& app);
Command add_rank(CLI::App& app);
Command add_selfcheck(CLI::App& app);
Command add_criteria(CLI::App& app);
Command add_limits(CLI::App& app);
Command add_doctor(CLI::App& app);
Command add_new(CLI::App& app);
Command add_probe(CLI::App& app);
Command add_repro(CLI::App& app);
Command add_vectors(CLI::App& app);
Command add_judge(CLI::App& app);
Command add_report(CLI::App& app);
Command add_merge(CLI::App& app);
Command add_verify(CLI::App& app);
Command add_completion(CLI::App& app);

}  // namespace attest
