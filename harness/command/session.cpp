#include "harness/command/session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <ctime>

#include "cases/fit.h"
#include "cases/shapes.h"
#include "harness/command/identity.h"
#include "harness/diagnosis/diagnose.h"
#include "harness/process/nobody.h"
#include "harness/run/conclude.h"
#include "harness/run/sha256.h"
#include "harness/selfcheck/catalogue.h"
#include "reports/files.h"
#include "reports/reports.h"
#include "spec/contains.h"
#include "spec/diagnosis.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

std::atomic<bool> g_interrupted = false;

// "fa2, naive, 3 more"
std::string few_of(const std::vector<std::string>& names) {
  constexpr std::size_t kNamed = 4;
  const std::size_t named = std::min(kNamed, names.size());
  return fmt::format("{}{}", fmt::join(names.begin(), names.begin() + std::ptrdiff_t(named), ", "),
                     names.size() > named ? fmt::format(", {} more", names.size() - named) : "");
}

// What of whom is not kept from where: of testees in one isolation, in words.
std::vector<std::string> uncontained(const std::vector<Testee>& testees, bool network) {
  std::vector<std::string> all;
  for (const auto& [isolation, name] : kIsolations) {
    std::vector<std::string> names;
    for (const Testee& t : testees) {
      if (t.isolation == isolation) names.push_back(t.name);
    }
    std::string what;
    if (isolation == Isolation::none) {
      what =
          "all that this user may: files, the record among them; processes, shared memory and the "
          "network";
    } else if (isolation == Isolation::user_only) {
      const bool shared = std::any_of(testees.begin(), testees.end(), [](const Testee& t) {
        return t.isolation == Isolation::user_only && t.user == kNobody;
      });
      what = fmt::format("{}files that everybody may write, shared memory and the network",
                         shared ? "each other's files and processes, " : "");
    } else if (network || (!names.empty() && !keeps_network(isolation))) {
      what = "the network";
    }
    if (names.empty() || what.empty()) continue;
    all.push_back(fmt::format("{} ({}) had {}", few_of(names), describe(isolation), what));
  }
  return all;
}

// What --testee names, each mutant as one of its plug-in. Empty: all that is bundled.
std::vector<std::string> specs_of(const TesteeOptions& options, const Installation& installation) {
  if (options.testees.empty() && !options.all_targets) return bundled_names(installation);
  return with_mutants(options.testees, installation.test_plugins / "mutants.so");
}

std::vector<Case> all_shapes(const CaseOptions& options, const Installation& installation) {
  const Shapes shapes = load_shapes(options.shapes, installation.cases, options.seed);
  for (const std::string& note : shapes.notes) fmt::print(stderr, "attest: {}\n", note);
  return cases_of(shapes);
}

// What of the options testees feel.
OptionsRecord options_record(const TesteeOptions& options) {
  return {.threads = options.threads,
          .start_limit = options.limits.start_seconds,
          .call_limit = options.limits.call_seconds,
          .memory_limit = static_cast<Index>(options.limits.memory_bytes >> 20),
          .env = options.environment,
          .allow_network = options.network,
          .require_isolation = std::string(name_of(options.weakest)),
          .sanitizer = options.sanitizer};
}

}  // namespace

Installation installation_for(const CaseOptions& options, const fs::path& test_plugins) {
  Installation installation = find_installation();
  if (!options.from.empty()) installation.cases = options.from;
  if (!test_plugins.empty()) installation.test_plugins = test_plugins;
  return installation;
}

SelectedCases selected_cases(const CaseOptions& options, const Installation& installation) {
  const Selection selection = {
      .tier = options.tier, .filters = options.filters, .seed = options.seed};
  const Tier complete = std::max(options.tier, Tier::standard);
  if (!options.shapes.empty()) {
    const std::vector<Case> all = all_shapes(options, installation);
    return {select(all, selection), std::count_if(all.begin(), all.end(), [&](const Case& c) {
              return c.tier <= complete;
            })};
  }
  std::vector<bool> met(options.filters.size());
  CaseChoice choice = {.wants = [&](Tier tier, const std::string& id) {
    bool wanted = options.filters.empty();
    for (std::size_t n = 0; n < met.size(); ++n) {
      if (!is_taken(id, options.filters[n])) continue;
      met[n] = wanted = true;
    }
    return wanted && tier <= options.tier;
  }};
  SelectedCases selected = {.cases = load_cases(installation.cases, options.seed, choice)};
  for (const auto& [tier, count] : choice.counts) {
    if (tier <= complete) selected.complete += count;
  }
  // A filter that meets nothing is told what there is.
  if (contains(met, false)) select(load_cases(installation.cases, options.seed), selection);
  return selected;
}

Case case_named(const std::string& id, const CaseOptions& options,
                const Installation& installation) {
  if (!options.shapes.empty()) return find_case(all_shapes(options, installation), id);
  const auto without_seed = [](std::string_view each) { return each.substr(0, each.rfind("/s=")); };
  const auto wanted = without_seed(base_id(id));
  CaseChoice choice = {
      .wants = [&](Tier, const std::string& each) { return without_seed(each) == wanted; }};
  const auto cases = load_cases(installation.cases, options.seed, choice);
  return find_case(cases.empty() ? load_cases(installation.cases, options.seed) : cases, id);
}

