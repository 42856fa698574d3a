// A run: many cases, many testees, one record.
#pragma once

#include <chrono>
#include <functional>
#include <iosfwd>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cases/case.h"
#include "harness/process/pool.h"
#include "harness/process/testee.h"
#include "harness/run/asking.h"
#include "harness/run/examine.h"
#include "harness/run/floor.h"
#include "harness/run/memory_budget.h"
#include "spec/record.h"

namespace attest {

struct RunOptions {
  int jobs = 1;  // cases examined at a time
  // That testees have at a time, if jobs are no more.
  std::size_t workers = std::numeric_limits<std::size_t>::max();
  int threads = 1;  // that a testee may use in a call
  // Bytes for all that is judged at a time.
  double memory = 0.9 * memory_here();
  Limits limits = {};
  std::string surroundings = {};  // options by which workers start, as " --env NAME"
  std::string from = {};  // the file or folder of the cases, if they are none of the suite's
  std::vector<std::string> shapes = {};  // or what --shapes named
  // When the rest is NOT_RUN: of a testee after so many time-outs (0: never), of all after a
  // verdict that does not conform, and after so many seconds (0: never).
  int give_up_after = 5;
  bool fail_fast = false;
  double max_seconds = 0;
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
  // Asked at the end: which files of testees changed meanwhile, in words.
  std::function<std::vector<std::string>()> changes = {};
  // Where outputs are judged that are there already: their folder, and what somebody returned.
  std::string vectors = {};
  std::function<Trial(const PreparedCase&, const Testee&)> outputs = {};
  bool profiles_stages = false;  // whether the footer says where the time went
  bool explains_each = false;    // whether failures are diagnosed by themselves, too
  bool tries_again = true;  // after a time-out while the machine had other work, or without memory
  bool without_memory_later = false;  // but after the latter its caller tries again
  // What testees are asked in place of cases; without it, each case as it is.
  std::shared_ptr<const Asking> asking = {};
  std::shared_ptr<Floor> floor = std::make_shared<Floor>();  // of all who examine at a time
};

// Whether it has had its seconds. Executors are to give up their calls then.
bool time_is_up(const RunOptions& options);

// Examines every case with every testee. Verdicts are written to `out` in the order of the cases,
// then testees, however many jobs there are. Every case has exactly one verdict with every testee,
// whatever the testee does; a failure of our own becomes HARNESS_ERROR. `seen` is told of each.
// Before them comes one FAIL(beyond_caps) for each format that a testee declares so (NUM-2).
// Cases that are left untried, or given up when the time is up, are NOT_RUN; which ones may depend
// on the number of jobs, the others' verdicts do not. Stops early, without a footer, once
// `interrupted` says so.
Record run(const std::vector<Case>& cases, const std::vector<Testee>& testees, const Header& header,
           const RunOptions& options, const MakeExecutor& make_executor, std::ostream& out,
           const std::function<void(const VerdictRecord&)>& seen,
           const std::function<bool()>& interrupted);

// A case with what it takes to examine testees on it, or why that could not be had.
struct Preparation {
  std::unique_ptr<PreparedCase> prepared;
  std::string error = {};
};
Preparation prepare(const Case& test_case);

// One look at a testee: by calling it, or at its outputs if they are there.
Examination examination_of(PreparedCase& prepared, const Testee& testee, Executor& executor,
                           const RunOptions& options);

// The verdict on one testee; a failure of our own becomes HARNESS_ERROR. A time-out while the
// machine has other work is, if `tries_again`, believed if the testee, started afresh, has another
// when it is tried alone: the verdict is the second one, with the times of both. Once `gave_up`
// says so it isn't tried again, and its case is NOT_RUN.
Verdict verdict_on(PreparedCase& prepared, const Testee& testee, Executor& executor,
                   const RunOptions& options, const std::function<bool()>& gave_up = {});

// The same for a record.
VerdictRecord examine_safely(const Preparation& preparation, const Case& test_case,
                             const Testee& testee, Executor& executor, const RunOptions& options,
                             const std::function<bool()>& gave_up = {});

// A word of a command line, quoted for a shell if it has to be.
std::string quoted(const std::string& text);

// How a testee runs, as a command takes it, with a blank before each; nothing of what is usual.
std::string options_text(const RunOptions& options);

// The command that repeats a verdict, with whatever options are not the usual ones.
std::string repro_line(const Case& test_case, const Testee& testee, const RunOptions& options);

}  // namespace attest
