#include "harness/command/commands.h"

#include <fmt/format.h>

#include <memory>

#include "cases/case.h"
#include "cases/shapes.h"
#include "harness/command/option_groups.h"
#include "harness/command/session.h"
#include "harness/run/conclude.h"
#include "spec/feature.h"
#include "spec/json_text.h"

namespace attest {
namespace {

struct ListArguments {
  CaseOptions cases;
  bool json = false;
  bool features = false;
};

// What a testee may declare: the table of features, with the profile of each clause.
int list_features(const ListArguments& asked) {
  nlohmann::json all = nlohmann::json::array();
  for (const Feature& feature : features()) {
    nlohmann::json clauses = nlohmann::json::object();
    std::string words;
    for (const auto& demand : feature.demands()) {
      clauses[std::string(demand.clause)] = demand.profile;
      words += fmt::format("{}{} ({})", words.empty() ? "" : ", ", demand.clause, demand.profile);
    }
    if (!asked.json) {
      fmt::print("{:<18} {:<9} {}\n{:<28} {}\n", feature.name, feature.key, feature.needed_when, "",
                 words.empty() ? "no clause" : words);
    }
    all.push_back({{"feature", feature.name},
                   {"declared_in", feature.key},
                   {"needed_when", feature.needed_when},
                   {"limit_if_absent", is_limit_if_absent(feature)},
                   {"clauses", clauses}});
  }
  if (asked.json) fmt::print("{}\n", json_text(all, 2));
  return kConformant;
}

int list_presets(const ListArguments& asked) {
  const auto presets = shape_presets(installation_for(asked.cases).cases);
  if (asked.json) {
    nlohmann::json all = nlohmann::json::array();
    for (const ShapePreset& p : presets) {
      all.push_back({{"name", p.name},
                     {"about", p.about},
                     {"source", p.source},
                     {"file", p.file.generic_string()}});
    }
    fmt::print("{}\n", json_text(all, 2));
  } else {
    for (const ShapePreset& p : presets) fmt::print("{:<12} {}\n", p.name, p.about);
  }
  return presets.empty() ? kIncomplete : kConformant;
}

int list(const ListArguments& asked) {
  if (asked.features) return list_features(asked);
  // The option without a value has an empty one.
  const bool names_shapes = asked.cases.shapes != std::vector<std::string>{""};
  if (!names_shapes) return list_presets(asked);
  const auto cases = selected_cases(asked.cases, installation_for(asked.cases));
  if (asked.json) {
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
    fmt::print(stderr, "{} cases of tier {}\n", cases.size(), name_of(asked.cases.tier));
  }
  if (cases.empty()) {
    fmt::print(
        stderr, "attest: nothing is selected{}\n",
        asked.cases.tier == Tier::full ? "" : "; a higher --tier may hold what you look for");
    return kIncomplete;
  }
  return kConformant;
}

}  // namespace

Command add_list(CLI::App& app) {
  const auto asked = std::make_shared<ListArguments>();
  CLI::App& command = *app.add_subcommand("list", "List cases, shapes or features");
  add_selection(command, asked->cases);
  add_shapes(command, asked->cases)
      ->expected(0, -1)
      ->description("The presets of shapes; or the cases of these presets or files of shapes");
  command.add_flag("--json", asked->json, "As JSON, with clauses and reasons");
  command.add_flag("--features", asked->features,
                   "What a testee may declare instead: features and formats, when a problem needs "
                   "each, its clauses and their profiles");
  return {.parser = &command, .carry_out = [=] { return list(*asked); }, .starts_testees = false};
}

}  // namespace attest
