#include "harness/fuzz/fuzz.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "cases/entry.h"
#include "harness/examine.h"
#include "harness/fuzz/random_entry.h"
#include "harness/fuzz/shrink.h"
#include "reports/text.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What a search is for: failures of the testee, and our own.
bool is_find(Outcome outcome) { return is_fault(outcome) || outcome == Outcome::harness_error; }

Verdict verdict_on(const Case& test_case, const Testee& testee, Executor& executor,
                   const RunOptions& options) {
  const auto start = Clock::now();
  Verdict verdict;
  try {
    PreparedCase prepared(test_case, 1);
    verdict =
        examine(prepared, testee.description, testee.kernel, executor, options.threads).verdict;
  } catch (const std::exception& error) {
    verdict = {
        .outcome = Outcome::harness_error, .message = error.what(), .clauses = test_case.clauses};
  }
  verdict.wall_s = seconds_since(start);
  return verdict;
}

// What has been tried, by number, and the least number that failed.
class Tries {
 public:
  explicit Tries(std::uint64_t count)
      : end_(count > 0 ? count : std::numeric_limits<std::uint64_t>::max()) {}

  // The next number to try; none if all that matter are taken.
  std::optional<std::uint64_t> next() {
    const std::uint64_t number = next_++;
    return number < end_ ? std::optional(number) : std::nullopt;
  }

  void put(std::uint64_t number, const json& entry, const Verdict& verdict) {
    const std::lock_guard lock(mutex_);
    outcomes_.emplace_back(number, verdict.outcome);
    if (!is_find(verdict.outcome) || number >= end_) return;
    end_ = number;
    found_ = {entry, verdict};
  }

  const std::optional<Find>& found() const { return found_; }

  std::map<std::string, Index> counts() const {
    std::map<std::string, Index> counts;
    for (const auto& [number, outcome] : outcomes_) {
      // What lies behind the first failure was tried or not, as the jobs had it.
      if (!found_ || number <= end_) ++counts[std::string(name(outcome))];
    }
    return counts;
  }

 private:
  std::atomic<std::uint64_t> next_ = 0, end_;
  std::mutex mutex_;
  std::vector<std::pair<std::uint64_t, Outcome>> outcomes_;
  std::optional<Find> found_;
};

// A name for an entry: the testee's, and the number's.
std::string entry_name(const Testee& testee, const std::string& of_problem) {
  std::string text;
  for (const char c : testee.name) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    text += letter ? c : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : '_';
  }
  return text + "_" + of_problem;
}

}  // namespace

FuzzResult fuzz(const Testee& testee, const FuzzOptions& options, const MakeExecutor& make_executor,
                const std::function<void(const Verdict&)>& seen,
                const std::function<bool()>& interrupted) {
  const auto start = Clock::now();
  const std::vector<DType>& dtypes =
      options.dtypes.empty() ? testee.description.dtypes : options.dtypes;
  Tries tries(options.count);
  std::mutex mutex;
  std::exception_ptr ours;
  const auto work = [&] {
    try {
      const auto executor = make_executor(testee);
      while (!interrupted() && (options.seconds == 0 || seconds_since(start) < options.seconds)) {
        const auto number = tries.next();
        if (!number) return;
        const json entry = random_entry(testee.description, dtypes, options.seed, *number);
        const Verdict verdict =
            verdict_on(read_entry(entry, kFuzzStem), testee, *executor, options.run);
        if (verdict.outcome == Outcome::not_run) return;  // interrupted
        tries.put(*number, entry, verdict);
        const std::lock_guard lock(mutex);
        seen(verdict);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      ours = std::current_exception();
    }
  };
  std::vector<std::thread> jobs;
  for (int job = 1; job < options.run.jobs; ++job) jobs.emplace_back(work);
  work();
  for (std::thread& job : jobs) job.join();
  if (ours) std::rethrow_exception(ours);
  FuzzResult result = {.tried = tries.counts(), .found = tries.found()};
  if (result.found) {
    json& name = result.found->entry["name"];
    name = entry_name(testee, name);
    result.found =
        shrunk(*result.found, "attest fuzz", testee, options.run, make_executor, interrupted);
  }
  return result;
}

Find shrunk(const Find& find, const std::string& by, const Testee& testee,
            const RunOptions& options, const MakeExecutor& make_executor,
            const std::function<bool()>& interrupted) {
  // Enough for a few dozen steps, each among a few dozen; and no more time than a person waits.
  constexpr int kMostTries = 3000;
  constexpr double kMostSeconds = 120;
  const auto start = Clock::now();
  const auto executor = make_executor(testee);
  std::optional<Find> smallest;
  const auto fails = [&](const json& candidate) {
    if (interrupted() || seconds_since(start) > kMostSeconds) return false;
    try {
      Verdict verdict = verdict_on(read_entry(candidate, kFuzzStem), testee, *executor, options);
      if (verdict.outcome != find.verdict.outcome || verdict.reason != find.verdict.reason) {
        return false;
      }
      smallest = {candidate, std::move(verdict)};
      return true;
    } catch (const InputError&) {
      return false;  // no case
    }
  };
  if (fails(find.entry)) shrink(find.entry, kMostTries, fails);
  // As whoever repeats it will: with a testee that did nothing before.
  executor->renew();
  const bool repeats = smallest && fails(smallest->entry);
  Find result = repeats ? *smallest : find;
  result.entry["because"] =
      fmt::format("Found by {}{}: {}", by, repeats ? "" : " once, and not again when tried alone",
                  one_line(excerpt(result.verdict.message)));
  return result;
}

}  // namespace attest
