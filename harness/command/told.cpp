// What the gate tells of a kernel, as JSON and as text.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "harness/command/gating.h"
#include "harness/command/identity.h"
#include "harness/run/conclude.h"
#include "reports/groups.h"
#include "reports/interval.h"
#include "reports/text.h"

namespace attest {

int Told::exit_code() const {
  if (!result.conforms()) return kNotConformant;
  return result.whole ? kConformant : kIncomplete;
}

const char* Told::verdict() const {
  const int exit = exit_code();
  if (exit == kConformant) return "conformant";
  return exit == kNotConformant ? "not conformant" : "incomplete";
}

nlohmann::json to_json(const Interval& interval) {
  return {{"median", interval.median},
          {"least", interval.least},
          {"most", interval.most},
          {"level", interval.level}};
}

nlohmann::json to_json(const BytesTaken& bytes) {
  return {{"least", bytes.least}, {"most", bytes.most}};
}

namespace {

constexpr const char* kGateSchema = "attest-gate-1";

nlohmann::json to_json(const Speed& speed) {
  nlohmann::json json = {{"problem", speed.problem},
                         {"shape", speed.shape},
                         {"pass", speed.pass},
                         {"calls", speed.calls},
                         {"seconds", to_json(speed.seconds)},
                         {"timed_by", speed.by_events ? "events" : "clock"},
                         {"least_believed", speed.least}};
  if (speed.baseline) json["baseline_seconds"] = to_json(*speed.baseline);
  if (speed.ratio) json["ratio"] = to_json(*speed.ratio);
  if (speed.memory) json["memory"] = to_json(*speed.memory);
  return json;
}

nlohmann::json to_json(const Counterexample& example, const std::string& repro) {
  const Verdict& v = example.verdict;
  nlohmann::json tensors = nlohmann::json::object();
  for (const auto& [tensor, e] : v.tensors) {
    if (e.worst.empty()) continue;
    // Numbers that JSON has not are text.
    const auto number = [](double value) {
      return std::isfinite(value) ? nlohmann::json(value)
                                  : nlohmann::json(fmt::format("{}", value));
    };
    tensors[std::string(name(tensor))] = {{"worst", e.worst},
                                          {"actual", number(e.actual)},
                                          {"exact", number(e.exact)},
                                          {"bound", number(e.bound)}};
  }
  return {{"found_by", example.found_by},
          {"problem", example.problem},
          {"entry", example.entry},
          {"outcome", name(v.outcome)},
          {"reason", v.reason},
          {"message", v.message},
          {"blamed", v.blamed},
          {"did_you_mean", example.meant},
          {"seen_again", example.seen_again},
          {"tensors", tensors},
          {"captured", v.captured},
          {"repro", repro}};
}

std::string to_text(const Speed& speed) {
  const std::string text =
      fmt::format("  {:<14} {:<8} {}", speed.problem, speed.pass, time_text(speed.seconds));
  if (!speed.ratio) return text + "\n";
  return fmt::format("{:<51} x {}\n", text, interval_text(*speed.ratio));
}

}  // namespace

nlohmann::json to_json(const Told& told) {
  const GateResult& result = told.result;
  nlohmann::json examples = nlohmann::json::array(), speeds = nlohmann::json::array(),
                 libraries = nlohmann::json::array();
  for (std::size_t n = 0; n < result.counterexamples.size(); ++n) {
    examples.push_back(to_json(result.counterexamples[n], told.repros[n]));
  }
  for (const Speed& speed : result.speeds) speeds.push_back(to_json(speed));
  for (const Library& each : told.libraries) {
    libraries.push_back({{"file", each.file}, {"of", each.of}});
  }
  const bool named = !result.counterexamples.empty();
  nlohmann::json json = {{"schema", kGateSchema},
                         {"suite_version", ATTEST_VERSION},
                         {"suite_commit", suite_commit()},
                         {"testee", told.testee},
                         {"files", told.files},
                         {"isolation", told.isolation},
                         {"verdict", told.verdict()},
                         {"blamed", named ? result.counterexamples[0].verdict.blamed : ""},
                         {"did_you_mean", named ? result.counterexamples[0].meant : ""},
                         {"next", told.next},
                         {"seed", told.seed},
                         {"steps", result.steps},
                         {"rounds", result.rounds},
                         {"again", told.again},
                         {"seconds", told.seconds},
                         {"judged",
                          {{"cases", result.cases},
                           {"random_problems", result.problems},
                           {"timed_calls", result.calls}}},
                         {"outcomes", result.outcomes},
                         {"faults", result.faults},
                         {"counterexamples", examples},
                         {"not_believed", result.not_believed},
                         {"declared_too_loose", result.declared_too_loose},
                         {"speeds", speeds},
                         {"libraries", libraries},
                         {"undecided", told.undecided},
                         {"notes", told.notes}};
  if (!told.baseline.empty()) {
    json["baseline"] = {{"testee", told.baseline}, {"faults", result.baseline_faults}};
  }
  if (const auto ratio = mean_ratio(result.speeds)) json["mean_ratio"] = to_json(*ratio);
  return json;
}

std::string to_text(const Told& told) {
  constexpr std::size_t kKept = 300;
  const GateResult& result = told.result;
  std::string verdict = told.verdict();
  verdict[0] = static_cast<char>(std::toupper(verdict[0]));
  std::string text =
      fmt::format("{}: {}. Judged {}, {}, {}; {} wrong.\n", verdict, one_line(told.testee),
                  count_text(result.cases, "case"), count_text(result.problems, "random problem"),
                  count_text(result.calls, "timed call"), result.faults);
  for (std::size_t n = 0; n < result.counterexamples.size(); ++n) {
    const Counterexample& example = result.counterexamples[n];
    const Verdict& v = example.verdict;
    text += fmt::format("{}  {}", outcome_text(v), example.problem);
    if (n > 0) {  // of one in full there is enough to read; `found.json` has all
      text += v.blamed.empty() ? "\n" : fmt::format("  ({})\n", v.blamed);
      continue;
    }
    text += fmt::format("\n    {}\n", one_line(excerpt(v.message, kKept, "--json")));
    if (!v.blamed.empty()) text += fmt::format("    clause  {}\n", clause_with_title(v.blamed));
    if (!example.meant.empty()) text += fmt::format("    did you mean  {}\n", example.meant);
    if (!example.seen_again)
      text += "    tried alone, it is right: it depends on what came before\n";
  }
  for (const std::string& each : result.not_believed) text += fmt::format("{}\n", each);
  for (const std::string& each : result.declared_too_loose) {
    text += fmt::format("It declares more than a profile takes by its bare name (NUM-2): {}\n",
                        one_line(each));
  }
  if (!result.speeds.empty()) {
    text += told.baseline.empty()
                ? "Time of a call\n"
                : fmt::format("Time of a call, and how many times as fast as {}\n",
                              one_line(told.baseline));
    for (const Speed& speed : result.speeds) text += to_text(speed);
  }
  if (const auto ratio = mean_ratio(result.speeds)) {
    text += fmt::format("  {} times as fast in the geometric mean\n", interval_text(*ratio));
  }
  if (!result.baseline_faults.empty()) {
    text += fmt::format("The baseline is wrong itself, {}: {}\n",
                        count_text(std::ssize(result.baseline_faults), "time"),
                        one_line(excerpt(result.baseline_faults.front(), kKept, "--json")));
  }
  for (const std::string& each : told.undecided) text += fmt::format("Undecided: {}\n", each);
  for (const std::string& each : told.notes) text += fmt::format("Note: {}\n", each);
  return text + fmt::format("Again: {}\nNext: {}\n", told.again, told.next);
}

}  // namespace attest