std::vector<std::string> shapes_as_named(const CaseOptions& options,
                                         const Installation& installation) {
  std::vector<std::string> all;
  for (const std::string& named : options.shapes) {
    const bool is_file = file_of_shapes(named, installation.cases) == fs::path(named);
    all.push_back(is_file ? fs::absolute(named).string() : named);
  }
  return all;
}

Suite suite_of(const Installation& installation) {
  return {.cases = installation.cases,
          .bundled = digest_of_bundled_cases(),
          .version = ATTEST_VERSION,
          .commit = suite_commit()};
}

FileSums sums_of(const Testee& testee, FileSums& known) {
  FileSums sums;
  for (const std::string& file : testee.files) {
    auto& sum = known[file];
    if (sum.empty()) sum = sha256_of_file(file);
    sums[file] = sum;
  }
  return sums;
}

Plan plan_for(const CaseOptions& options, const Installation& installation, Index complete,
              std::size_t selected) {
  const bool of_shapes = !options.shapes.empty();
  const std::string digest =
      of_shapes ? sha256_of_files(files_of_shapes(options.shapes, installation.cases))
                : sha256_of_cases(installation.cases);
  return {.header = {.suite_version = ATTEST_VERSION,
                     .suite_commit = suite_commit(),
                     .cases = {.digest = digest,
                               .bundled = options.from.empty() && !of_shapes &&
                                          digest == digest_of_bundled_cases(),
                               .selected = static_cast<Index>(selected),
                               .complete = complete},
                     .testees = {},
                     .tier = std::string(name_of(options.tier)),
                     .seed = options.seed,
                     .filters = options.filters,
                     .from = options.from.empty() ? "" : fs::absolute(options.from).string(),
                     .shapes = shapes_as_named(options, installation)}};
}

Surroundings surroundings_for(const TesteeOptions& options, const Installation& installation,
                              const std::vector<std::string>& files) {
  Surroundings around = {.variables = passed_variables(options.environment),
                         .homes = std::make_shared<Homes>(options.keep_cache),
                         .read_only = files_to_keep(installation, specs_of(options, installation)),
                         .network = options.network,
                         .sanitizer = sanitizer_called(options.sanitizer)};
  hide(around, files);
  if (options.device_per_job) {
    around.devices = visible_devices();
    if (around.devices.empty()) {
      throw InputError("",
                       "--device-per-job: there is no GPU here, in CUDA_VISIBLE_DEVICES or as "
                       "/dev/nvidia0");
    }
  }
  return around;
}

std::vector<Testee> testees_for(const TesteeOptions& options, const Installation& installation,
                                const Surroundings& around) {
  std::vector<Testee> testees = find_testees(specs_of(options, installation), installation,
                                             options.limits, around, interrupted);
  for (const Testee& testee : testees) {
    if (testee.isolation <= options.weakest) continue;
    throw InputError("",
                     fmt::format("--require-isolation {}: {} would run with {}{}{}",
                                 name_of(options.weakest), testee.name, describe(testee.isolation),
                                 testee.unisolated.empty() ? "" : ": ", testee.unisolated));
  }
  for (const Testee& t : testees) {
    if (t.isolation != Isolation::none || options.in_process) continue;
    fmt::print(stderr, "attest: {} runs without isolation: {}\n", t.name, t.unisolated);
  }
  if (options.keep_cache) {
    fmt::print(stderr, "attest: homes are kept in {}\n", around.homes->folder().string());
  }
  return testees;
}

void stop_on_signals() {
  const auto stop = [](int number) {
    static std::atomic<std::time_t> asked = 0;
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    std::time_t first = 0;
    const bool again = !asked.compare_exchange_strong(first, now.tv_sec);
    g_interrupted = true;
    if (!again || now.tv_sec <= first + 1) return;
    signal(number, SIG_DFL);
    raise(number);
  };
  signal(SIGINT, stop);
  signal(SIGTERM, stop);
}

bool interrupted() { return g_interrupted; }

