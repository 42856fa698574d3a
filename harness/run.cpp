#include "harness/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <ostream>
#include <thread>

#include "harness/conclude.h"
#include "harness/examine.h"
#include "harness/jobs.h"
#include "harness/seal.h"

namespace attest {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Quoted for a shell.
std::string quoted(const std::string& text) {
  if (text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                             "_-+=/.,:@%") == std::string::npos) {
    return text;
  }
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

// Takes verdicts in any order and passes them on in the order of the cases.
class InOrder {
 public:
  InOrder(std::size_t count, Record& record, std::ostream& out,
          const std::function<void(const Verdict&)>& seen)
      : waiting_(count), record_(record), out_(out), seen_(seen) {}

  void put(std::size_t place, std::vector<VerdictRecord> verdicts) {
    const std::lock_guard lock(mutex_);
    for (const VerdictRecord& v : verdicts) seen_(v.verdict);
    waiting_[place] = std::move(verdicts);
    for (; next_ < waiting_.size() && !waiting_[next_].empty(); ++next_) {
      for (VerdictRecord& v : waiting_[next_]) {
        out_ << to_line(v) << '\n';
        record_.verdicts.push_back(std::move(v));
      }
      waiting_[next_].clear();
      out_.flush();
    }
  }

 private:
  std::mutex mutex_;
  std::vector<std::vector<VerdictRecord>> waiting_;
  std::size_t next_ = 0;
  Record& record_;
  std::ostream& out_;
  const std::function<void(const Verdict&)>& seen_;
};

// What testees declare beyond the caps, of the formats that are tried: one verdict for each.
std::vector<VerdictRecord> beyond_caps(const std::vector<Case>& cases,
                                       const std::vector<Testee>& testees,
                                       const RunOptions& options) {
  std::vector<VerdictRecord> found;
  for (const Testee& testee : testees) {
    for (const auto& [dtype, words] : testee.description.beyond_caps) {
      const auto first =
          std::find_if(cases.begin(), cases.end(),
                       [&, dtype = dtype](const Case& c) { return c.problem.dtype == dtype; });
      if (first == cases.end()) continue;
      VerdictRecord record{.case_id = fmt::format("declaration/beyond_caps/dtype={}", name(dtype)),
                           .testee = testee.name,
                           .dtype = std::string(name(dtype)),
                           .because =
                               "Nobody declares his way to a pass: what lies beyond the "
                               "caps has no bound.",
                           .verdict = {}};
      record.verdict.outcome = Outcome::fail;
      record.verdict.reason = "beyond_caps";
      record.verdict.message =
          fmt::format("declares what lies beyond the caps of {}: {}", name(dtype), words);
      record.verdict.clauses = {"NUM-2"};
      record.verdict.repro =
          fmt::format("attest run --testee {} --cases {}", quoted(testee.spec), quoted(first->id));
      if (!options.from.empty()) {
        record.verdict.repro += fmt::format(" --from {}", quoted(options.from));
      }
      found.push_back(std::move(record));
    }
  }
  return found;
}

}  // namespace

std::string repro_line(const Case& test_case, const Testee& testee, const RunOptions& options) {
  std::string line =
      fmt::format("attest repro {} --testee {}", quoted(test_case.id), quoted(testee.spec));
  const Limits& limits = options.limits;
  const Limits usual;
  if (options.threads != 1) line += fmt::format(" --threads {}", options.threads);
  if (limits.start_seconds != usual.start_seconds) {
    line += fmt::format(" --start-limit {}", limits.start_seconds);
  }
  if (limits.call_seconds != usual.call_seconds) {
    line += fmt::format(" --call-limit {}", limits.call_seconds);
  }
  if (limits.memory_bytes != usual.memory_bytes) {
    line += fmt::format(" --memory-limit {}", limits.memory_bytes >> 20);
  }
  if (!options.from.empty()) line += fmt::format(" --from {}", quoted(options.from));
  return line;
}

Preparation prepare(const Case& test_case) {
  try {
    // What is long enough for an excerpt takes long enough for all processors.
    const int threads =
        test_case.excerpt > 0 ? static_cast<int>(std::thread::hardware_concurrency()) : 1;
    return {.prepared = std::make_unique<PreparedCase>(test_case, threads)};
  } catch (const std::bad_alloc&) {
    return {.prepared = nullptr, .error = "cannot prepare the case: there is no memory for it"};
  } catch (const std::exception& problem) {
    return {.prepared = nullptr,
            .error = fmt::format("cannot prepare the case: {}", problem.what())};
  }
}

VerdictRecord examine_safely(const Preparation& preparation, const Case& test_case,
                             const Testee& testee, Executor& executor, const RunOptions& options) {
  const auto start = Clock::now();
  VerdictRecord record{.case_id = test_case.id,
                       .testee = testee.name,
                       .dtype = std::string(name(test_case.problem.dtype)),
                       .because = test_case.because,
                       .verdict = {}};
  try {
    if (!preparation.prepared) throw std::runtime_error(preparation.error);
    record.verdict =
        examine(*preparation.prepared, testee.description, testee.kernel, executor, options.threads)
            .verdict;
  } catch (const std::exception& error) {
    record.verdict.outcome = Outcome::harness_error;
    record.verdict.message = error.what();
    record.verdict.clauses = test_case.clauses;
    executor.renew();  // what it was at must not answer the next case
  }
  record.verdict.wall_s = seconds_since(start);
  record.verdict.repro = repro_line(test_case, testee, options);
  return record;
}

Record run(const std::vector<Case>& cases, const std::vector<Testee>& testees, const Header& header,
           const RunOptions& options, const MakeExecutor& make_executor, std::ostream& out,
           const std::function<void(const Verdict&)>& seen,
           const std::function<bool()>& interrupted) {
  const auto start = Clock::now();
  Record record{.header = header, .verdicts = {}, .footer = {}};
  out << to_line(header) << '\n';
  record.verdicts = beyond_caps(cases, testees, options);
  for (const VerdictRecord& v : record.verdicts) out << to_line(v) << '\n';
  out.flush();
  InOrder in_order(cases.size(), record, out, seen);
  std::atomic<std::size_t> next = 0;
  ExecutorPool executors(make_executor, options.workers);
  in_parallel(options.jobs, [&] {
    for (std::size_t i = next++; i < cases.size() && !interrupted(); i = next++) {
      const Preparation preparation = prepare(cases[i]);
      std::vector<VerdictRecord> verdicts;
      for (const Testee& testee : testees) {
        const auto executor = executors.take(testee.name, testee);
        verdicts.push_back(examine_safely(preparation, cases[i], testee, *executor, options));
      }
      // What was broken off is left out, as all that never began is.
      std::erase_if(verdicts,
                    [](const VerdictRecord& v) { return v.verdict.outcome == Outcome::not_run; });
      in_order.put(i, std::move(verdicts));
    }
  });
  if (interrupted()) return record;
  record.footer = conclude(header, record.verdicts);
  record.footer->wall_s = seconds_since(start);
  seal(record);
  out << to_line(*record.footer) << '\n';
  out.flush();
  return record;
}

}  // namespace attest
