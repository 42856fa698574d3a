#include "harness/session.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "harness/conclude.h"
#include "reports/reports.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

std::atomic<bool> g_interrupted = false;

std::string_view name_of(Isolation isolation) {
  for (const auto& [value, text] : kIsolations) {
    if (value == isolation) return text;
  }
  return "?";
}

// What is found in the folder of a record: none of it is for testees.
std::vector<std::string> record_files(const fs::path& folder) {
  std::vector<std::string> files;
  for (const char* name :
       {"results.jsonl", "report.json", "junit.xml", "summary.md", "index.html"}) {
    files.push_back((fs::absolute(folder) / name).string());
  }
  return files;
}

std::pair<dev_t, ino_t> identity(const fs::path& folder) {
  struct stat about {};
  if (stat(folder.c_str(), &about) != 0) return {};
  return {about.st_dev, about.st_ino};
}

}  // namespace

Installation installation_for(const Options& options) {
  Installation installation = find_installation();
  if (!options.from.empty()) installation.cases = options.from;
  return installation;
}

std::vector<Case> selected_cases(const Options& options, const Installation& installation) {
  return select(load_cases(installation.cases, options.seed),
                {.tier = options.tier, .filters = options.filters, .seed = options.seed});
}

void cannot_write_into(const fs::path& folder, const std::string& why) {
  throw InputError("", fmt::format("cannot write into the folder {}: {}", folder.string(), why));
}

void make_out_folder(const fs::path& folder) {
  if (folder.empty()) throw InputError("", "--out takes a folder, not an empty name");
  std::error_code error;
  fs::create_directories(folder, error);
  if (!fs::is_directory(folder)) {
    const bool taken = fs::exists(fs::symlink_status(folder));
    throw InputError("", fmt::format("--out takes a folder; {} {}", folder.string(),
                                     taken ? "is none" : "cannot be made: " + error.message()));
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) cannot_write_into(folder, std::strerror(errno));
}

Surroundings surroundings_for(const Options& options, const Installation& installation,
                              const std::vector<std::string>& files) {
  Surroundings around = {.variables = passed_variables(options.environment),
                         .homes = std::make_shared<Homes>(options.keep_cache),
                         .read_only = files_to_keep(installation, options.testees),
                         .network = options.network};
  hide(around, files);
  return around;
}

std::vector<Testee> testees_for(const Options& options, const Installation& installation,
                                const Surroundings& around) {
  std::vector<Testee> testees = find_testees(options.testees, installation, options.limits, around);
  for (const Testee& testee : testees) {
    if (testee.isolation <= options.weakest) continue;
    throw InputError("",
                     fmt::format("--require-isolation {}: {} would run with {}{}{}",
                                 name_of(options.weakest), testee.name, describe(testee.isolation),
                                 testee.unisolated.empty() ? "" : ": ", testee.unisolated));
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

Session::Session(const Options& options, const Installation& installation, const std::string& tier,
                 const std::vector<std::string>& more_files)
    : options_(options), file_(options.out / "results.jsonl") {
  make_out_folder(options.out);
  std::vector<std::string> hidden = record_files(options.out);
  for (const fs::path file : hidden) {
    if (fs::is_directory(file)) {
      cannot_write_into(options.out, fmt::format("{} is a folder", file.filename().string()));
    }
  }
  hidden.insert(hidden.end(), more_files.begin(), more_files.end());
  around_ = surroundings_for(options, installation, hidden);
  testees_ = testees_for(options, installation, around_);
  for (const Testee& t : testees_) {
    if (t.isolation != Isolation::none) continue;
    fmt::print(stderr, "attest: {} runs without isolation: {}\n", t.name, t.unisolated);
  }
  stop_on_signals();
  results_.open(file_, std::ios::binary);
  // Until the run is over nobody else may read what others returned.
  if (!results_) cannot_write_into(options.out, std::strerror(errno));
  fs::permissions(file_, fs::perms::owner_read | fs::perms::owner_write);
  header_ = {.suite_version = ATTEST_VERSION,
             .testees = {},
             .tier = tier,
             .seed = options.seed,
             .shard = options.shard,
             .filters = options.filters,
             .from = options.from.empty() ? "" : fs::absolute(options.from).string(),
             .isolation = describe(weakest_isolation(testees_)),
             .profiles = options.profiles};
  for (const Testee& t : testees_) {
    TesteeRecord record{.name = t.name,
                        .version = t.description.version,
                        .vendor = t.description.vendor,
                        .profiles = t.description.profiles,
                        .features = t.description.features,
                        .dtypes = {},
                        .arithmetic = t.description.declared_arithmetic};
    for (const DType dtype : t.description.dtypes) record.dtypes.emplace_back(name(dtype));
    for (const auto& [dtype, words] : t.description.beyond_caps) {
      record.beyond_caps[std::string(name(dtype))] = words;
    }
    header_.testees.push_back(std::move(record));
  }
  folder_ = identity(options.out);
}

RunOptions Session::run_options() const {
  return {.jobs = options_.jobs,
          .workers = options_.workers,
          .threads = options_.threads,
          .limits = options_.limits,
          .from = header_.from};
}
std::unique_ptr<Executor> Session::start(const Testee& testee) const {
  WorkerOptions worker = worker_options(testee, options_.limits, around_);
  worker.interrupted = [] { return g_interrupted.load(); };
  return std::make_unique<WorkerExecutor>(std::move(worker));
}

void Session::publish(const Record& record) {
  // Where namespaces are not to be had, a testee may move what is above the folder.
  if (identity(options_.out) != folder_) {
    throw InputError("", fmt::format("another folder was put in the place of {} during the run",
                                     options_.out.string()));
  }
  if (!results_.flush()) throw InputError("", fmt::format("writing {} failed", file_.string()));
  fs::permissions(file_, fs::perms::group_read | fs::perms::others_read, fs::perm_options::add);
  write_reports(record, options_.out);
}

int Session::finish(const Record& record) {
  publish(record);
  fmt::print("{}", to_summary_text(record));
  fmt::print("\nReport: {}\n", (options_.out / "index.html").string());
  if (options_.keep_cache) fmt::print("Caches: {}\n", around_.homes->folder().string());
  if (!record.footer) {
    fmt::print(stderr, "attest: interrupted; the record is truncated\n");
    return kIncomplete;
  }
  return record.footer->exit_code;
}

}  // namespace attest
