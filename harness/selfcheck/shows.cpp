#include "harness/selfcheck/shows.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <optional>
#include <set>

#include "harness/judge/prepared.h"
#include "harness/judge/trial.h"
#include "harness/run/jobs.h"
#include "spec/contains.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

constexpr std::size_t kTurns = 8;  // in one of so many steps it is asked whether it takes it, too

// What became of a problem.
struct Behaviour {
  std::optional<Finding> refusal = {};
  Trial trial = {};
};

bool same(const std::optional<Finding>& a, const std::optional<Finding>& b) {
  return a.has_value() == b.has_value() &&
         (!a || (a->outcome == b->outcome && a->reason == b->reason));
}

// What a problem demands of its results, by the arithmetic that a control declares.
class Demanded {
 public:
  Demanded(PreparedCase& prepared, const Description& control)
      : prepared_(prepared), arithmetic_(control.arithmetic.at(prepared.problem().dtype)) {}

  // Of an element of a tensor, anything at all: elsewhere a fault is none.
  bool something(TensorName tensor, std::size_t element) const {
    const Expected& expected = expected_of(tensor, prepared_, arithmetic_);
    return !std::isnan(expected.value[element]) && std::isfinite(expected.bound[element]);
  }

 private:
  PreparedCase& prepared_;
  const Arithmetic& arithmetic_;
};

// Whatever it is where the control is NaN: nothing says what it should be there.
bool same(const Returned& mutant, const Returned& control, const Demanded& demanded) {
  if (mutant.name != control.name || mutant.bits.size() != control.bits.size()) return false;
  for (std::size_t i = 0; i < mutant.bits.size(); ++i) {
    const bool alike =
        mutant.bits[i] == control.bits[i] || std::isnan(decode(control.dtype, control.bits[i]));
    if (!alike && demanded.something(control.name, i)) return false;
  }
  return true;
}

bool same(const Trial& a, const Trial& b, const Demanded& demanded) {
  const bool bits =
      std::equal(a.returned.begin(), a.returned.end(), b.returned.begin(), b.returned.end(),
                 [&](const Returned& x, const Returned& y) { return same(x, y, demanded); });
  const bool keeps =
      a.keep.has_value() == b.keep.has_value() && (!a.keep || a.keep->kept == b.keep->kept);
  return same(a.stopped, b.stopped) && bits && keeps;
}

class Watch {
 public:
  Watch(const std::vector<Case>& random, const std::vector<Case>& asked, const Catalogue& catalogue,
        const std::vector<Testee>& testees, const RunOptions& options,
        const MakeExecutor& make_executor, const std::function<bool()>& interrupted)
      : catalogue_(catalogue),
        testees_(testees),
        options_(options),
        make_executor_(make_executor),
        interrupted_(interrupted) {
    for (const Case& c : random) steps_.push_back(step_of(c, true));
    for (const Case& c : asked) steps_.push_back(step_of(c, false));
  }

  Shows watch() {
    std::atomic<std::size_t> next = 0;
    ExecutorPool executors(make_executor_, options_.workers);
    in_parallel(options_.jobs, [&] {
      for (std::size_t i = next++; i < steps_.size() && !interrupted_(); i = next++) {
        take(i, executors);
      }
    });
    Shows shows;
    for (const auto& [key, step] : first_) shows[key] = steps_[step].problem->id;
    return shows;
  }

 private:
  struct Step {
    const Case* problem;
    std::vector<std::size_t> wanted = {};  // mutants
  };

  Step step_of(const Case& c, bool everybody) const {
    Step step{.problem = &c};
    for (std::size_t m = 0; m < catalogue_.mutants.size(); ++m) {
      const Mutant& mutant = catalogue_.mutants[m];
      const bool of_format = mutant.dtypes.empty() || contains(mutant.dtypes, c.problem.dtype);
      const bool violates =
          everybody || std::any_of(c.clauses.begin(), c.clauses.end(), [&](const auto& clause) {
            return contains(mutant.clauses, clause);
          });
      if (of_format && violates) step.wanted.push_back(m);
    }
    return step;
  }

