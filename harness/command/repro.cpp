#include "harness/command/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cases/case.h"
#include "cases/entry.h"
#include "cases/fit.h"
#include "cases/shapes.h"
#include "harness/command/dump.h"
#include "harness/command/option_groups.h"
#include "harness/command/session.h"
#include "harness/diagnosis/culprit.h"
#include "harness/diagnosis/likeness.h"
#include "harness/diagnosis/looser.h"
#include "harness/fuzz/fuzz.h"
#include "harness/process/in_process.h"
#include "harness/process/plugin_host.h"
#include "harness/process/testee.h"
#include "harness/process/worker.h"
#include "harness/run/asking.h"
#include "harness/run/conclude.h"
#include "harness/run/examine.h"
#include "harness/run/record_file.h"
#include "harness/run/run.h"
#include "harness/script/script.h"
#include "reports/files.h"
#include "reports/groups.h"
#include "reports/text.h"
#include "spec/contains.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

struct ReproArguments {
  std::string case_id;
  CaseOptions cases;
  TesteeOptions testees;
  RecordingOptions recording;
  std::filesystem::path dump_folder;
  bool shrink = false;
  std::string language;  // of a script; empty: none
};

// A kernel's name as that of a folder.
std::string folder_name(std::string name) {
  std::replace(name.begin(), name.end(), '/', '_');
  return name == "." || name == ".." ? "_" : name;
}

// The entry that a case is.
nlohmann::json entry_of(const Case& test_case, const ReproArguments& asked,
                        const Installation& installation) {
  if (asked.cases.shapes.empty()) return attest::entry_of(test_case);
  for (CaseWithEntry& each : load_shapes(asked.cases.shapes, installation.cases).cases) {
    if (each.test_case.id == test_case.id) return std::move(each.entry);
  }
  throw InputError("", test_case.id + " is no shape any more");
}

// Writes the case that a testee fails, as small as it gets, into shrunk.json.
void shrink_case(const nlohmann::json& entry, const Verdict& verdict, const Testee& testee,
                 const ReproArguments& asked, const Surroundings& around) {
  const RunOptions run = {.threads = asked.testees.threads, .limits = asked.testees.limits};
  const auto start = [&](const Testee& t) {
    return std::make_unique<WorkerExecutor>(worker_options(t, asked.testees.limits, around));
  };
  const Find find =
      shrunk({.entry = entry, .verdict = verdict}, "attest repro", testee, run, start, interrupted);
  const fs::path file = fs::absolute(asked.recording.out / "shrunk.json");
  write_file(file, to_case_file("What attest repro --shrink made.", {find.entry}));
  const VerdictRecord record = record_of(find, testee, run, file);
  fmt::print("  shrunk   {}\n  message  {}\n  file     {}\n  repeat   {}\n",
             to_string(read_entry(find.entry, "shrunk").problem), clean(find.verdict.message),
             file.string(), record.verdict.repro);
}

// Of what a recommended clause asks too, of which a verdict only warns.
bool is_wrong(Outcome outcome) { return outcome != Outcome::pass && !says_nothing(outcome); }

// Prints the failure as a script: of the case with numbers by a formula, as small as it gets while
// it can be said there. How it fails there may be another way than with the case's own numbers.
void print_script(const nlohmann::json& entry, const Testee& testee, const ReproArguments& asked,
                  const Surroundings& around) {
  const auto place = std::find(kScriptLanguages.begin(), kScriptLanguages.end(), asked.language);
  const auto language = static_cast<ScriptLanguage>(place - kScriptLanguages.begin());
  const RunOptions run = {.threads = asked.testees.threads, .limits = asked.testees.limits};
  const WorkerOptions worker = worker_options(testee, asked.testees.limits, around);
  const auto failing = [&](const nlohmann::json& candidate) -> std::optional<Find> {
    WorkerExecutor executor(worker);  // as whoever repeats it
    PreparedCase prepared(read_entry(candidate, "script"), 1);
    Verdict verdict = verdict_on(prepared, testee, executor, run);
    if (!is_wrong(verdict.outcome)) return std::nullopt;
    return Find{candidate, std::move(verdict)};
  };
  auto find = failing(with_formula(entry));
  if (!find) {
    throw InputError("", fmt::format("{} passes with numbers by a formula, so no script shows how "
                                     "it fails: --shrink makes the case small, and attest vectors "
                                     "writes its numbers",
                                     testee.name));
  }
  const auto start = [&](const Testee&) { return std::make_unique<WorkerExecutor>(worker); };
  const auto is_shown = [&](const Find& each) {
    return has_formula(each.entry) && shows_in(language, each.verdict, testee);
  };
  *find = shrunk(*find, "attest repro", testee, run, start, interrupted, is_shown);
  const Case test_case = read_entry(find->entry, "script");
  const std::string why = unsayable_in(language, test_case, find->verdict, testee);
  if (!why.empty()) {
    throw InputError("", fmt::format("cannot be said in {}: {} ({})", asked.language, why,
                                     to_string(test_case.problem)));
  }
  fmt::print("{}", script_of(language, test_case, find->verdict, testee));
}

