// The gate: whether a kernel that nobody trusts is right, and how fast. It is asked cases of the
// suite, random problems and timed problems in turn, in one worker, with numbers of a seed that it
// cannot know; each call is judged, and its outputs hold poison or stale numbers before it.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cases/case.h"
#include "cases/entry.h"
#include "harness/gate/interval.h"
#include "harness/gate/timed.h"
#include "harness/process/pool.h"
#include "harness/run/run.h"

namespace attest {

// What is asked.
struct GateTasks {
  std::vector<Case> cases;  // in the order in which they are asked; their numbers are of the seed
  const std::vector<CaseWithEntry>& suite;  // of which random problems are made
  std::vector<TimedProblem> timed = {};
};

struct GateOptions {
  std::uint64_t seed = 1;
  double seconds = 60;                  // after which no further step is begun
  std::uint64_t steps = 0, rounds = 0;  // exactly so many; both 0: as the time allows
  bool takes_declared = false;          // arithmetic beyond the default column is taken as declared
  RunOptions run = {};
};

// A failure, made small.
struct Counterexample {
  std::string found_by;      // "case", "random problem", "timed call"
  nlohmann::json entry;      // as which `attest repro --from` repeats it
  std::string problem = {};  // in a line
  Verdict verdict;           // of the small one
  std::string meant = {};    // "did you mean", in a line, if that can be told
  bool seen_again = true;    // when it was tried alone
};

// Of one pass of a timed problem, warm-up left out.
struct Speed {
  std::string problem;
  std::string shape;  // the problem in a line
  std::string pass;   // "forward", "backward"
  std::size_t calls = 0;
  Interval seconds = {};
  std::optional<Interval> baseline = {};  // seconds
  std::optional<Interval> ratio = {};     // of the baseline's time to the testee's, call by call
  std::vector<double> ratios = {};        // of each call, in their order
  bool by_events = false;                 // on a device, as the kernel's process says
  double least = 0;                       // in which no machine computes it
  std::optional<BytesTaken> memory = {};  // beyond the tensors, at the least of the calls measured
};

// Of all that have a ratio: the geometric mean over them, call by call; nothing if none has.
std::optional<Interval> mean_ratio(const std::vector<Speed>& speeds);

struct GateResult {
  std::uint64_t steps = 0;                   // of cases and random problems
  std::uint64_t rounds = 0;                  // of timed problems
  Index cases = 0, problems = 0, calls = 0;  // that were judged
  Index most_queries = 0, most_keys = 0;     // of one of them
  std::map<std::string, Index> outcomes = {};
  std::vector<Counterexample> counterexamples = {};  // at most three, named ones first
  Index faults = 0;                                  // in all
  std::vector<Speed> speeds = {};
  std::vector<std::string> baseline_faults = {};     // in words: its times mean nothing
  std::vector<std::string> not_believed = {};        // times, in words
  std::vector<std::string> untold = {};              // timed problems whose results tell nothing
  std::vector<std::string> declared_too_loose = {};  // formats, and what of their arithmetic
  std::vector<std::string> long_rows = {};           // timed problems whose keys are many
  std::vector<std::string> threads_untold = {};      // whose calls are too short to count them

  bool conforms() const {
    return faults == 0 && not_believed.empty() && declared_too_loose.empty();
  }
  bool whole = false;  // a step and a round came to their end, and no error of our own
};

// The bound of a row of n keys allows sums in any order, which grows as n; what rounding each key's
// share costs in the mean falls as the root of n. From so many keys on that may pass: of operands
// in TF32 in place of f32, and of what formats that round anyhow have instead.
constexpr Index long_row(DType dtype) {
  return format_of(dtype).bytes < format_of(DType::f32).bytes ? 2048 : 384;
}

// What events on a device leave out of a call, beyond what they leave out of the baseline's, is
// seen from so many seconds on: of starting and stopping workers of other libraries some differ.
constexpr double kLeftOutUnseen = 5e-3;

// Goes on until the time is up, `interrupted` says so, or, from the first fault on, a few steps
// more; if they are counted, until all are done. `make_executor` starts further workers, in which
// failures are made small.
GateResult pass_gate(const GateTasks& tasks, const Contender& testee, const Contender* baseline,
                     const GateOptions& options, const MakeExecutor& make_executor,
                     const std::function<bool()>& interrupted);

}  // namespace attest
