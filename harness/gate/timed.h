// Timed calls, each of which is judged: with other numbers at the same addresses every time, of
// another class, and of large results another part that is compared. What was not computed in the
// call is not right.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cases/entry.h"
#include "harness/gate/two_workers.h"
#include "harness/judge/trial.h"
#include "harness/process/testee.h"
#include "spec/verdict.h"

namespace attest {

// A problem whose calls are timed, of one format.
struct TimedProblem {
  std::string name;               // "prefill bf16"
  nlohmann::json entry;           // but for its name, its class of inputs and its bits
  std::vector<std::string> data;  // classes of inputs that it may have
  // Classes of inputs whose calls are judged alone: who knows them by their looks could be faster.
  std::vector<std::string> untimed = {};
};

// A forward pass of many rows, a causal one, one of few rows on many keys, and a backward pass, as
// far as the testee's declaration has them, fitted to its limits; of at most two formats, and of
// lengths and numbers of heads that the seed draws.
std::vector<TimedProblem> usual_problems(const Description& testee, std::uint64_t seed);

// Those of shapes that the testee's declaration has; why not, of the others, is added to `notes`.
std::vector<TimedProblem> problems_of(const std::vector<CaseWithEntry>& shapes,
                                      const Description& testee, std::vector<std::string>& notes);

// One of those whose calls are compared.
struct Contender {
  const Testee& testee;
  Executor& executor;             // whose replies say how long they took
  TwoWorkers* workers = nullptr;  // if that is what it is
  int threads = 1;
  // Whether it has a device open, a GPU: then its own word for how long its work took there is
  // taken. It may open it as late as in its first call.
  std::function<bool()> on_device = [] { return false; };
};

// Of one pass, seconds.
struct PassTime {
  double clock = 0;                      // from outside, all that copies to a device take included
  std::optional<double> on_device = {};  // between events in its stream, as the testee says
  std::optional<double> computed = {};   // that all its threads had of processors, if that is known
};

// A call of each pass that was judged.
struct TimedCall {
  Verdict verdict;
  std::optional<PassTime> forward = {}, backward = {};  // none of what did not come to its end
  // If it was measured: on how many threads the passes computed that are long enough to tell, and
  // the memory that each took.
  std::vector<double> threads = {};
  std::optional<BytesTaken> forward_bytes = {}, backward_bytes = {};
};

// The problem with the numbers of one round. Throws InputError if it has none.
nlohmann::json entry_of_round(const TimedProblem& problem, std::uint64_t seed, std::uint64_t round);

// Calls both on it, or the testee alone. Measuring threads and memory takes time of the machine
// that is timed.
struct Round {
  TimedCall testee;
  std::optional<TimedCall> baseline = {};
};
// A call that is not `told`, of which no time is taken, may have results for which zeros would
// pass.
Round try_round(const nlohmann::json& entry, const Contender& testee, const Contender* baseline,
                bool baseline_first, bool measures, bool told = true);

// In less than that no machine of today computes it: by what its arithmetic units can do at most,
// where each row sees all keys or those up to a diagonal; else 0. Of what runs on a device, that is
// the fastest device there is.
double least_seconds(const Problem& problem, bool backward, bool on_device);

}  // namespace attest
