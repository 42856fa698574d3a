#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cases/case.h"
#include "harness/check/corrupting.h"
#include "harness/check/easy.h"
#include "harness/check/reach.h"
#include "harness/command/commands.h"
#include "harness/command/option_groups.h"
#include "harness/command/session.h"
#include "harness/diagnosis/likeness.h"
#include "harness/diagnosis/looser.h"
#include "harness/process/testee.h"
#include "harness/run/conclude.h"
#include "harness/run/run.h"
#include "reports/groups.h"
#include "reports/text.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {
namespace {

// What easy problems may take: who hangs is told so within seconds.
constexpr double kCallSeconds = 5;

struct CheckArguments {
  TesteeOptions testees = {.limits = {.call_seconds = kCallSeconds}};
  TerminalOptions terminal;
  bool json = false;
};

// One problem that was tried.
struct Tried {
  Case test_case;
  Verdict verdict;
  std::string meant = {};
};

// Nor is it wrong if an empty row follows a declared dialect, and nothing else was asked.
bool is_fine(const Verdict& verdict) {
  return conforms(verdict.outcome) ||
         (verdict.outcome == Outcome::unsupported && verdict.reason == Reason("dialect"));
}

// One whose replies were damaged.
struct Damaged {
  Corruption corruption;
  Verdict verdict;
  bool seen = false;
};

struct Checked {
  std::vector<Tried> easy = {};
  std::vector<Damaged> damaged = {};
  TesteeReach reach = {};
  std::vector<std::string> next = {};  // commands

  bool hangs() const { return !easy.empty() && easy.back().verdict.outcome == Outcome::timeout; }