std::unique_ptr<Executor> executor_of(const Testee& testee, const TesteeOptions& options,
                                      const Surroundings& around) {
  if (options.in_process) {
    if (testee.plugin.empty()) throw InputError("", "--in-process needs a plug-in, not exec:");
    return std::make_unique<InProcessExecutor>(*load_plugin(testee.plugin));
  }
  WorkerOptions worker = worker_options(testee, options.limits, around);
  worker.interrupted = interrupted;
  return std::make_unique<WorkerExecutor>(std::move(worker));
}

void print_verdict(const Verdict& v, const Testee& testee, const Case& test_case,
                   const std::string& blamed, const std::string& explained) {
  fmt::print("{}  {}\n  case     {}\n  problem  {}, data {}\n  because  {}\n  clauses  {}\n",
             name(v.outcome), testee.name, test_case.id, to_string(test_case.problem),
             test_case.data, test_case.because, fmt::join(v.clauses, ", "));
  if (!blamed.empty()) fmt::print("  blamed   {}\n", clause_with_title(blamed));
  if (!v.reason.empty()) fmt::print("  reason   {}\n", v.reason);
  if (!v.message.empty()) fmt::print("  message  {}\n", clean(v.message));
  for (const auto& [tensor, e] : v.tensors) {
    fmt::print("  {:<8} worst at [{}]: actual {}, exact {}, bound {}, ratio {}\n", name(tensor),
               fmt::join(e.worst, ","), e.actual, e.exact, e.bound, e.max_ratio);
  }
  if (!explained.empty()) fmt::print("  did you mean  {}\n", explained);
}

// One testee on the case, or on what it is asked instead. The verdict.
Verdict repeat(const Testee& testee, const Case& test_case, const Asking::Instead* instead,
               const ReproArguments& asked, const Surroundings& around, const fs::path& dumped,
               const nlohmann::json& entry) {
  PreparedCase prepared(test_case, asked.recording.jobs);
  const auto executor = executor_of(testee, asked.testees, around);
  Examination examination;
  if (instead && !instead->fitted) {
    examination.verdict = instead->verdict;
  } else {
    examination =
        examine(prepared, testee.description, testee.kernel, *executor, asked.testees.threads);
  }
  if (interrupted()) throw Interrupted();
  if (!asked.language.empty()) {  // which has the standard output to itself
    fmt::print(stderr, "{}  {}  {}\n", name(examination.verdict.outcome), testee.name,
               clean(examination.verdict.message));
    return examination.verdict;
  }
  std::vector<Likeness> meant;
  std::string explained;
  if (asks_for_names(examination.verdict)) {
    meant = meant_by(prepared, testee.description, examination.trial, interrupted);
  }
  std::string blamed = culprit(examination.verdict, test_case, meant, {});
  put_first(meant, blamed);
  if (asks_for_names(examination.verdict)) {
    explained = explanation(meant, prepared, testee.description, examination.trial, interrupted);
    if (meant.empty() && !explained.empty()) blamed = kClauseOfDeclarations;
  }
  print_verdict(examination.verdict, testee, test_case, blamed, explained);
  if (!examination.verdict.captured.empty()) {
    constexpr std::size_t kLines = 50;  // the first too: a sanitizer tells the fault there
    fmt::print("  printed\n{}", quoted_lines(examination.verdict.captured, kLines, kLines, ""));
  }
  if (!dumped.empty()) {
    dump(dumped, prepared, entry, testee.description.arithmetic_in(test_case.problem.dtype),
         examination);
    fmt::print("  dumped   {}\n", dumped.string());
  }
  return examination.verdict;
}

