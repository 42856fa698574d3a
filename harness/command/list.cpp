#include "harness/command/commands.h"

#include <fmt/format.h>

#include "cases/case.h"
#include "harness/command/option_groups.h"
#include "harness/command/session.h"
#include "harness/run/conclude.h"
#include "spec/json_text.h"

namespace attest {
namespace {

int list(const Options& options) {
  const auto cases = selected_cases(options, installation_for(options));
  if (options.json) {
    nlohmann::json all = nlohmann::json::array();
    for (const Case& c : cases) {
      all.push_back({{"case", c.id},
                     {"clauses", c.clauses},
                     {"because", c.because},
                     {"tier", name_of(c.tier)},
                     {"problem", to_string(c.problem)},
                     {"data", c.data},
                     {"file", c.file},
                     {"line", c.line}});
    }
    fmt::print("{}\n", json_text(all, 2));
  } else {
    for (const Case& c : cases) fmt::print("{}\n", c.id);
    fmt::print(stderr, "{} cases of tier {}\n", cases.size(), name_of(options.tier));
  }
  if (cases.empty()) {
    fmt::print(stderr, "attest: nothing is selected{}\n",
               options.tier == Tier::full ? "" : "; a higher --tier may hold what you look for");
    return kIncomplete;
  }
  return kConformant;
}

}  // namespace

Command add_list(CLI::App& app, Options& options) {
  CLI::App& command = *app.add_subcommand("list", "List cases");
  add_selection(command, options);
  command.add_flag("--json", options.json, "As JSON, with clauses and reasons");
  return {.parser = &command, .carry_out = list, .starts_testees = false};
}

}  // namespace attest
