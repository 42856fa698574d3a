#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "harness/command/commands.h"
#include "harness/command/gating.h"
#include "harness/command/identity.h"
#include "harness/command/machine.h"
#include "harness/command/terminal.h"
#include "harness/gate/ranking.h"
#include "harness/process/testee.h"
#include "harness/run/conclude.h"
#include "reports/files.h"
#include "reports/ranking.h"
#include "reports/text.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRankSchema = "attest-rank-1";

struct RankArguments {
  std::vector<std::string> named;  // folders and kernels
  GateArguments gate = {.baseline = "fa2"};
};

// What was named, and what came of it.
struct Entrant {
  std::string called;
  std::string error = {};  // why there is no kernel
  std::optional<Testee> testee = {};
  std::optional<Told> told = {};
};

// Through links, but none that lead nowhere.
bool is_file(const fs::directory_entry& entry) {
  std::error_code ignored;
  return entry.is_regular_file(ignored);
}

// The kernels of a folder are its FILE.py and LIBRARY.so, in the order of their names.
std::vector<std::string> specs_of(const std::string& named) {
  if (!fs::is_directory(named)) return {named};
  std::vector<std::string> specs;
  for (const fs::directory_entry& file : fs::directory_iterator(named)) {
    const std::string name = file.path().filename(), kind = file.path().extension();
    if (name.starts_with('.') || name.starts_with('_') || !is_file(file)) continue;
    if (kind == ".py" || kind == ".so") specs.push_back(file.path());
  }
  if (specs.empty()) {
    throw InputError("", fmt::format("{} holds no kernel: no FILE.py and no LIBRARY.so", named));
  }
  std::sort(specs.begin(), specs.end());
  return specs;
}

// All are loaded before any is asked: the seed is drawn after that. One that cannot be loaded is no
// reason to leave out the others.
std::vector<Entrant> entrants_of(const std::vector<std::string>& named, const Gating& gating) {
  std::vector<Entrant> entrants;
  for (const std::string& each : named) {
    for (const std::string& spec : specs_of(each)) {
      const std::string called = fs::path(spec).filename();
      try {
        auto kernels = gating.kernels(spec);
        const bool many = kernels.size() > 1;
        for (Testee& testee : kernels) {
          entrants.push_back({many ? fmt::format("{}:{}", called, testee.kernel) : called});
          entrants.back().testee = std::move(testee);
        }
      } catch (const InputError& error) {
        if (!fs::exists(spec.substr(0, spec.rfind(':')))) throw;
        entrants.push_back({called, error.what()});
      }
    }
  }
  // Where files of several folders have the same name.
  std::map<std::string, int> count;
  for (const Entrant& each : entrants) ++count[each.called];
  for (Entrant& each : entrants) {
    if (count[each.called] > 1 && each.testee) each.called = each.testee->spec;
  }
  std::set<std::string> names;
  for (const Entrant& each : entrants) {
    if (!names.insert(each.called).second) {
      throw InputError("", fmt::format("{} is named twice", each.called));
    }
  }
  return entrants;
}

std::string examples_of(std::size_t n) { return fmt::format("found-{}.json", n + 1); }

nlohmann::json to_json(const Entrant& entrant, const Ranked& ranked) {
  nlohmann::json json = {{"kernel", entrant.called}};
  if (!entrant.told) {
    json["error"] = entrant.error;
    return json;
  }
  if (ranked.place) json["place"] = *ranked.place;
  if (ranked.speed) json["speed"] = attest::to_json(*ranked.speed);
  if (ranked.memory) json["memory"] = attest::to_json(*ranked.memory);
  json["gate"] = attest::to_json(*entrant.told);
  return json;
}