// Whether a verdict is to be told by what it stands for, a script or a small case.
bool asks_for_more(const ReproArguments& asked) { return asked.shrink || !asked.language.empty(); }

int repro(const ReproArguments& asked) {
  if (asked.testees.in_process && !asked.testees.sanitizer.empty()) {
    throw InputError("", "--sanitizer starts a worker, and --in-process has none");
  }
  if (!asked.testees.in_process) stop_on_signals();  // else the debugger is asked
  const Installation installation = installation_for(asked.cases);
  const Case wanted = case_named(asked.case_id, asked.cases, installation);
  const Surroundings around = surroundings_for(asked.testees, installation);
  const auto testees = testees_for(asked.testees, installation, around);
  std::optional<RecordFolder> locked;
  if (asks_for_more(asked)) {
    const char* const option = asked.shrink ? "--shrink" : "--as";
    if (wanted.seed != 1) {
      throw InputError("", fmt::format("{} takes the case's own numbers: its id with s=1", option));
    }
    if (testees.size() != 1) throw InputError("", fmt::format("{} takes one --testee", option));
  }
  if (asked.shrink) locked.emplace(asked.recording.out);
  if (asked.testees.in_process) {
    fmt::print(
        stderr,
        "attest: --in-process gives the testee this process: no isolation, no guards, no "
        "limits{}\n",
        geteuid() == 0 ? ", and it is root. Do this with none that you would not run as root" : "");
  }
  // As in a run: a case is fitted to who needs that, unless the id says how.
  const bool is_base = fit_of(wanted.id).empty();
  const Asking asking(is_base ? std::vector<Case>{wanted} : std::vector<Case>{}, testees,
                      installation.cases);
  int exit_code = kConformant;
  for (const Testee& testee : testees) {
    const Asking::Instead* instead = asking.instead(testee.name, wanted.id);
    const Case& test_case = instead && instead->fitted ? *instead->fitted : wanted;
    fs::path dumped = asked.dump_folder;
    if (!dumped.empty() && testees.size() > 1) dumped /= folder_name(testee.name);
    const bool needs_entry = !dumped.empty() || asks_for_more(asked);
    const nlohmann::json entry =
        needs_entry ? entry_of(test_case, asked, installation) : nlohmann::json();
    const Verdict v = repeat(testee, test_case, instead, asked, around, dumped, entry);
    if (says_nothing(v.outcome)) {
      if (exit_code == kConformant) exit_code = kIncomplete;
    } else if (is_wrong(v.outcome)) {
      if (!conforms(v.outcome)) exit_code = kNotConformant;
      if (asked.shrink) shrink_case(entry, v, testee, asked, around);
      if (!asked.language.empty()) print_script(entry, testee, asked, around);
    }
  }
  return exit_code;
}

}  // namespace

Command add_repro(CLI::App& app) {
  const auto asked = std::make_shared<ReproArguments>();
  CLI::App& command = *app.add_subcommand("repro", "Repeat one case");
  command.add_option("case", asked->case_id, "The case's id")->required();
  add_from(command, asked->cases);
  add_shapes(command, asked->cases);
  add_testee_options(command, asked->testees);
  command.add_flag("--in-process", asked->testees.in_process,
                   "Run the plug-in in this process, for a debugger");
  command.add_option("--dump", asked->dump_folder,
                     "Write problem, inputs, outputs, exact values, bounds");
  command.add_flag("--shrink", asked->shrink,
                   "Make a case that fails as small as it gets, and write it to shrunk.json");
  command
      .add_option("--as", asked->language,
                  "Print the failure as a script that needs no Attest, or as an issue with one: "
                  "torch, jax, numpy, cpp or issue")
      ->check(takes("--as", fmt::format("{}", fmt::join(kScriptLanguages, ", ")),
                    [](const std::string& text) { return contains(kScriptLanguages, text); }));
  add_out(command, asked->recording, "shrunk.json");
  take_one_at_a_time(command);
  return {.parser = &command, .carry_out = [=] { return repro(*asked); }, .starts_testees = false};
}

}  // namespace attest
