#include "harness/command/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "cases/case.h"
#include "cases/fit.h"
#include "cases/shapes.h"
#include "harness/command/option_groups.h"
#include "harness/command/session.h"
#include "harness/fuzz/draws.h"
#include "harness/process/testee.h"
#include "harness/run/asking.h"
#include "harness/run/audit.h"
#include "harness/run/conclude.h"
#include "harness/run/record_file.h"
#include "harness/run/run.h"
#include "harness/run/selection.h"
#include "harness/run/sha256.h"
#include "reports/reports.h"
#include "reports/text.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

struct VerifyArguments {
  std::filesystem::path record_folder;
  std::size_t rerun = 0;  // verdicts to repeat
  TesteeOptions testees;
  const CLI::App* said = nullptr;  // which of them were given
};

// Those of the command, and for what it doesn't say those of the run; but for what a testee may
// take from here, which a record of others has no say in. Throws InputError for what no run has.
TesteeOptions as_in_the_run(const VerifyArguments& asked, const OptionsRecord& run) {
  TesteeOptions options = asked.testees;
  const auto said = [&](const char* name) { return asked.said->count(name) > 0; };
  const bool possible = run.threads >= 1 && run.start_limit > 0 && run.call_limit > 0 &&
                        run.memory_limit >= 1 && run.memory_limit <= (Index(1) << 30);
  if (!possible) throw InputError("", "the options in its header are those of no run");
  if (!said("--threads")) options.threads = run.threads;
  if (!said("--start-limit")) options.limits.start_seconds = run.start_limit;
  if (!said("--call-limit")) options.limits.call_seconds = run.call_limit;
  if (!said("--memory-limit")) {
    options.limits.memory_bytes = static_cast<std::size_t>(run.memory_limit) << 20;
  }
  for (const auto& [isolation, name] : kIsolations) {
    if (!said("--require-isolation") && name == run.require_isolation) options.weakest = isolation;
  }
  std::string missing;
  if (!run.sanitizer.empty() && options.sanitizer.empty()) missing += " --sanitizer";
  if (run.allow_network && !options.network) missing += " --allow-network";
  for (const std::string& name : run.env) {
    const auto& names = options.environment;
    if (std::find(names.begin(), names.end(), name) == names.end()) missing += " --env " + name;
  }
  if (!missing.empty()) {
    fmt::print(stderr, "attest: the run had{}, which verify takes from its command line alone\n",
               clean(missing));
  }
  return options;
}

// The testees of the record, by the name that they have there, as they are to be found now.
std::map<std::string, Testee> testees_of(const Record& record, const std::set<std::string>& names,
                                         TesteeOptions options, const Installation& installation,
                                         const Surroundings& around) {
  const bool named = !options.testees.empty();
  for (const TesteeRecord& t : record.header.testees) {
    if (named || !names.contains(t.name)) continue;
    if (t.spec.starts_with("exec:")) {
      throw InputError("", fmt::format("verify runs no command out of a record, which may be "
                                       "anybody's; --testee '{}' says that it may",
                                       t.spec));
    }
    options.testees.push_back(t.spec);
  }
  std::vector<Testee> found;
  try {
    found = testees_for(options, installation, around);
  } catch (const InputError& error) {
    if (named) throw;
    throw InputError("", fmt::format("a testee of the record cannot be found: {}. --testee says "
                                     "where it is now",
                                     error.what()));
  }
  std::map<std::string, Testee> testees;
  FileSums known;
  for (const TesteeRecord& t : record.header.testees) {
    if (!names.contains(t.name)) continue;
    const auto place = std::find_if(found.begin(), found.end(), [&](const Testee& each) {
      return each.name == t.name || each.spec == t.spec;
    });
    if (place == found.end()) {
      throw InputError(
          "", fmt::format("--testee names no {}, which the record has verdicts of", t.name));
    }
    const FileSums now = sums_of(*place, known);
    std::set<std::string> then_sums, now_sums;  // whatever the files are called here
    for (const auto& [file, sum] : t.files) then_sums.insert(sum);
    for (const auto& [file, sum] : now) now_sums.insert(sum);
    if (then_sums != now_sums) {
      fmt::print(stderr, "attest: the files of {} are not those of the record\n", clean(t.name));
    }
    if (t.isolation != name_of(place->isolation)) {
      fmt::print(stderr, "attest: the isolation of {} is {}, in the record {}\n", clean(t.name),
                 name_of(place->isolation), clean(t.isolation));
    }
    testees.emplace(t.name, *place);
  }
  return testees;
}

// Verdicts of the record that are repeated: so many, drawn by its digest.
std::vector<const VerdictRecord*> drawn_from(const Record& record, std::size_t count) {
  std::vector<const VerdictRecord*> left;
  for (const VerdictRecord& v : record.verdicts) {
    const Outcome outcome = v.verdict.outcome;
    const bool on_case = !v.case_id.starts_with("declaration/");
    if (on_case && outcome != Outcome::not_run && outcome != Outcome::harness_error) {
      left.push_back(&v);
    }
  }
  std::sort(left.begin(), left.end(), [](const VerdictRecord* a, const VerdictRecord* b) {
    return std::tie(a->testee, a->case_id) < std::tie(b->testee, b->case_id);
  });
  const std::string digest = sha256(record.footer ? record.footer->digests.verdicts : "");
  std::mt19937_64 random(std::stoull(digest.substr(0, 16), nullptr, 16));
  std::vector<const VerdictRecord*> drawn;
  while (drawn.size() < count && !left.empty()) {
    const auto place = left.begin() + static_cast<std::ptrdiff_t>(random() % left.size());
    drawn.push_back(*place);
    left.erase(place);
  }
  return drawn;
}

