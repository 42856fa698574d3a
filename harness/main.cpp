// The command `attest`.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <limits>
#include <optional>
#include <system_error>
#include <thread>

#include "cases/case.h"
#include "cases/entry.h"
#include "harness/audit.h"
#include "harness/conclude.h"
#include "harness/criteria/inputs.h"
#include "harness/criteria/report.h"
#include "harness/criteria/subjects.h"
#include "harness/dump.h"
#include "harness/examine.h"
#include "harness/fuzz/draws.h"
#include "harness/fuzz/fuzz.h"
#include "harness/in_process.h"
#include "harness/known_failures.h"
#include "harness/options.h"
#include "harness/plugin_host.h"
#include "harness/progress.h"
#include "harness/record_file.h"
#include "harness/run.h"
#include "harness/seal.h"
#include "harness/selfcheck/selfcheck.h"
#include "harness/session.h"
#include "harness/testee.h"
#include "harness/verify.h"
#include "reports/files.h"
#include "reports/reports.h"
#include "reports/text.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"
#include "spec/profile.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostOfASeed = std::numeric_limits<std::uint64_t>::max();

void check_profiles(const std::vector<std::string>& names) {
  std::vector<std::string> known = {kNoProfile};
  for (const Profile& profile : profiles()) known.emplace_back(profile.name);
  for (const std::string& name : names) {
    if (name != kNoProfile && !find_profile(name)) {
      throw InputError("", fmt::format("there is no profile {}; there are {}, each but none with "
                                       "{} behind it too",
                                       name, fmt::join(known, ", "), kTakesDeclared));
    }
    if (name == kNoProfile && names.size() > 1)
      throw InputError("", "--profile none goes with no other profile");
  }
}

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

int run(const Options& options) {
  check_profiles(options.profiles);
  const Installation installation = installation_for(options);
  const std::vector<Case> all = load_cases(installation.cases, options.seed);
  const auto cases = select(all, {.tier = options.tier,
                                  .filters = options.filters,
                                  .seed = options.seed,
                                  .shard = options.shard});
  Plan plan = plan_for(options, installation, all, cases.size());
  if (!options.known.empty()) plan.known = read_known_failures(options.known);
  Session session(options, installation, plan);
  Progress progress(stderr, isatty(STDERR_FILENO) != 0, cases.size() * session.testees().size());
  const Record record = run(
      cases, session.testees(), session.header(), session.run_options(),
      [&](const Testee& testee) { return session.start(testee); }, session.results(),
      [&](const Verdict& verdict) { progress.add(verdict); }, interrupted);
  progress.finish();
  return session.finish(record);
}

// A search's find, as a verdict on the case that `file` has.
VerdictRecord record_of(const Find& find, const Testee& testee, RunOptions options,
                        const fs::path& file) {
  const Case test_case = read_entry(find.entry, file.stem().string());
  VerdictRecord record{.case_id = test_case.id,
                       .testee = testee.name,
                       .dtype = std::string(name(test_case.problem.dtype)),
                       .because = test_case.because,
                       .verdict = find.verdict};
  options.from = file.string();
  record.verdict.repro = repro_line(test_case, testee, options);
  return record;
}