  bool is_right() const {
    return !easy.empty() && std::all_of(easy.begin(), easy.end(), [](const Tried& each) {
      return is_fine(each.verdict);
    }) && std::all_of(damaged.begin(), damaged.end(), [](const Damaged& each) {
      return each.seen;
    });
  }
};

// Tries the easy problems up to one that takes too long, and one of them twice more with damaged
// replies.
void try_easy(const std::vector<Case>& cases, const Testee& testee, Executor& executor,
              const RunOptions& options, Checked& checked) {
  const Case* right = nullptr;
  for (const Case& c : cases) {
    PreparedCase prepared(c, 1);
    Examination examination = examination_of(prepared, testee, executor, options);
    if (interrupted()) throw Interrupted();
    Tried tried = {c, std::move(examination.verdict)};
    tried.verdict.repro = repro_line(c, testee, options);
    if (asks_for_names(tried.verdict)) {
      const auto meant = meant_by(prepared, testee.description, examination.trial, interrupted);
      tried.meant =
          explanation(meant, prepared, testee.description, examination.trial, interrupted);
      if (meant.empty() && !tried.meant.empty()) tried.verdict.blamed = kClauseOfDeclarations;
    }
    checked.easy.push_back(std::move(tried));
    if (checked.hangs()) return;
    if (!right && checked.easy.back().verdict.outcome == Outcome::pass) right = &c;
  }
  if (!right) return;
  for (const Corruption corruption : {Corruption::value, Corruption::beside}) {
    PreparedCase prepared(*right, 1);
    Corrupting damaging(executor, corruption);
    Verdict verdict = examination_of(prepared, testee, damaging, options).verdict;
    const bool seen = is_fault(verdict.outcome);
    checked.damaged.push_back({corruption, std::move(verdict), seen});
  }
}

// What to run, now that this is known.
std::vector<std::string> next_commands(const Checked& checked, const Testee& testee) {
  std::vector<std::string> commands;
  for (const Tried& each : checked.easy) {
    if (is_fine(each.verdict)) continue;
    commands.push_back(each.verdict.repro + " --dump dump");
    return commands;
  }
  const std::string spec = quoted(testee.spec);
  const std::string none = testee.description.profiles.empty() ? " --profile none" : "";
  commands.push_back(fmt::format("attest run --testee {} --tier smoke{}", spec, none));
  commands.push_back(fmt::format("attest run --testee {}{}", spec, none));
  commands.push_back(fmt::format("attest fuzz --testee {}", spec));
  return commands;
}

std::string to_text(const Tried& each) {
  constexpr std::size_t kKept = 300, kLines = 12;
  const Verdict& v = each.verdict;
  std::string text = fmt::format("{}  {}\n", outcome_text(v), to_string(each.test_case.problem));
  const auto add = [&](const std::string& title, const std::string& what) {
    if (!what.empty()) text += fmt::format("    {:<14}{}\n", title, what);
  };
  if (is_fine(v)) return text;
  add("message", one_line(excerpt(v.message, kKept, "--json")));
  if (each.meant.empty() && !v.blamed.empty()) add("clause", clause_with_title(v.blamed));
  add("did you mean", each.meant);
  if (!v.captured.empty()) {
    text += "    it printed:\n" + quoted_lines(v.captured, 0, kLines, "--json");
  }
  return text;
}

// Words with commas between, on as many lines as it takes, each indented so far.
std::string wrapped(const std::vector<std::string>& words, std::size_t indent) {
  constexpr std::size_t kColumns = 80;
  std::string text;
  std::size_t at = indent;
  for (const std::string& word : words) {
    if (!text.empty()) text += ",";
    if (at + word.size() + 2 > kColumns && at > indent) {
      text += "\n" + std::string(indent, ' ');
      at = indent;
    } else if (!text.empty()) {
      text += " ";
    }
    text += word;
    at += word.size() + 2;
  }
  return text;
}

std::vector<std::string> most_first(const std::map<std::string, Index>& counts) {
  std::vector<std::pair<Index, std::string>> order;
  for (const auto& [what, count] : counts) order.emplace_back(-count, what);
  std::sort(order.begin(), order.end());
  std::vector<std::string> words;
  for (const auto& [less, what] : order)
    words.push_back(fmt::format("{} {}", one_line(what), -less));
  return words;
}

std::string to_text(const DispatchMet& dispatch) {
  constexpr std::size_t kMostNamed = 10, kIndent = 4;
  std::string text = fmt::format(
      "  cases are in {} of {} of its dispatch \"{}\"", dispatch.met,
      count_text(Index(dispatch.met + dispatch.beyond.size()), "instance"), dispatch.table);
  if (dispatch.met > 0) text += fmt::format(", at least {} in each", dispatch.fewest);
  text += dispatch.beyond.empty() ? "\n" : "; in none of\n";
  for (std::size_t n = 0; n < std::min(dispatch.beyond.size(), kMostNamed); ++n) {
    text += fmt::format("    {}\n", wrapped(dispatch.beyond[n], kIndent));
  }
  const std::size_t more = dispatch.beyond.size() - std::min(dispatch.beyond.size(), kMostNamed);
  if (more > 0) text += fmt::format("    and {} more, which --json names\n", more);
  return text;
}

std::string to_text(const TesteeReach& reach) {
  std::string text = fmt::format(
      "\nWhat the declaration leaves out\n  of {}, {} are asked as they are, {} fitted to it,\n  "
      "{} "
      "are then like another\n",
      count_text(reach.cases, "case"), reach.as_they_are, reach.fitted, reach.alike);
  const auto add = [&](const char* title, const std::vector<std::string>& words) {
    constexpr std::size_t kIndent = 35;
    if (!words.empty()) text += fmt::format("  {:<33}{}\n", title, wrapped(words, kIndent));
  };
  add("cases in formats not declared", most_first(reach.formats));
  add("that need features not declared", most_first(reach.features));
  add("outside its limits", most_first(reach.limits));
  add("arithmetic assumed the loosest", reach.bare_formats);
  for (const DispatchMet& each : reach.dispatch) text += to_text(each);
  text += fmt::format("\n  {:<19} {:>7} {:>7}  {}\n", "profile", "demands", "asked", "also needs");
  for (const ProfileReach& each : reach.profiles) {
    constexpr std::size_t kIndent = 39;
    const std::string needs = wrapped({each.needs.begin(), each.needs.end()}, kIndent);
    const bool free = needs.empty() && !each.claimed;
    text += fmt::format("  {:<19} {:>7} {:>7}{}{}\n", each.name + (each.claimed ? " *" : ""),
                        each.demanded, each.asked, needs.empty() && !free ? "" : "  ",
                        free ? "nothing: it can be claimed" : needs);
  }
  return text + "  * claimed\n";
}

std::string to_text(const Checked& checked, const Testee& testee) {
  std::string text = fmt::format("{}\n\nIs the glue right?\n", one_line(testee.name));
  for (const Tried& each : checked.easy) text += to_text(each);
  if (checked.easy.empty()) text += "No problem is easy enough: see what is left out, below.\n";
  text += "\nIs it seen if it were wrong?\n";
  if (checked.damaged.empty()) {
    text += checked.hangs() ? "Not tried, nor were other problems: it takes too long.\n"
                            : "Not tried: no easy problem passes.\n";
  }
  for (const Damaged& each : checked.damaged) {
    text += fmt::format("{}  {}: {}\n", each.seen ? "PASS" : "FAIL", describe(each.corruption),
                        outcome_text(each.verdict));
  }
  text += to_text(checked.reach);
  text += fmt::format("\n{}\n\nNext\n", checked.is_right()
                                            ? "The glue is right."
                                            : "Not conformant: the glue, or the kernel, is wrong.");
  for (const std::string& command : checked.next) text += fmt::format("  {}\n", command);
  return text;
}

nlohmann::json to_json(const TesteeReach& reach) {
  nlohmann::json dispatch = nlohmann::json::array();
  for (const DispatchMet& each : reach.dispatch) {
    dispatch.push_back({{"table", each.table},
                        {"met", each.met},
                        {"fewest", each.fewest},
                        {"not_met", each.beyond}});
  }
  nlohmann::json profiles = nlohmann::json::array();
  for (const ProfileReach& each : reach.profiles) {
    profiles.push_back({{"profile", each.name},
                        {"claimed", each.claimed},
                        {"demanded", each.demanded},
                        {"asked", each.asked},
                        {"needs", each.needs}});
  }
  return {{"cases", reach.cases},     {"as_they_are", reach.as_they_are},
          {"fitted", reach.fitted},   {"alike", reach.alike},
          {"formats", reach.formats}, {"features", reach.features},
          {"limits", reach.limits},   {"loosest_arithmetic", reach.bare_formats},
          {"dispatch", dispatch},     {"profiles", profiles}};
}

nlohmann::json to_json(const Checked& checked, const Testee& testee) {
  nlohmann::json easy = nlohmann::json::array(), damaged = nlohmann::json::array();
  const auto verdict = [](const Verdict& v) {
    return nlohmann::json{
        {"outcome", name(v.outcome)}, {"reason", v.reason}, {"message", v.message}};
  };
  for (const Tried& each : checked.easy) {
    nlohmann::json one = verdict(each.verdict);
    one.update({{"case", each.test_case.id},
                {"problem", to_string(each.test_case.problem)},
                {"blamed", each.verdict.blamed},
                {"did_you_mean", each.meant},
                {"captured", each.verdict.captured},
                {"repro", each.verdict.repro}});
    easy.push_back(std::move(one));
  }
  for (const Damaged& each : checked.damaged) {
    nlohmann::json one = verdict(each.verdict);
    one.update({{"damage", describe(each.corruption)}, {"seen", each.seen}});
    damaged.push_back(std::move(one));
  }
  return {{"testee", testee.name}, {"right", checked.is_right()},           {"easy", easy},
          {"damaged", damaged},    {"declaration", to_json(checked.reach)}, {"next", checked.next}};
}

int check(const CheckArguments& asked) {
  const TesteeOptions& options = asked.testees;
  const Installation installation = find_installation();
  const Surroundings around = surroundings_for(options, installation);
  const std::vector<Testee> testees = testees_for(options, installation, around);
  const std::vector<Case> cases = select(load_cases(installation.cases), {.tier = Tier::standard});
  const Asking asking(cases, testees, installation.cases, interrupted);
  RunOptions run = {.threads = options.threads,
                    .limits = options.limits,
                    .surroundings = surroundings_text(options)};
  // Its own limit is no other command's, and no part of what repeats a verdict.
  if (run.limits.call_seconds == kCallSeconds) run.limits.call_seconds = Limits().call_seconds;
  nlohmann::json all = nlohmann::json::array();
  bool right = true;
  for (const Testee& testee : testees) {
    WorkerOptions worker = worker_options(testee, options.limits, around);
    worker.interrupted = interrupted;
    WorkerExecutor executor(std::move(worker));
    // Lest the first call has the time to load the testee, too.
    executor.execute({{"op", "describe"}, {"brief", true}});
    Checked checked;
    try_easy(easy_cases(asking.asked(testee.name, cases)), testee, executor, run, checked);
    checked.reach = reach_of(testee, cases, asking);
    checked.next = next_commands(checked, testee);
    right = right && checked.is_right();
    if (asked.json) {
      all.push_back(to_json(checked, testee));
    } else {
      Terminal(stdout, asked.terminal).write_coloured(to_text(checked, testee));
    }
  }
  if (asked.json) fmt::print("{}\n", json_text(all, 2));
  return right ? kConformant : kNotConformant;
}

}  // namespace

Command add_check(CLI::App& app) {
  const auto asked = std::make_shared<CheckArguments>();
  CLI::App& command = *app.add_subcommand(
      "check", "Before anything else: whether a kernel's glue is right, and what it leaves out");
  command
      .add_option("testee", asked->testees.testees,
                  "A bundled kernel's name, FILE.py, LIBRARY.so, either with :KERNEL behind it, or "
                  "exec:COMMAND")
      ->required()
      ->expected(1);
  add_testee_limits(command, asked->testees);
  add_colour(command, asked->terminal);
  command.add_flag("--json", asked->json, "As JSON, with all messages whole");
  return {.parser = &command, .carry_out = [=] { return check(*asked); }};
}

}  // namespace attest
