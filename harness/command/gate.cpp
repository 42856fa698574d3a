#include <fmt/format.h>

#include <memory>
#include <string>

#include "harness/command/commands.h"
#include "harness/command/gating.h"
#include "harness/command/terminal.h"
#include "harness/fuzz/draws.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {
namespace {

int gate(const GateArguments& asked) {
  const Gating gating(asked);
  const std::string& named = asked.testees.testees.front();
  const auto kernels = gating.kernels(named);
  if (kernels.size() != 1) {
    throw InputError("", fmt::format("the kernel {} is {} kernels, and one is taken: {}", named,
                                     kernels.size(), kernels.front().spec));
  }
  const Told told = gating.told(kernels.front(), gating.seed(), fmt::format("{}.json", kFuzzStem));
  if (asked.json) {
    fmt::print("{}\n", json_text(to_json(told), 2));
  } else {
    Terminal(stdout, asked.recording.terminal).write_coloured(to_text(told));
  }
  return told.exit_code();
}

}  // namespace

Command add_gate(CLI::App& app) {
  const auto asked = std::make_shared<GateArguments>();
  CLI::App& command = *app.add_subcommand(
      "gate", "Whether a kernel that nobody trusts is right, and how fast, within a minute");
  command.footer(
      "Sizes and numbers come from a seed that the kernel cannot know; each timed call is judged. "
      "The last lines say how to repeat all of it.");
  command
      .add_option("kernel", asked->testees.testees,
                  "A bundled kernel's name, FILE.py, LIBRARY.so, either with :KERNEL behind it, or "
                  "exec:COMMAND")
      ->required()
      ->expected(1);
  add_gate_options(command, *asked);
  take_one_at_a_time(command);
  return {.parser = &command, .carry_out = [=] { return gate(*asked); }};
}

}  // namespace attest