int fuzz(const Options& options) {
  constexpr std::size_t kHandful = 10;
  const auto start = std::chrono::steady_clock::now();
  const fs::path file = fs::absolute(options.out / fmt::format("{}.json", kFuzzStem));
  const Installation installation = find_installation();
  const auto suite = load_entries(installation.cases);
  const auto all = load_cases(installation.cases);
  Plan plan = plan_for(options, installation, all, 0);
  plan.tier = kSearchTier;
  plan.more_files = {file.string()};
  Session session(options, installation, plan);
  fs::remove(file);  // of an earlier search
  FuzzOptions search = {.seed = options.seed,
                        .first = options.first,
                        .count = options.count,
                        .seconds = options.seconds,
                        .finds = options.finds > 0    ? options.finds
                                 : options.keep_going ? kHandful
                                                      : 1,
                        .finite = options.finite,
                        .run = session.run_options()};
  if (search.count == 0 && search.seconds == 0) search.seconds = 60;
  for (const std::string& dtype : options.dtypes) search.dtypes.push_back(*dtype_named(dtype));
  Record record{.header = session.header(), .verdicts = {}, .footer = Footer()};
  session.results() << to_line(record.header) << '\n';
  std::vector<nlohmann::json> entries;
  std::map<std::string, Index> tried;
  for (const Testee& testee : session.testees()) {
    Progress progress(stderr, isatty(STDERR_FILENO) != 0, 0);
    const FuzzResult result = fuzz(
        testee, suite, search, [&](const Testee& t) { return session.start(t); },
        [&](const Verdict& verdict) { progress.add(verdict); }, interrupted);
    progress.finish();
    for (const auto& [outcome, count] : result.record.tried) tried[outcome] += count;
    ++search.seed;  // many testees try many problems
    record.searches.push_back(result.record);
    session.results() << to_line(record.searches.back()) << std::endl;
    for (const Find& find : result.found) entries.push_back(find.entry);
    if (!result.found.empty()) {
      write_file(file, to_case_file("What attest fuzz found.", entries));
    }
    for (const Find& find : result.found) {
      record.verdicts.push_back(record_of(find, testee, search.run, file));
      session.results() << to_line(record.verdicts.back()) << std::endl;
    }
    if (interrupted()) break;
  }
  if (interrupted()) {
    record.footer.reset();
  } else {
    record.footer = conclude_search(tried, record.verdicts);
    note_changes(*record.footer, session.changes());
    note_defects(record);
    record.footer->wall_s =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    seal(record);
    session.results() << to_line(*record.footer) << '\n';
  }
  const int exit_code = session.finish(record);
  if (!entries.empty()) fmt::print("Found: {}\n", file.string());
  return exit_code;
}

// Mutants, each on the cases that must catch it; and legitimate kernels, on all cases if that is
// what is asked for, else on a few.
int selfcheck(Options options) {
  constexpr std::size_t kSample = 40;
  constexpr double kMutantSeconds = 5;                          // for a call: some hang,
  constexpr std::size_t kMutantBytes = std::size_t(512) << 20;  // and some take all that there is
  const auto start = std::chrono::steady_clock::now();
  const Installation installation = installation_for(options);
  if (options.plugins.empty()) options.plugins = installation.test_plugins;
  Selfcheck check = {.all_catches = options.full,
                     .filtered = !options.filters.empty() || options.tier < Tier::standard,
                     .cases = by_worth(selected_cases(options, installation))};
  const std::vector<Case> all = load_cases(installation.cases, options.seed);
  const fs::path mutants = options.plugins / "mutants.so";
  if (!options.legitimate) check.catalogue = load_catalogue(mutants);
  Progress progress(stderr, isatty(STDERR_FILENO) != 0, 0);
  const auto seen = [&](const Verdict& verdict) { progress.add(verdict); };
  const auto session_of = [&](const fs::path& plugin, const std::vector<Case>& cases) {
    options.testees = {plugin.string()};
    Plan plan = plan_for(options, installation, all, cases.size());
    // A sample is named case by case.
    if (cases.size() != check.cases.size()) {
      plan.filters.clear();
      for (const Case& c : cases) plan.filters.push_back(c.id);
    }
    return std::make_unique<Session>(options, installation, plan);
  };
  const auto start_testee = [](const Session& session) {
    return [&](const Testee& testee) { return session.start(testee); };
  };
  if (!options.legitimate) {
    const Limits limits = options.limits;
    options.limits.call_seconds = kMutantSeconds;
    options.limits.memory_bytes = kMutantBytes;
    const auto session = session_of(mutants, check.cases);
    // What hangs is caught by that; all others would wait while it is tried again alone.
    RunOptions run = session->run_options();
    run.tries_again = false;
    check.hunt = hunt(check.cases, check.catalogue, session->testees(),
                      {.all = options.full, .run = run}, start_testee(*session), seen, interrupted);
    options.limits = limits;
  }
  if (!interrupted()) {
    const auto cases = options.legitimate ? check.cases : sample(check.cases, kSample);
    const auto session = session_of(options.plugins / "legitimate.so", cases);
    const Record record = run(cases, session->testees(), session->header(), session->run_options(),
                              start_testee(*session), session->results(), seen, interrupted);
    check.trust = trust_of(record, cases.size());
    check.trust->all = options.legitimate && !check.filtered;
    session->publish(record);
  }
  progress.finish();
  check.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  write_file(options.out / "selfcheck.json", json_text(to_json(check), 2) + "\n");
  fmt::print("{}", to_text(check));
  return exit_code_of(check);
}