std::string sentence_of(const std::vector<Entrant>& entrants, const Ranking& ranking, Index conform,
                        const std::string& baseline) {
  std::string text =
      fmt::format("{} of {} conform{}", conform, count_text(std::ssize(entrants), "kernel"),
                  conform == 1 ? "s" : "");
  const Ranked& first = ranking.kernels.front();
  if (!first.speed) return text + ".";
  std::vector<std::string> fastest;
  for (const Ranked& each : ranking.kernels) {
    if (each.place == 1u) fastest.push_back(one_line(entrants[each.kernel].called));
  }
  constexpr std::size_t kMostNamed = 3;
  if (fastest.size() > kMostNamed) {
    return text + fmt::format("; {} of them share the first place.", fastest.size());
  }
  return text + fmt::format("; the fastest {} {}: {} times as fast as {}.",
                            fastest.size() > 1 ? "are" : "is", list_text(fastest, ""),
                            interval_text(*first.speed), one_line(baseline));
}

nlohmann::json to_json(const std::vector<Entrant>& entrants, std::uint64_t seed,
                       const std::string& baseline) {
  std::vector<const GateResult*> results;
  Index conform = 0;
  for (const Entrant& each : entrants) {
    results.push_back(each.told ? &each.told->result : nullptr);
    conform += each.told && each.told->exit_code() == kConformant;
  }
  const Ranking ranking = ranking_of(results);
  nlohmann::json kernels = nlohmann::json::array(), compared = nlohmann::json::array();
  for (const Ranked& each : ranking.kernels) {
    kernels.push_back(to_json(entrants[each.kernel], each));
  }
  for (const Compared& each : ranking.compared) {
    compared.push_back({{"problem", each.problem}, {"shape", each.shape}, {"pass", each.pass}});
  }
  return {{"schema", kRankSchema},
          {"suite_version", ATTEST_VERSION},
          {"suite_commit", suite_commit()},
          {"processor", processor()},
          {"baseline", baseline},
          {"seed", seed},
          {"sentence", sentence_of(entrants, ranking, conform, baseline)},
          {"conform", conform},
          {"compared", compared},
          {"kernels", kernels}};
}

int exit_code_of(const std::vector<Entrant>& entrants) {
  bool open = false;
  for (const Entrant& each : entrants) {
    const int code = each.told ? each.told->exit_code() : kNotConformant;
    if (code == kNotConformant) return code;
    open |= code != kConformant;
  }
  return open ? kIncomplete : kConformant;
}

int rank(const RankArguments& asked) {
  const fs::path& out = asked.gate.recording.out;
  const Gating gating(asked.gate);
  std::vector<Entrant> entrants = entrants_of(asked.named, gating);
  const std::uint64_t seed = gating.seed();
  for (std::size_t n = 0; n < entrants.size(); ++n) {
    Entrant& each = entrants[n];
    if (each.testee) each.told = gating.told(*each.testee, seed, examples_of(n));
    if (interrupted()) throw Interrupted();
    fmt::print(stderr, "{} of {}: {}, {}\n", n + 1, entrants.size(), one_line(each.called),
               each.told ? each.told->verdict() : "not loaded");
  }
  const nlohmann::json ranking = to_json(entrants, seed, asked.gate.baseline);
  make_folder(out);
  write_file(out / "rank.json", json_text(ranking, 2) + "\n");
  write_file(out / "index.html", to_ranking_html(ranking));
  if (asked.gate.json) {
    fmt::print("{}\n", json_text(ranking, 2));
  } else {
    Terminal(stdout, asked.gate.recording.terminal).write_coloured(to_ranking_text(ranking));
    fmt::print("Page: {}\n", (out / "index.html").string());
  }
  return exit_code_of(entrants);
}

}  // namespace

Command add_rank(CLI::App& app) {
  const auto asked = std::make_shared<RankArguments>();
  CLI::App& command =
      *app.add_subcommand("rank", "Kernels of one task side by side, each put to the gate");
  command.footer(
      "All are loaded before the seed is drawn, which is the same for all. A place is shared where "
      "the intervals of two do not tell them apart.");
  command
      .add_option("kernels", asked->named,
                  "Folders of FILE.py and LIBRARY.so, or kernels as `attest gate` takes them")
      ->required();
  add_gate_options(command, asked->gate);
  take_one_at_a_time(command);
  return {.parser = &command, .carry_out = [=] { return rank(*asked); }};
}

}  // namespace attest