// What a run of the header asks each testee, by all its cases: some are like others.
Asking asking_of(const Header& header, const std::vector<Case>& cases,
                 const std::map<std::string, Testee>& testees, const Installation& installation) {
  if (header.tier == kSearchTier) return {{}, {}, installation.cases};
  std::vector<Testee> all;
  for (const auto& [name, testee] : testees) all.push_back(testee);
  if (!header.shapes.empty()) return {cases, all, installation.cases};
  return {select(cases,
                 {.tier = tier_named(header.tier), .filters = header.filters, .seed = header.seed}),
          all, installation.cases};
}

// Forms of the record's cases that the testees are asked besides, and that the record lacks though
// it was completed.
std::size_t report_lacking(const Record& record, const Asking& asking,
                           const std::map<std::string, Testee>& testees) {
  if (!record.footer || !record.footer->complete) return 0;
  std::set<std::pair<std::string, std::string>> had, lacking;
  for (const VerdictRecord& v : record.verdicts) had.insert({v.testee, v.case_id});
  for (const VerdictRecord& v : record.verdicts) {
    if (is_on_declaration(v) || !testees.contains(v.testee)) continue;
    for (const Case* const form : asking.besides(v.testee, std::string(base_id(v.case_id)))) {
      if (!had.contains({v.testee, form->id})) lacking.insert({v.testee, form->id});
    }
  }
  for (const auto& [testee, id] : lacking) {
    fmt::print("lacks    {} {}\n", clean(testee), clean(id));
  }
  return lacking.size();
}

int verify(const VerifyArguments& asked) {
  const Installation installation = find_installation();
  const Record record = read_and_audit(asked.record_folder / kResults, suite_of(installation));
  fmt::print("{}", to_verification_text(record));
  const bool holds = is_consistent(record);
  const auto drawn = drawn_from(record, asked.rerun);
  if (drawn.empty()) return holds ? kConformant : kIncomplete;
  if (!record.header.vectors.empty()) {
    throw InputError("",
                     fmt::format("its verdicts are on outputs of files: attest judge {} repeats "
                                 "them",
                                 quoted(clean(record.header.vectors))));
  }
  const TesteeOptions options = as_in_the_run(asked, record.header.options);

  const bool found = record.header.tier == kSearchTier;  // its cases lie beside
  const fs::path root = found ? asked.record_folder / fmt::format("{}.json", kFuzzStem)
                        : record.header.from.empty() ? installation.cases
                                                     : fs::path(record.header.from);
  const std::vector<Case> cases =
      record.header.shapes.empty()
          ? load_cases(root, found ? 1 : record.header.seed)
          : cases_of(load_shapes(record.header.shapes, installation.cases, record.header.seed));
  std::set<std::string> names;
  for (const VerdictRecord* v : drawn) names.insert(v->testee);
  std::vector<std::string> hidden;
  for (const fs::path& file : files_of_record(asked.record_folder)) {
    hidden.push_back(file.string());
  }
  const Surroundings around = surroundings_for(options, installation, hidden);
  const auto testees = testees_of(record, names, options, installation, around);
  const Asking asking = asking_of(record.header, cases, testees, installation);
  const std::size_t lacking = report_lacking(record, asking, testees);
  std::size_t agreed = 0, tried = 0;
  for (const VerdictRecord* v : drawn) {
    const Case test_case = find_case(cases, v->case_id);
    const Testee& testee = testees.at(v->testee);
    WorkerOptions worker = worker_options(testee, options.limits, around);
    worker.interrupted = interrupted;
    WorkerExecutor executor(std::move(worker));
    const Asking::Instead* const instead = asking.instead(testee.name, v->case_id);
    const Verdict now = instead && !instead->fitted
                            ? instead->verdict
                            : examine_safely(prepare(test_case), test_case, testee, executor,
                                             {.threads = options.threads, .limits = options.limits})
                                  .verdict;
    if (interrupted()) break;
    const std::string then_text = outcome_text(v->verdict), now_text = outcome_text(now);
    const bool same = then_text == now_text;
    ++tried;
    agreed += same;
    fmt::print("{}  {}  {} {}\n", same ? "agrees " : "differs",
               same ? now_text : fmt::format("{} in the record, {} now", then_text, now_text),
               clean(v->testee), clean(v->case_id));
  }
  fmt::print("{} of {} verdicts repeated agree\n", agreed, tried);
  if (lacking > 0) {
    fmt::print("{} that the testees' dispatch asks for {} not there\n",
               count_text(static_cast<Index>(lacking), "form"), lacking == 1 ? "is" : "are");
  }
  if (agreed != tried || lacking > 0) return kNotConformant;
  if (interrupted()) {
    fmt::print(stderr, "attest: interrupted; not all was repeated\n");
    return kIncomplete;
  }
  return holds ? kConformant : kIncomplete;
}

}  // namespace

Command add_verify(CLI::App& app) {
  const auto asked = std::make_shared<VerifyArguments>();
  CLI::App& command = *app.add_subcommand(
      "verify", "Check that a record is as it was written, and repeat some of its verdicts");
  command.add_option("folder", asked->record_folder, "The folder of the record")->required();
  command.add_option("--rerun", asked->rerun, "Verdicts to repeat, drawn by the record's digest")
      ->check(takes_count("--rerun", 0, 1'000'000'000));
  add_testee_options(command, asked->testees, "those of the record");
  for (const char* name : {"--threads", "--start-limit", "--call-limit", "--memory-limit"}) {
    command.get_option(name)->default_str("the run's");
  }
  asked->said = &command;
  return {.parser = &command, .carry_out = [=] { return verify(*asked); }};
}

}  // namespace attest
