#include "harness/command/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "cases/case.h"
#include "cases/shapes.h"
#include "harness/command/option_groups.h"
#include "harness/command/session.h"
#include "harness/process/testee.h"
#include "harness/run/conclude.h"
#include "spec/clause.h"
#include "spec/contains.h"
#include "spec/feature.h"
#include "spec/json_text.h"
#include "spec/profile.h"

namespace attest {
namespace {

struct ListArguments {
  CaseOptions cases;
  bool json = false;
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

int list_profiles(const ListArguments& asked) {
  nlohmann::json all = nlohmann::json::array();
  for (const Profile& p : profiles()) {
    if (!asked.json) {
      fmt::print("{:<18} {}\n{:<18} {}\n", p.name, p.about, "", fmt::join(p.clauses, ", "));
    }
    all.push_back({{"profile", p.name}, {"about", p.about}, {"clauses", p.clauses}});
  }
  if (asked.json) fmt::print("{}\n", json_text(all, 2));
  return kConformant;
}

int list_clauses(const ListArguments& asked) {
  nlohmann::json all = nlohmann::json::array();
  for (const Clause& c : clauses()) {
    std::vector<std::string_view> demanding;
    for (const Profile& p : profiles()) {
      if (contains(p.clauses, c.id)) demanding.push_back(p.name);
    }
    if (!asked.json) {
      fmt::print("{:<10} {:<11} {:<18} {}\n", c.id, name(c.level),
                 fmt::format("{}", fmt::join(demanding, ", ")), c.title);
    }
    all.push_back(
        {{"clause", c.id}, {"level", name(c.level)}, {"title", c.title}, {"profiles", demanding}});
  }
  if (asked.json) fmt::print("{}\n", json_text(all, 2));
  return kConformant;
}

// The bundled kernels, which are started and asked.
int list_testees(const ListArguments& asked) {
  stop_on_signals();
  const Installation installation = find_installation();
  const TesteeOptions options = {.all_targets = true};
  const Surroundings around = surroundings_for(options, installation);
  nlohmann::json all = nlohmann::json::array();
  for (const Testee& testee : testees_for(options, installation, around)) {
    const Description& d = testee.description;
    std::vector<std::string_view> dtypes;
    for (const DType dtype : d.dtypes) dtypes.push_back(name(dtype));
    if (!asked.json) {
      fmt::print("{:<18} {:<18} {}\n", testee.spec, fmt::format("{}", fmt::join(dtypes, ", ")),
                 fmt::join(d.profiles, ", "));
    }
    all.push_back({{"testee", testee.spec},
                   {"version", d.version},
                   {"vendor", d.vendor},
                   {"dtypes", dtypes},
                   {"profiles", d.profiles},
                   {"features", d.features}});
  }
  if (asked.json) fmt::print("{}\n", json_text(all, 2));
  return kConformant;
}

int list(const ListArguments& asked) {
  // The option without a value has an empty one.
  const bool names_shapes = asked.cases.shapes != std::vector<std::string>{""};
  if (!names_shapes) return list_presets(asked);
  const auto cases = selected_cases(asked.cases, installation_for(asked.cases)).cases;
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
  CLI::App& command = *app.add_subcommand("list", "List cases, or what else there is");
  add_selection(command, asked->cases);
  add_shapes(command, asked->cases)
      ->expected(0, -1)
      ->description("The presets of shapes; or the cases of these presets or files of shapes");
  command.add_flag("--json", asked->json, "As JSON, with clauses and reasons");
  // Instead of cases.
  struct Kind {
    const char* name;
    const char* about;
    int (*list)(const ListArguments&);
  };
  constexpr std::array<Kind, 4> kKinds = {
      {{"--features",
        "What a testee may declare instead: features and formats, when a problem needs each, its "
        "clauses and their profiles",
        list_features},
       {"--profiles", "The profiles instead, with their clauses", list_profiles},
       {"--clauses", "The clauses instead, with their levels and profiles", list_clauses},
       {"--testees", "The bundled kernels instead, as --testee takes them", list_testees}}};
  const auto chosen = std::make_shared<int (*)(const ListArguments&)>(list);
  std::vector<CLI::Option*> others;
  for (const Kind& kind : kKinds) {
    CLI::Option* flag = command.add_flag_callback(
        kind.name, [chosen, kind] { *chosen = kind.list; }, kind.about);
    for (CLI::Option* other : others) flag->excludes(other);
    others.push_back(flag);
  }
  return {
      .parser = &command, .carry_out = [=] { return (*chosen)(*asked); }, .starts_testees = false};
}

}  // namespace attest
