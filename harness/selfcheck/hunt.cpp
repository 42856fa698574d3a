#include "harness/selfcheck/hunt.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <set>
#include <sstream>

#include "harness/run/jobs.h"
#include "spec/clause.h"
#include "spec/contains.h"
#include "spec/json_reader.h"
#include "spec/pattern.h"

namespace attest {
namespace {

constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

std::size_t common(const std::vector<std::string>& list, const std::vector<std::string>& items) {
  return static_cast<std::size_t>(std::count_if(
      items.begin(), items.end(), [&](const auto& item) { return contains(list, item); }));
}

bool lists_any(const std::vector<std::string>& list, const std::vector<std::string>& items) {
  return std::any_of(items.begin(), items.end(),
                     [&](const auto& item) { return contains(list, item); });
}

const Testee& testee_of(const std::vector<Testee>& testees, const std::string& kernel) {
  for (const Testee& testee : testees) {
    if (testee.kernel == kernel || testee.kernel.ends_with("/" + kernel)) return testee;
  }
  throw InputError("", fmt::format("{} is listed, but the plug-in has no such kernel", kernel));
}

// One entry of a case file, whatever its axes are.
std::pair<std::string, int> source_of(const Case& c) { return {c.file, c.line}; }

// The largest ratio of a verdict.
double ratio_of(const Verdict& verdict) {
  double most = 0;
  for (const auto& [tensor, evidence] : verdict.tensors) {
    if (evidence.max_ratio > most) most = evidence.max_ratio;
  }
  return most;
}

bool is_said_to_show(const Mutant& mutant, const Case& c) {
  return !mutant.shown_by.empty() && matches(c.id, mutant.shown_by);
}

// Any failure, and a warning about a clause that the mutant violates.
bool shows_in(const Verdict& verdict, const Mutant& mutant) {
  return verdict.outcome == Outcome::fail ||
         (verdict.outcome == Outcome::warn && contains(mutant.clauses, verdict.clauses.front()));
}

// A mutant in a dtype, while it is hunted.
struct Quarry {
  Hunted result;
  const Mutant* mutant;
  const Testee* testee;
  // The first step that is known to catch it. Steps before that are still taken, whoever is faster.
  std::atomic<std::size_t> caught_at = kNever;
  struct Trial {
    std::size_t step;
    bool catches;
    double ratio;
  };
  std::vector<Trial> trials = {};

  Quarry(Hunted hunted, const Mutant& the_mutant, const Testee& the_testee)
      : result(std::move(hunted)), mutant(&the_mutant), testee(&the_testee) {}
};

class Hunter {
 public:
  Hunter(const std::vector<Case>& cases, const Catalogue& catalogue,
         const std::vector<Testee>& testees, const HuntOptions& options,
         const MakeExecutor& make_executor, const std::function<void(const VerdictRecord&)>& seen,
         const std::function<bool()>& interrupted)
      : cases_(cases),
        options_(options),
        make_executor_(make_executor),
        seen_(seen),
        interrupted_(interrupted) {
    for (std::size_t m = 0; m < catalogue.mutants.size(); ++m) {
      const Mutant& mutant = catalogue.mutants[m];
      const Testee& testee = testee_of(testees, mutant.name);
      const auto& dtypes = mutant.dtypes.empty() ? testee.description.dtypes : mutant.dtypes;
      for (const DType dtype : dtypes) {
        quarries_.push_back(
            std::make_unique<Quarry>(Hunted{.mutant = m, .dtype = dtype}, mutant, testee));
        of_testee_[&testee].push_back(quarries_.back().get());
      }
    }
    for (const std::string& control : catalogue.controls) {
      controls_.push_back(testee_of(testees, control));
    }
    // Cases that are said to show it come first, and those of several clauses that it violates
    // before those of a single one, which are less likely to.
    std::map<std::pair<bool, std::size_t>, std::vector<Step>, std::greater<>> rounds;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      for (const auto& quarry : quarries_) {
        if (cases[i].problem.dtype != quarry->result.dtype) continue;
        const std::size_t clauses = common(cases[i].clauses, quarry->mutant->clauses);
        if (clauses == 0 && !options.anywhere) continue;
        std::vector<Step>& round = rounds[{is_said_to_show(*quarry->mutant, cases[i]), clauses}];
        if (round.empty() || round.back().place != i) round.push_back({.place = i});
        round.back().wanted.push_back(quarry.get());
        ++quarry->result.candidates;
      }
    }
    for (auto& [likelihood, round] : rounds) {
      std::move(round.begin(), round.end(), std::back_inserter(steps_));
    }
  }