// The rules of other projects beside Attest, on the suite's own kernels unless others are named.
int side_by_side(Options options) {
  constexpr double kLongestSeconds = 5;  // a call of a wrong kernel: some hang
  const auto start = std::chrono::steady_clock::now();
  const Installation installation = installation_for(options);
  if (options.plugins.empty()) options.plugins = installation.test_plugins;
  const fs::path mutants = options.plugins / "mutants.so";
  criteria::Comparison comparison = {
      .suite_version = ATTEST_VERSION,
      .command = fmt::format("attest criteria --tier {} --inputs {} --shard {}",
                             name_of(options.tier), options.inputs, options.shard),
      .sides = {}};
  for (const std::string& filter : options.filters) comparison.command += " --cases " + filter;
  for (const std::string& testee : options.testees) comparison.command += " --testee " + testee;
  if (options.inputs == "theirs" && !options.filters.empty()) {
    throw InputError("", "--cases selects Attest's own cases, which --inputs theirs leaves out");
  }
  const bool named = !options.testees.empty();
  if (!named) options.testees = {mutants.string(), (options.plugins / "legitimate.so").string()};
  const Surroundings around = surroundings_for(options, installation);
  auto testees = testees_for(options, installation, around);
  if (!named) {
    for (Testee& bundled : find_testees({}, installation, options.limits, around, interrupted)) {
      testees.push_back(std::move(bundled));
    }
  }
  const auto subjects = shard_of(criteria::subjects_of(testees, mutants), options.shard);

  std::vector<criteria::CaseSet> sets;
  if (options.inputs != "ours") {
    sets.push_back({.name = "theirs",
                    .about =
                        "On the features and classes of numbers that those projects try, in small "
                        "shapes",
                    .own_inputs = true,
                    .cases = criteria::their_cases()});
  }
  if (options.inputs != "theirs") {
    auto cases = selected_cases(options, installation);
    if (options.filters.empty()) cases = criteria::representatives(cases);
    sets.push_back(
        {.name = "ours", .about = "On Attest's own cases", .cases = by_worth(std::move(cases))});
  }
  const RecordFolder folder(options.out);
  for (const criteria::CaseSet& set : sets) {
    Progress progress(stderr, isatty(STDERR_FILENO) != 0, set.cases.size());
    comparison.sides.push_back(criteria::compare(
        set, subjects,
        {.jobs = options.jobs,
         .workers = options.workers,
         .threads = options.threads,
         .limits = options.limits},
        [&](const Testee& testee) {
          WorkerOptions worker = worker_options(testee, options.limits, around);
          worker.interrupted = interrupted;
          std::error_code none;
          if (!testee.plugin.empty() && fs::equivalent(testee.plugin, mutants, none)) {
            worker.limits.call_seconds = std::min(worker.limits.call_seconds, kLongestSeconds);
          }
          return std::make_unique<WorkerExecutor>(std::move(worker));
        },
        [&] { progress.add({.outcome = Outcome::pass}); }, interrupted));
    progress.finish();
    if (interrupted()) {
      fmt::print(stderr, "attest: interrupted; {} written\n",
                 comparison.sides.size() > 1 ? "the first side is" : "nothing is");
      return kIncomplete;
    }
    comparison.wall_s =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    criteria::write_comparison(comparison, options.out);
  }
  fmt::print("{}\nReport: {}\n", criteria::to_text(comparison),
             (options.out / "criteria.html").string());
  return kConformant;
}