Session::Session(const TesteeOptions& testees, const RecordingOptions& recording,
                 const Installation& installation, const Plan& plan)
    : terminal_(recording.terminal),
      folder_(recording.out),
      header_(plan.header),
      run_options_(plan.ends) {
  std::vector<std::string> hidden = plan.more_files;
  for (const fs::path& file : files_of_record(recording.out)) hidden.push_back(file.string());
  around_ = surroundings_for(testees, installation, hidden);
  testees_ = plan.outputs ? std::vector<Testee>{*plan.outputs}
                          : testees_for(testees, installation, around_);
  header_.isolation = plan.outputs ? kNotStarted : describe(weakest_isolation(testees_));
  if (!plan.outputs) header_.uncontained = uncontained(testees_, testees.network);
  header_.options = options_record(testees);
  FileSums known;
  for (const Testee& t : testees_) {
    TesteeRecord record{.name = t.name,
                        .spec = t.spec,
                        .isolation = plan.outputs ? kNotStarted : std::string(name_of(t.isolation)),
                        .files = sums_of(t, known),
                        .version = t.description.version,
                        .vendor = t.description.vendor,
                        .profiles = t.description.profiles,
                        .features = t.description.features,
                        .dtypes = {},
                        .arithmetic = t.description.declared_arithmetic,
                        .limits = t.description.declared_limits,
                        .dialect = t.description.declared_dialect,
                        .probed = t.description.probed};
    for (const DType dtype : t.description.dtypes) record.dtypes.emplace_back(name(dtype));
    for (const auto& [dtype, words] : t.description.beyond_caps) {
      record.beyond_caps[std::string(name(dtype))] = words;
    }
    header_.testees.push_back(std::move(record));
  }
  results_.emplace(recording.out, [](const std::string& why) {
    fmt::print(stderr, "attest: {}\n", why);
    g_interrupted = true;  // the run ends: nothing more would be kept of it
  });
  run_options_.jobs = recording.jobs;
  run_options_.workers = recording.workers;
  run_options_.threads = testees.threads;
  run_options_.limits = testees.limits;
  run_options_.surroundings = surroundings_text(testees);
  run_options_.from = header_.from;
  run_options_.shapes = header_.shapes;
  run_options_.begun = std::chrono::steady_clock::now();
  run_options_.changes = [this] { return changes(); };
  run_options_.vectors = header_.vectors;
}

std::vector<std::string> Session::changes() const {
  std::map<std::string, std::string> sums;
  std::map<std::string, std::vector<std::string>> made_of;  // the names of testees, by file
  for (const TesteeRecord& testee : header_.testees) {
    for (const auto& [file, sum] : testee.files) {
      sums[file] = sum;
      made_of[file].push_back(testee.name);
    }
  }
  std::vector<std::string> changed;
  for (const auto& [file, sum] : sums) {
    const char* what = nullptr;
    try {
      if (sha256_of_file(file) != sum) what = "changed";
    } catch (const InputError&) {
      what = "went away";
    }
    if (!what) continue;
    changed.push_back(fmt::format("the file {} {} during the run; made of it: {}", file, what,
                                  few_of(made_of[file])));
  }
  return changed;
}

std::unique_ptr<Executor> Session::start(const Testee& testee) const {
  if (!header_.vectors.empty()) return std::make_unique<Nobody>();
  WorkerOptions worker = worker_options(testee, run_options_.limits, around_);
  if (!around_.devices.empty()) {
    const std::string& device = around_.devices[started_++ % around_.devices.size()];
    worker.around.variables = seeing(device, std::move(worker.around.variables));
  }
  worker.interrupted = [this] { return interrupted() || time_is_up(run_options_); };
  return std::make_unique<WorkerExecutor>(std::move(worker));
}

void Session::publish(const Record& record) {
  // Where namespaces are not to be had, a testee may move what is above the folder.
  folder_.check_identity();
  results_->publish();
  write_reports(record, folder_.path());
}

int Session::finish(const Record& record) {
  publish(record);
  const Terminal terminal(stdout, terminal_);
  const Loudness loudness = terminal_.loudness;
  terminal.write_coloured(to_summary_text(record, loudness == Loudness::quiet     ? Detail::brief
                                                  : loudness == Loudness::verbose ? Detail::whole
                                                                                  : Detail::usual));
  if (loudness != Loudness::quiet) {
    fmt::print("\nReport: {}\n", (folder_.path() / "index.html").string());
  }
  if (!record.footer) {
    fmt::print(stderr, "attest: interrupted; the record is truncated\n");
    return kIncomplete;
  }
  return record.footer->exit_code;
}

int Session::finish_with_diagnosis(Record record, const std::vector<Case>& cases,
                                   const RunOptions& run_options) {
  const int exit_code = finish(record);
  const MakeExecutor executor_for = [&](const Testee& testee) { return start(testee); };
  const auto ends = [&] { return interrupted() || time_is_up(run_options); };
  std::vector<Explained> explained;  // first: of them are more at a time
  if (run_options.explains_each) {
    explained = explain_each(record, cases, testees_, run_options, executor_for, ends);
  }
  const auto groups = diagnose(record, cases, testees_, run_options, executor_for, ends);
  record.diagnoses = diagnoses_of(groups);
  nlohmann::json diagnosis = to_json(groups);
  if (run_options.explains_each) diagnosis["failures"] = to_json(explained);
  add_diagnosis(record, diagnosis);
  if (terminal_.loudness != Loudness::quiet) {
    Terminal(stdout, terminal_).write_coloured(to_text(groups));
  }
  return exit_code;
}

void Session::add_diagnosis(const Record& record, const nlohmann::json& diagnosis) {
  folder_.check_identity();  // testees have run again
  write_file(folder_.path() / kDiagnosis, json_text(diagnosis, 2) + "\n");
  write_reports(record, folder_.path());
}

}  // namespace attest