  Hunt hunt() {
    std::atomic<std::size_t> next = 0;
    ExecutorPool executors(make_executor_, options_.run.workers);
    in_parallel(options_.run.jobs, [&] {
      for (std::size_t i = next++; i < steps_.size() && !interrupted_(); i = next++) {
        take_step(i, executors);
        for (const Quarry* quarry : steps_[i].wanted) {
          if (is_done(quarry->testee, i)) executors.forget(key_of(*quarry->testee));
        }
      }
    });
    Hunt result{.our_own = std::move(our_own_), .interrupted = interrupted_()};
    for (const auto& quarry : quarries_) result.hunted.push_back(conclude(*quarry, result.catches));
    if (!result.interrupted) try_controls(result);
    std::sort(result.our_own.begin(), result.our_own.end(), [](const auto& a, const auto& b) {
      return std::tie(a.case_id, a.testee) < std::tie(b.case_id, b.testee);
    });
    return result;
  }

 private:
  // One case, and whom it is tried on.
  struct Step {
    std::size_t place;
    std::vector<Quarry*> wanted = {};
  };

  std::string key_of(const Testee& testee) const {
    return options_.share_workers ? testee.plugin : testee.name;
  }

  bool is_over(const Quarry& quarry, std::size_t i) const {
    return !options_.all && quarry.caught_at < i;
  }

  // Whether no dtype of the kernel is hunted beyond step i, so that its worker is no longer needed.
  bool is_done(const Testee* testee, std::size_t i) const {
    if (options_.share_workers) return false;
    const auto& dtypes = of_testee_.at(testee);
    return std::all_of(dtypes.begin(), dtypes.end(),
                       [&](const Quarry* quarry) { return is_over(*quarry, i); });
  }

  void take_step(std::size_t i, ExecutorPool& executors) {
    const Case& test_case = cases_[steps_[i].place];
    std::optional<Preparation> prepared;
    for (Quarry* const wanted : steps_[i].wanted) {
      Quarry& quarry = *wanted;
      if (is_over(quarry, i) || interrupted_()) continue;
      if (!prepared) prepared = prepare(test_case);
      const auto executor = executors.take(key_of(*quarry.testee), *quarry.testee);
      VerdictRecord record =
          examine_safely(*prepared, test_case, *quarry.testee, *executor, options_.run);
      if (record.verdict.outcome == Outcome::not_run) continue;  // broken off
      const bool catches = convicts(record.verdict, *quarry.mutant) ||
                           (options_.anywhere && shows_in(record.verdict, *quarry.mutant));
      const std::lock_guard lock(mutex_);
      seen_(record);
      quarry.trials.push_back({i, catches, ratio_of(record.verdict)});
      if (record.verdict.outcome == Outcome::harness_error) our_own_.push_back(record);
      if (catches && i < quarry.caught_at) {
        quarry.caught_at = i;
        quarry.result.caught = std::move(record);
      }
    }
  }

  // Without what was tried after the case that caught it, while another job was at that.
  Hunted conclude(Quarry& quarry, std::map<std::string, Index>& catches) const {
    Hunted& result = quarry.result;
    std::sort(quarry.trials.begin(), quarry.trials.end(),
              [](const auto& a, const auto& b) { return a.step < b.step; });
    for (const Quarry::Trial& trial : quarry.trials) {
      if (is_over(quarry, trial.step)) break;
      const std::string& id = cases_[steps_[trial.step].place].id;
      ++result.tried;
      if (trial.catches) {
        ++result.catching;
        ++catches[id];
      } else if (trial.ratio > result.nearest) {
        result.nearest = trial.ratio;
        result.nearest_case = id;
      }
    }
    return result;
  }