// A kernel's name as that of a folder.
std::string folder_name(std::string name) {
  std::replace(name.begin(), name.end(), '/', '_');
  return name == "." || name == ".." ? "_" : name;
}

// Writes the case that a testee fails, as small as it gets, into shrunk.json.
void shrink_case(const Case& test_case, const Verdict& verdict, const Testee& testee,
                 const Options& options, const Surroundings& around) {
  const RunOptions run = {.threads = options.threads, .limits = options.limits};
  const auto start = [&](const Testee& t) {
    return std::make_unique<WorkerExecutor>(worker_options(t, options.limits, around));
  };
  const Find find = shrunk({.entry = entry_of(test_case), .verdict = verdict}, "attest repro",
                           testee, run, start, interrupted);
  const fs::path file = fs::absolute(options.out / "shrunk.json");
  write_file(file, to_case_file("What attest repro --shrink made.", {find.entry}));
  const VerdictRecord record = record_of(find, testee, run, file);
  fmt::print("  shrunk   {}\n  message  {}\n  file     {}\n  repeat   {}\n",
             to_string(read_entry(find.entry, "shrunk").problem), clean(find.verdict.message),
             file.string(), record.verdict.repro);
}

int repro(const Options& options) {
  const Installation installation = installation_for(options);
  const Case test_case = find_case(load_cases(installation.cases), options.case_id);
  const Surroundings around = surroundings_for(options, installation);
  const auto testees = testees_for(options, installation, around);
  std::optional<RecordFolder> locked;
  if (options.shrink) {
    if (test_case.seed != 1) {
      throw InputError("", "--shrink takes the case's own numbers: its id with s=1");
    }
    if (testees.size() != 1) throw InputError("", "--shrink takes one --testee");
    locked.emplace(options.out);
  }
  if (options.in_process) {
    fmt::print(
        stderr,
        "attest: --in-process gives the testee this process: no isolation, no guards, no "
        "limits{}\n",
        geteuid() == 0 ? ", and it is root. Do this with none that you would not run as root" : "");
  }
  int exit_code = kConformant;
  for (const Testee& testee : testees) {
    PreparedCase prepared(test_case, options.jobs);
    std::unique_ptr<Executor> executor;
    if (options.in_process) {
      if (testee.plugin.empty()) throw InputError("", "--in-process needs a plug-in, not exec:");
      executor = std::make_unique<InProcessExecutor>(*load_plugin(testee.plugin));
    } else {
      WorkerOptions worker = worker_options(testee, options.limits, around);
      worker.interrupted = interrupted;
      executor = std::make_unique<WorkerExecutor>(std::move(worker));
    }
    const Examination examination =
        examine(prepared, testee.description, testee.kernel, *executor, options.threads);
    if (interrupted()) throw Interrupted();
    const Verdict& v = examination.verdict;
    fmt::print("{}  {}\n  case     {}\n  problem  {}, data {}\n  because  {}\n  clauses  {}\n",
               name(v.outcome), testee.name, test_case.id, to_string(test_case.problem),
               test_case.data, test_case.because, fmt::join(v.clauses, ", "));
    if (!v.reason.empty()) fmt::print("  reason   {}\n", v.reason);
    if (!v.message.empty()) fmt::print("  message  {}\n", clean(v.message));
    for (const auto& [tensor, e] : v.tensors) {
      fmt::print("  {:<8} worst at [{}]: actual {}, exact {}, bound {}, ratio {}\n", tensor,
                 fmt::join(e.worst, ","), e.actual, e.exact, e.bound, e.max_ratio);
    }
    if (!v.captured.empty()) fmt::print("  printed  {}\n", clean(v.captured));
    if (!options.dump_folder.empty()) {
      const auto declared = testee.description.arithmetic.find(test_case.problem.dtype);
      const fs::path folder = testees.size() == 1 ? options.dump_folder
                                                  : options.dump_folder / folder_name(testee.name);
      dump(folder, prepared,
           declared != testee.description.arithmetic.end() ? declared->second
                                                           : loosest(test_case.problem.dtype),
           examination);
      fmt::print("  dumped   {}\n", folder.string());
    }
    if (v.outcome == Outcome::unsupported || v.outcome == Outcome::inconclusive) {
      if (exit_code == kConformant) exit_code = kIncomplete;
    } else if (!conforms(v.outcome)) {
      exit_code = kNotConformant;
      if (options.shrink) shrink_case(test_case, v, testee, options, around);
    }
  }
  return exit_code;
}