  const Testee& testee_of(const std::string& kernel) const {
    const auto found = std::find_if(testees_.begin(), testees_.end(),
                                    [&](const Testee& each) { return each.kernel == kernel; });
    if (found == testees_.end()) throw InputError("", kernel + " is no kernel of the plug-in");
    return *found;
  }

  bool may_ask(const std::string& kernel, const Case& c) const {
    return !exclusion(c.problem, testee_of(kernel).description);
  }

  bool has_shown(std::size_t mutant, DType dtype, std::size_t step) {
    const std::lock_guard lock(mutex_);
    const auto place = first_.find({mutant, dtype});
    return place != first_.end() && place->second < step;
  }

  Behaviour behaviour_of(const std::string& kernel, const PreparedCase& prepared, std::size_t step,
                         Executor& executor) const {
    const Testee& testee = testee_of(kernel);
    std::string captured;
    const bool odd = step % 2 == 1;
    const Calling calling{.testee = testee.description,
                          .kernel = testee.kernel,
                          .executor = executor,
                          .threads = odd ? 3 : 1,
                          .captured = captured};
    Behaviour behaviour;
    if (step % kTurns == 0) behaviour.refusal = ask(calling, prepared.problem());
    if (!behaviour.refusal) {
      behaviour.trial = try_out(calling, prepared.problem(), prepared.inputs(),
                                odd ? Placement::start_flush : Placement::end_flush);
    }
    // What it did to its process is not to be the next one's.
    if (behaviour.refusal || behaviour.trial.stopped) executor.renew();
    return behaviour;
  }

  void take(std::size_t i, ExecutorPool& executors) {
    const auto& [problem, wanted] = steps_[i];
    const DType dtype = problem->problem.dtype;
    std::optional<PreparedCase> prepared;
    std::map<std::string, Behaviour> of_control;
    for (const std::size_t m : wanted) {
      if (has_shown(m, dtype, i) || interrupted_()) continue;
      if (!prepared) prepared.emplace(*problem, 1);
      const Mutant& mutant = catalogue_.mutants[m];
      // One that declares a dialect of its own can't be told everything that its host can.
      if (!may_ask(mutant.name, *problem) || !may_ask(mutant.control, *problem)) continue;
      const auto executor = executors.take("", testee_of(mutant.control));
      const Demanded demanded(*prepared, testee_of(mutant.control).description);
      auto control = of_control.find(mutant.control);
      if (control == of_control.end()) {
        control =
            of_control
                .emplace(mutant.control, behaviour_of(mutant.control, *prepared, i, *executor))
                .first;
      }
      const auto like_its_control = [&] {
        const Behaviour behaviour = behaviour_of(mutant.name, *prepared, i, *executor);
        return same(behaviour.refusal, control->second.refusal) &&
               same(behaviour.trial, control->second.trial, demanded);
      };
      if (like_its_control()) continue;
      // On a busy machine anything may take too long, once.
      control->second = behaviour_of(mutant.control, *prepared, i, *executor);
      if (like_its_control()) continue;
      const std::lock_guard lock(mutex_);
      const auto [place, is_first] = first_.emplace(std::pair(m, dtype), i);
      if (!is_first) place->second = std::min(place->second, i);
    }
  }

  const Catalogue& catalogue_;
  const std::vector<Testee>& testees_;
  const RunOptions& options_;
  const MakeExecutor& make_executor_;
  const std::function<bool()>& interrupted_;
  std::vector<Step> steps_;
  std::mutex mutex_;  // of `first_`
  std::map<std::pair<std::size_t, DType>, std::size_t> first_;
};

}  // namespace

Shows where_faults_show(const std::vector<Case>& random, const std::vector<Case>& asked,
                        const Catalogue& catalogue, const std::vector<Testee>& testees,
                        const RunOptions& options, const MakeExecutor& make_executor,
                        const std::function<bool()>& interrupted) {
  return Watch(random, asked, catalogue, testees, options, make_executor, interrupted).watch();
}

}  // namespace attest