  void try_controls(Hunt& result) const {
    std::map<std::string, bool> catching;  // whether some mutant was but warned of
    for (const Hunted& hunted : result.hunted) {
      if (!hunted.caught) continue;
      catching[hunted.caught->case_id] |= hunted.caught->verdict.outcome == Outcome::warn;
    }
    std::vector<Case> cases;
    for (const Case& c : cases_) {
      if (catching.contains(c.id)) cases.push_back(c);
    }
    if (cases.empty() || controls_.empty()) return;
    std::ostringstream unread;
    const Record record =
        run(cases, controls_, {}, options_.run, make_executor_, unread, seen_, interrupted_);
    result.interrupted = interrupted_();
    // A control that does not promise what a case is about leaves it to another. In one that was
    // fitted to it something may be left that says nothing; whatever comes before is judged.
    std::set<std::string> passed;
    for (const VerdictRecord& each : record.verdicts) {
      if (conforms(each.verdict.outcome)) passed.insert(each.case_id);
    }
    for (const VerdictRecord& each : record.verdicts) {
      const Outcome outcome = each.verdict.outcome;
      const bool innocent = outcome == Outcome::pass ||
                            (outcome == Outcome::warn && !catching.at(each.case_id)) ||
                            (outcome == Outcome::unsupported && passed.contains(each.case_id)) ||
                            (outcome == Outcome::unsupported && each.verdict.reason == "limits");
      if (outcome == Outcome::harness_error) {
        result.our_own.push_back(each);
      } else if (!innocent) {
        result.accused.push_back(each);
      }
    }
  }

  const std::vector<Case>& cases_;
  const HuntOptions& options_;
  const MakeExecutor& make_executor_;
  const std::function<void(const VerdictRecord&)>& seen_;
  const std::function<bool()>& interrupted_;
  std::vector<std::unique_ptr<Quarry>> quarries_;
  std::map<const Testee*, std::vector<const Quarry*>> of_testee_;
  std::vector<Testee> controls_;
  std::vector<Step> steps_;
  std::mutex mutex_;
  std::vector<VerdictRecord> our_own_;
};

}  // namespace

bool convicts(const Verdict& verdict, const Mutant& mutant) {
  if (verdict.clauses.empty()) return false;
  const bool warned = verdict.outcome == Outcome::warn;
  if (!warned && !is_fault(verdict.outcome)) return false;
  // Right kernels are warned of too: that is enough for who breaks nothing but recommendations.
  if (warned && !std::all_of(mutant.clauses.begin(), mutant.clauses.end(), is_recommended)) {
    return false;
  }
  // On a busy machine anything may take long.
  if (verdict.outcome == Outcome::timeout) return contains(mutant.clauses, "SAFE-4");
  // What computes wrongly and crashes besides is no mutant of its clauses.
  if (verdict.outcome == Outcome::crash) return lists_any(mutant.clauses, {"SAFE-1", "SAFE-4"});
  const bool of_a_promise = verdict.reason == "schedule" || verdict.reason == "memory";
  return warned || of_a_promise ? contains(mutant.clauses, verdict.clauses.front())
                                : lists_any(verdict.clauses, mutant.clauses);
}

double cost_of(const Case& c) {
  // What any call takes is added.
  constexpr double kOfACall = 5e5;
  const Problem& p = c.problem;
  const auto product = [](std::initializer_list<Index> sizes) {
    double result = 1;
    for (const Index size : sizes) result *= static_cast<double>(size);
    return result;
  };
  const double passes = p.backward ? 4 : 1, repeats = c.check == Check::none ? 1 : 4;
  return kOfACall +
         passes * repeats *
             product({p.batch, p.query_heads, p.query_len, p.key_len, p.head_dim + p.value_dim});
}

std::vector<Case> by_worth(std::vector<Case> cases) {
  std::stable_sort(cases.begin(), cases.end(),
                   [](const Case& a, const Case& b) { return cost_of(a) < cost_of(b); });
  std::map<std::pair<std::pair<std::string, int>, DType>, double> met;
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const double times = ++met[{source_of(cases[i]), cases[i].problem.dtype}];
    // What is about little else tells better whose the fault is.
    order.emplace_back(cost_of(cases[i]) * times * static_cast<double>(cases[i].clauses.size()), i);
  }
  std::sort(order.begin(), order.end());
  std::vector<Case> result;
  for (const auto& [worth, i] : order) result.push_back(std::move(cases[i]));
  return result;
}

Hunt hunt(const std::vector<Case>& cases, const Catalogue& catalogue,
          const std::vector<Testee>& testees, const HuntOptions& options,
          const MakeExecutor& make_executor, const std::function<void(const VerdictRecord&)>& seen,
          const std::function<bool()>& interrupted) {
  return Hunter(cases, catalogue, testees, options, make_executor, seen, interrupted).hunt();
}

}  // namespace attest