int report(const Options& options) {
  Record record = read_and_audit(options.record_folder / kResults, suite_of(find_installation()));
  // Nobody else writes there meanwhile.
  const RecordFolder folder(options.record_folder);
  write_reports(record, options.record_folder);
  fmt::print("{}", to_summary_text(record));
  if (!options.write_known.empty()) write_file(options.write_known, known_failures_of(record));
  fmt::print("\nReport: {}\n", (options.record_folder / "index.html").string());
  return exit_code_of(record);
}

// Lets text pass of which `accepts` is true; of other text it says what the option takes instead.
CLI::Validator takes(const std::string& option, const std::string& what,
                     const std::function<bool(const std::string&)>& accepts) {
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        if (accepts(text)) return "";
        throw InputError("", fmt::format("{} takes {}, not {}", option, what, text));
      },
      "");
}

// A whole number within those limits.
CLI::Validator takes_count(const std::string& option, std::uint64_t least, std::uint64_t most) {
  return takes(option, fmt::format("a number from {} to {}", least, most),
               [=](const std::string& text) {
                 std::uint64_t number = 0;
                 const char* end = text.data() + text.size();
                 const auto [rest, error] = std::from_chars(text.data(), end, number);
                 return error == std::errc() && rest == end && number >= least && number <= most;
               });
}

// The name of a format.
CLI::Validator takes_dtype() {
  std::vector<std::string_view> names;
  for (const DType dtype : kDTypes) names.push_back(name(dtype));
  return takes("--dtype", fmt::format("one of {}", fmt::join(names, ", ")),
               [](const std::string& text) { return dtype_named(text).has_value(); });
}

CLI::Validator takes_seconds(const std::string& option) {
  constexpr double kLongest = 1'000'000;  // beyond any run, within any clock
  return takes(option, fmt::format("a number of seconds above 0, at most {}", kLongest),
               [](const std::string& text) {
                 char* end = nullptr;
                 const double seconds = std::strtod(text.c_str(), &end);
                 return end != text.c_str() && *end == '\0' && seconds > 0 && seconds <= kLongest;
               });
}

// The name of an isolation, but for none.
CLI::Validator takes_isolation() {
  return takes("--require-isolation", "other-user, namespaces or user",
               [](const std::string& text) {
                 return std::any_of(kIsolations.begin(), kIsolations.end(), [&](const auto& each) {
                   return each.second == text && each.first != Isolation::none;
                 });
               });
}

// Says which words of the command line mean nothing, and what they may have been meant to be.
[[noreturn]] void complain_of_extras(const CLI::App& app) {
  const CLI::App& command = *app.get_subcommands().front();
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  std::vector<std::string> unknown;
  for (const std::string& word : app.remaining(true)) {
    if (word.starts_with("-")) unknown.push_back(word.substr(0, word.find('=')));
  }
  if (unknown.empty()) {
    throw InputError("", fmt::format("{} does not know what to do with {}", command.get_name(),
                                     fmt::join(app.remaining(true), " ")));
  }
  throw InputError(
      "", fmt::format("{} has no option {}; the nearest are {}", command.get_name(),
                      unknown.front(), fmt::join(nearest_names(unknown.front(), names), ", ")));
}

void add_testee_options(CLI::App& command, Options& options) {
  command.add_option("--testee", options.testees,
                     "A bundled kernel's name, LIBRARY.so, LIBRARY.so:KERNEL, exec:COMMAND, or "
                     "mutant:NAME; may be given again. Default: all bundled kernels (criteria: "
                     "besides, those that are wrong or right on purpose)");
  command.add_option("--threads", options.threads, "Threads that a testee may use in a call")
      ->check(takes_count("--threads", 1, 4096));
  command
      .add_option("--start-limit", options.limits.start_seconds,
                  "Seconds to load and describe a testee")
      ->check(takes_seconds("--start-limit"));
  command
      .add_option("--call-limit", options.limits.call_seconds, "Seconds for one call of a testee")
      ->check(takes_seconds("--call-limit"));
  command
      .add_option("--memory-limit", options.memory_mib,
                  "MiB of memory for a testee, beside the tensors")
      ->check(takes_count("--memory-limit", 1, 1 << 30));
  command
      .add_option("--env", options.environment,
                  fmt::format("A variable that testees get besides {}; a * may end the name. May "
                              "be given again",
                              fmt::join(passed_names(), ", ")))
      ->type_name("NAME");
  command.add_flag("--allow-network", options.network,
                   "Leave testees the network, of which they have none where that can be");
  command.add_flag("--keep-cache", options.keep_cache,
                   "Keep the homes of testees, with what they compiled, and print where they are");
  command
      .add_option_function<std::string>(
          "--require-isolation",
          [&](const std::string& text) {
            for (const auto& [isolation, name] : kIsolations) {
              if (name == text) options.weakest = isolation;
            }
          },
          "Refuse to run testees with less: other-user, namespaces or user")
      ->check(takes_isolation())
      ->type_name("LEVEL");
}

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Attest: the conformance and verification suite for attention kernels");
  app.set_version_flag("--version", ATTEST_VERSION);
  app.require_subcommand(1);
  const auto add_selection = [&](CLI::App& command) {
    command
        .add_option("--cases", options.filters,
                    "A case's id, the beginning of one, or a pattern with * and **")
        ->type_name("GLOB");
    command
        .add_option_function<std::string>(
            "--tier", [&](const std::string& text) { options.tier = tier_named(text); },
            "smoke, standard or full")
        ->check(takes("--tier", "smoke, standard or full", is_tier))
        ->type_name("TIER")
        ->option_text("TIER [standard]");
    command.add_option("--seed", options.seed, "The s of case ids: other numbers, same cases")
        ->check(takes_count("--seed", 0, kMostOfASeed));
    command.add_option("--from", options.from, "Another file or folder of cases");
  };
  const auto add_recording = [&](CLI::App& command) {
    command.add_option("--jobs", options.jobs, "Cases examined at a time")
        ->check(takes_count("--jobs", 1, 1024));
    command.add_option("--out", options.out, "The folder of the record and its reports");
  };

  CLI::App& list_command = *app.add_subcommand("list", "List cases");
  add_selection(list_command);
  list_command.add_flag("--json", options.json, "As JSON, with clauses and reasons");

  CLI::App& run_command = *app.add_subcommand("run", "Judge testees on cases and write a report");
  add_testee_options(run_command, options);
  add_selection(run_command);
  run_command.add_option("--profile", options.profiles,
                         "A profile to be met, or none; X+declared takes arithmetic that is "
                         "declared beyond the default, too. Default: all that a testee declares");
  add_recording(run_command);
  run_command.add_option("--shard", options.shard, "I/N: the I-th of N parts of the cases");
  run_command
      .add_option("--give-up-after", options.give_up_after,
                  "Time-outs of a testee after which its other cases are NOT_RUN; 0: never")
      ->check(takes_count("--give-up-after", 0, 1'000'000))
      ->capture_default_str();
  run_command.add_flag("--fail-fast", options.fail_fast,
                       "After the first verdict that does not conform the rest is NOT_RUN");
  run_command
      .add_option("--max-time", options.max_seconds,
                  "Seconds after which the rest is NOT_RUN, calls in progress too")
      ->check(takes_seconds("--max-time"));
  run_command
      .add_option("--known", options.known, "A file of failures that are known, and don't count")
      ->type_name("FILE");

  CLI::App& fuzz_command =
      *app.add_subcommand("fuzz", "Try random problems until one fails, and make that one small");
  fuzz_command.footer(
      "The same seed gives the same problems, numbered from 0, to the same suite and testee: a "
      "search that ended goes on with --first and the number that its table ends with.");
  add_testee_options(fuzz_command, options);
  add_recording(fuzz_command);
  fuzz_command.add_option("--count", options.count, "Problems to try, of each testee")
      ->check(takes_count("--count", 1, kMostOfASeed));
  fuzz_command.add_option("--first", options.first, "The number of the first problem")
      ->check(takes_count("--first", 0, kMostOfASeed));
  fuzz_command.add_flag("--keep-going", options.keep_going,
                        "Go on after a find, until there are ten of distinct causes, or --finds");
  fuzz_command
      .add_option("--finds", options.finds, "Distinct causes after which a search ends. Default: 1")
      ->check(takes_count("--finds", 1, 1'000'000));
  fuzz_command.add_flag("--finite", options.finite, "Hide no NaN and no infinity in the inputs");
  fuzz_command
      .add_option("--seconds", options.seconds,
                  "Time for each testee. Default: 60, without --count")
      ->check(takes_seconds("--seconds"));
  fuzz_command.add_option("--seed", options.seed, "Of the random problems")
      ->check(takes_count("--seed", 0, kMostOfASeed));
  fuzz_command.add_option("--dtype", options.dtypes, "Only this format; may be given again")
      ->check(takes_dtype());

  CLI::App& selfcheck_command = *app.add_subcommand(
      "selfcheck", "See that every broken kernel is caught and no correct one fails");
  add_selection(selfcheck_command);
  add_recording(selfcheck_command);
  selfcheck_command.add_flag("--full", options.full,
                             "Count all cases that catch a mutant, not only the first");
  selfcheck_command.add_flag("--legitimate", options.legitimate,
                             "Only the correct kernels, on all cases");
  selfcheck_command.add_option("--plugins", options.plugins,
                               "The folder of mutants.so and legitimate.so");

  CLI::App& criteria_command = *app.add_subcommand(
      "criteria", "Put the rules of other projects beside Attest's, on the same results");
  add_testee_options(criteria_command, options);
  add_selection(criteria_command);
  add_recording(criteria_command);
  criteria_command.add_option("--inputs", options.inputs, "theirs, ours or both")
      ->check(takes("--inputs", "theirs, ours or both", [](const std::string& text) {
        return text == "theirs" || text == "ours" || text == "both";
      }));
  criteria_command.add_option("--shard", options.shard, "I/N: the I-th of N parts of the kernels");
  criteria_command.add_option("--plugins", options.plugins,
                              "The folder of mutants.so and legitimate.so");

  CLI::App& repro_command = *app.add_subcommand("repro", "Repeat one case");
  repro_command.add_option("case", options.case_id, "The case's id")->required();
  repro_command.add_option("--from", options.from, "Another file or folder of cases");
  add_testee_options(repro_command, options);
  repro_command.add_flag("--in-process", options.in_process,
                         "Run the plug-in in this process, for a debugger");
  repro_command.add_option("--dump", options.dump_folder,
                           "Write problem, inputs, outputs, exact values, bounds");
  repro_command.add_flag("--shrink", options.shrink,
                         "Make a case that fails as small as it gets, and write it to shrunk.json");
  repro_command.add_option("--out", options.out, "The folder of shrunk.json")
      ->capture_default_str();

  CLI::App& report_command =
      *app.add_subcommand("report", "Make the reports again from results.jsonl");
  report_command.add_option("folder", options.record_folder, "The folder of the record")
      ->required();
  report_command
      .add_option("--write-known", options.write_known, "Write what failed into a file for --known")
      ->type_name("FILE");

  CLI::App& verify_command = *app.add_subcommand(
      "verify", "Check that a record is as it was written, and repeat some of its verdicts");
  verify_command.add_option("folder", options.record_folder, "The folder of the record")
      ->required();
  verify_command
      .add_option("--rerun", options.rerun, "Verdicts to repeat, drawn by the record's digest")
      ->check(takes_count("--rerun", 0, 1'000'000'000));
  add_testee_options(verify_command, options);

  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    commands.push_back(command->get_name());
  }
  const std::string known = fmt::format("there are {}", fmt::join(commands, ", "));
  const std::string first = argc > 1 ? argv[1] : "";
  if (!first.starts_with('-') &&
      std::find(commands.begin(), commands.end(), first) == commands.end()) {
    throw InputError("", first.empty() ? fmt::format("which command? {}; --help says more", known)
                                       : fmt::format("there is no command {}; {}", first, known));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ExtrasError&) {
    complain_of_extras(app);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kConformant : kUsageOrHarnessError;
  }
  options.limits.memory_bytes = options.memory_mib << 20;
  for (const CLI::App* command : app.get_subcommands()) {
    for (const CLI::Option* option : command->get_options()) {
      if (option->count() > 0) options.given.insert(option->get_name());
    }
  }
  // What is asked for is nobody else's: case ids never cross, by no command line either.
  for (int i = 1; i < argc; ++i) std::memset(argv[i], 0, std::strlen(argv[i]));
  harden_this_process();
  raise_open_files();
  const Crew crew = crew_for(options.jobs);
  if (crew.jobs < options.jobs) {
    fmt::print(stderr, "attest: {} jobs instead of {}: the system lets it open too few files\n",
               crew.jobs, options.jobs);
  }
  options.jobs = crew.jobs;
  options.workers = crew.workers;
  const fs::path plugins =
      options.plugins.empty() ? find_installation().test_plugins : options.plugins;
  options.testees = with_mutants(options.testees, plugins / "mutants.so");
  // Whoever starts testees ends them; in this process, the debugger is asked.
  if (!list_command && !report_command && !options.in_process) stop_on_signals();
  if (list_command) return list(options);
  if (run_command) return run(options);
  if (fuzz_command) return fuzz(options);
  if (selfcheck_command) return selfcheck(options);
  if (criteria_command) return side_by_side(options);
  if (repro_command) return repro(options);
  if (verify_command) return verify(options);
  return report(options);
}

}  // namespace
}  // namespace attest

int main(int argc, char** argv) {
  // What one case gives back, the next one takes: to return it to the system between them costs
  // more than to keep it.
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that is taken
  mallopt(M_TOP_PAD, 16 << 20);
  // A file that grows beyond its limit is an error of write, not our end.
  signal(SIGXFSZ, SIG_IGN);
  try {
    const int exit_code = attest::main(argc, argv);
    // Whoever stopped reading has read enough.
    if (std::fflush(stdout) != 0 && errno != EPIPE) {
      throw std::system_error(errno, std::generic_category(), "cannot write the output");
    }
    return exit_code;
  } catch (const attest::Interrupted& error) {
    std::fputs(fmt::format("attest: {}\n", error.what()).c_str(), stderr);
    return attest::kIncomplete;
  } catch (const std::exception& error) {
    // It may quote what a testee printed.
    std::fputs(fmt::format("attest: {}\n", attest::clean(error.what())).c_str(), stderr);
    return attest::kUsageOrHarnessError;
  }
}
