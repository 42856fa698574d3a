#include "harness/instances/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "harness/fuzz/dice.h"
#include "harness/fuzz/draws.h"
#include "harness/run/asking.h"
#include "harness/run/jobs.h"
#include "harness/selfcheck/hunt.h"
#include "spec/contains.h"
#include "spec/json_text.h"

namespace attest::instances {
namespace {

constexpr std::size_t kTrials = 120;  // random problems that tell whether a fault is broad
constexpr int kLeast = 3;             // of which it fails at least so many, of either pass
constexpr double kMostCostOfTrial = 4e6;
constexpr std::size_t kMostCases = 400, kMostRandom = 100, kMostDrawn = 60;
constexpr std::uint64_t kMostDraws = 400;  // for an instance
constexpr double kMostCost = 2e8;

// Of what it computes, and not of how it behaves: the same in an instance.
bool is_of_values(const Mutant& mutant) {
  static const std::vector<std::string> kOthers = {
      "batch-invariance", "cache",       "determinism", "device", "manners", "memory",   "race",
      "schedule",         "stale-index", "threads",     "uaf",    "uninit",  "unwritten"};
  return !contains(kOthers, mutant.defect_class);
}

// A mutant, and what is known of its fault once it was looked at.
struct Candidate {
  const Mutant* mutant;
  const Testee* testee;
  std::optional<bool> is_broad = {};
  bool backward = false;  // of the backward pass alone
};

const Testee* testee_of(const std::vector<Testee>& testees, const std::string& kernel) {
  for (const Testee& each : testees) {
    if (each.kernel == kernel || each.kernel.ends_with("/" + kernel)) return &each;
  }
  return nullptr;
}

class Sweeper {
 public:
  Sweeper(const std::vector<Case>& cases, const std::vector<CaseWithEntry>& suite,
          const std::vector<DispatchTable>& dispatches, const Catalogue& catalogue,
          const std::vector<Testee>& testees, const SweepOptions& options,
          const MakeExecutor& make_executor, const std::function<void()>& tried,
          const std::function<bool()>& interrupted)
      : cases_(by_worth(cases)),
        suite_(suite),
        dispatches_(dispatches),
        catalogue_(catalogue),
        testees_(testees),
        options_(options),
        make_executor_(make_executor),
        tried_(tried),
        interrupted_(interrupted) {}

  Sweep sweep() {
    for (const Mutant& mutant : catalogue_.mutants) {
      const Testee* const testee = testee_of(testees_, mutant.name);
      if (testee && is_of_values(mutant)) candidates_.push_back({&mutant, testee});
    }
    if (candidates_.empty()) return {};
    const Description& whole = candidates_.front().testee->description;
    draw_trials(whole);
    if (options_.declared.empty()) draw_problems(whole);
    if (options_.mutants > candidates_.size()) {  // most will be drawn
      each_in_parallel(candidates_.size(), [&](std::size_t n) { look_at(candidates_[n]); });
    }
    for (std::size_t n = 0; n < options_.mutants && !interrupted_(); ++n) {
      if (auto drawn = draw(n)) drawn_.push_back(*std::move(drawn));
    }
    if (!options_.declared.empty()) declare_all(whole);
    Sweep result;
    each_in_parallel(drawn_.size(), [&](std::size_t n) {
      hunt(drawn_[n]);
      const std::lock_guard lock(mutex_);
      tried_();
    });
    for (Draw& each : drawn_) result.swept.push_back(std::move(each.swept));
    result.interrupted = interrupted_();
    return result;
  }

 private:
  struct Trial {
    Case test_case;
    Preparation prepared;
  };
  struct Draw {
    Swept swept;
    const Candidate* of;
    Description declared;
    std::size_t number;
  };

  // Of a kernel that declares a dispatch: what it is asked, and the problems of a search on it.
  struct Declared {
    Description description;
    std::vector<Case> asked = {};
    std::optional<Draws> search = {};
  };

  template <class Work>
  void each_in_parallel(std::size_t count, const Work& work) {
    std::atomic<std::size_t> next = 0;
    in_parallel(options_.run.jobs, [&] {
      for (std::size_t n = next++; n < count && !interrupted_(); n = next++) work(n);
    });
  }

  bool fails(const Preparation& prepared, const Case& test_case, const Testee& testee,
             Executor& executor) const {
    return is_fault(
        examine_safely(prepared, test_case, testee, executor, options_.run).verdict.outcome);
  }

  // Random problems that tell whether a fault is broad, cheap ones.
  void draw_trials(const Description& whole) {
    const Draws draws({.testee = whole, .dtypes = whole.dtypes}, suite_, options_.seed);
    std::vector<std::optional<Trial>> drawn(kTrials);
    each_in_parallel(kTrials, [&](std::size_t number) {
      Case c = draws.draw(number).prepared.test_case();
      if (cost_of(c) > kMostCostOfTrial) return;
      Preparation prepared = prepare(c);
      drawn[number].emplace(Trial{std::move(c), std::move(prepared)});
    });
    for (auto& each : drawn) {
      if (each) trials_.push_back(*std::move(each));
    }
  }

  // Whether a fault shows in many of them, with or without a backward pass. Some keep state: so
  // each is tried in a process of its own, in this order.
  void look_at(Candidate& candidate) const {
    int forward = 0, backward = 0;
    const auto executor = make_executor_(*candidate.testee);
    for (const auto& [test_case, prepared] : trials_) {
      if (!fails(prepared, test_case, *candidate.testee, *executor)) continue;
      ++(test_case.problem.backward ? backward : forward);
    }
    candidate.is_broad = std::max(forward, backward) >= kLeast;
    candidate.backward = forward == 0;
  }

  // The problems of a search on the whole kernel, without their numbers.
  void draw_problems(const Description& whole) {
    search_.emplace(Scope{.testee = whole, .dtypes = whole.dtypes}, suite_, options_.seed);
    problems_.resize(options_.problems);
    each_in_parallel(problems_.size(),
                     [&](std::size_t n) { problems_[n] = search_->draw(n).prepared.problem(); });
  }

  void declare_all(const Description& whole) {
    std::vector<Declared*> all;
    for (const Draw& each : drawn_) {
      const DispatchTable* const table = each.swept.instance.dispatch;
      const auto [place, is_new] = declared_.try_emplace(table, Declared{.description = whole});
      if (!is_new) continue;
      place->second.description.dispatch = {*table};
      all.push_back(&place->second);
    }
    each_in_parallel(all.size(), [&](std::size_t n) {
      Testee testee = testees_.front();
      testee.description = all[n]->description;
      all[n]->asked =
          by_worth(Asking(cases_, {testee}, options_.declared).asked(testee.name, cases_));
      all[n]->search.emplace(
          Scope{.testee = all[n]->description, .dtypes = all[n]->description.dtypes}, suite_,
          options_.seed);
    });
  }

  std::optional<Draw> draw(std::size_t number) {
    constexpr int kTries = 200;
    Dice dice(fmt::format("instances/{}/{}", options_.seed, number));
    const auto last = [](std::size_t count) { return static_cast<Index>(count) - 1; };
    for (int n = 0; n < kTries && !interrupted_(); ++n) {
      const DispatchTable& dispatch =
          dispatches_[static_cast<std::size_t>(dice.within(0, last(dispatches_.size())))];
      Instance instance = {.dispatch = &dispatch, .classes = {}};
      for (const DispatchPoint& point : dispatch.points) {
        instance.classes.push_back(static_cast<std::size_t>(dice.within(0, last(point.classes()))));
      }
      Candidate& candidate =
          candidates_[static_cast<std::size_t>(dice.within(0, last(candidates_.size())))];
      auto declared =
          declared_of(instance.classes, *instance.dispatch, candidate.testee->description);
      const auto& dtypes = candidate.mutant->dtypes;
      if (!declared ||
          (!dtypes.empty() && std::none_of(declared->dtypes.begin(), declared->dtypes.end(),
                                           [&](DType dtype) { return contains(dtypes, dtype); }))) {
        continue;
      }
      if (!candidate.is_broad) look_at(candidate);
      if (!*candidate.is_broad || candidate.backward != dispatch.backward) continue;
      Swept swept = {.instance = std::move(instance), .mutant = candidate.mutant->name};
      return Draw{std::move(swept), &candidate, *std::move(declared), number};
    }
    return std::nullopt;
  }

  void hunt(Draw& draw) const {
    Swept& swept = draw.swept;
    const auto executor = make_executor_(*draw.of->testee);
    const auto catches = [&](const Case& c) {
      return fails(prepare(c), c, *draw.of->testee, *executor);
    };
    const auto note = [&](Seen seen, const Case& c) {
      swept.seen = seen;
      swept.where = c.id;
    };
    std::vector<const Case*> inside;
    const auto declared = declared_.find(swept.instance.dispatch);
    for (const Case& c : declared == declared_.end() ? cases_ : declared->second.asked) {
      if (swept.instance.has(c.problem)) inside.push_back(&c);
    }
    swept.cases = inside.size();
    std::stable_partition(inside.begin(), inside.end(), [&](const Case* c) {
      return std::any_of(c->clauses.begin(), c->clauses.end(), [&](const std::string& clause) {
        return contains(draw.of->mutant->clauses, clause);
      });
    });
    inside.resize(std::min(inside.size(), kMostCases));
    for (const Case* c : inside) {
      if (interrupted_()) return;
      if (catches(*c)) return note(Seen::by_a_case, *c);
    }
    const Draws& search = declared == declared_.end() ? *search_ : *declared->second.search;
    std::size_t random = 0;
    for (std::size_t n = 0; n < options_.problems && random < kMostRandom; ++n) {
      if (interrupted_()) return;
      if (declared == declared_.end()) {
        if (!swept.instance.has(problems_[n])) continue;
      } else {  // those alone that are drawn for it
        const Aim* const aim = search.aim_of(n);
        if (!aim || aim->instance != swept.instance.classes) continue;
      }
      const Case c = search.draw(n).prepared.test_case();
      if (!swept.instance.has(c.problem)) continue;
      ++random;
      if (catches(c)) return note(Seen::by_a_random_problem, c);
    }
    const Draws draws({.testee = draw.declared, .dtypes = draw.declared.dtypes}, suite_,
                      options_.seed + draw.number);
    std::size_t of_instance = 0;
    for (std::uint64_t n = 0; n < kMostDraws && of_instance < kMostDrawn; ++n) {
      if (interrupted_()) return;
      const Case c = draws.draw(n).prepared.test_case();
      if (!swept.instance.has(c.problem) || cost_of(c) > kMostCost) continue;
      ++of_instance;
      if (catches(c)) return note(Seen::by_a_drawn_one, c);
    }
  }

  const std::vector<Case> cases_;
  const std::vector<CaseWithEntry>& suite_;
  const std::vector<DispatchTable>& dispatches_;
  const Catalogue& catalogue_;
  const std::vector<Testee>& testees_;
  const SweepOptions& options_;
  const MakeExecutor& make_executor_;
  const std::function<void()>& tried_;
  const std::function<bool()>& interrupted_;
  std::vector<Candidate> candidates_ = {};
  std::vector<Trial> trials_ = {};
  std::optional<Draws> search_ = {};
  std::vector<Problem> problems_ = {};
  std::vector<Draw> drawn_ = {};
  std::map<const DispatchTable*, Declared> declared_ = {};
  std::mutex mutex_ = {};
};

template <class Counts>
Rate rate_of(const Sweep& sweep, Seen last, const Counts& counts) {
  Rate rate;
  for (const Swept& each : sweep.swept) {
    if (each.seen == Seen::by_nothing || !counts(*each.instance.dispatch)) continue;
    ++rate.of;
    rate.seen += each.seen <= last;
  }
  return rate;
}

bool is_held_out(const DispatchTable& dispatch) { return dispatch.held_out; }

// Of those that were held out, if any were.
Rate asked_of(const Sweep& sweep, Seen last) {
  const bool any = std::any_of(sweep.swept.begin(), sweep.swept.end(), [](const Swept& each) {
    return is_held_out(*each.instance.dispatch);
  });
  return rate_of(sweep, last,
                 [&](const DispatchTable& dispatch) { return !any || is_held_out(dispatch); });
}

// The ends of Wilson's interval.
double end_of(const Rate& rate, double side) {
  if (rate.of == 0) return side < 0 ? 0 : 1;
  const double z = 1.959964, n = static_cast<double>(rate.of),
               p = static_cast<double>(rate.seen) / n;
  const double root = z * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n));
  return (p + z * z / (2 * n) + side * root) / (1 + z * z / n);
}

std::string text_of(const Rate& rate) {
  if (rate.of == 0) return "-";
  return fmt::format("{} of {}, {:.1f} % ({:.1f} to {:.1f})", rate.seen, rate.of,
                     100 * static_cast<double>(rate.seen) / static_cast<double>(rate.of),
                     100 * rate.low(), 100 * rate.high());
}

const char* name(Seen seen) {
  switch (seen) {
    case Seen::by_a_case:
      return "a case";
    case Seen::by_a_random_problem:
      return "a random problem";
    case Seen::by_a_drawn_one:
      return "a problem drawn for the instance";
    case Seen::by_nothing:
      break;
  }
  return "nothing";
}

}  // namespace

double Rate::low() const { return end_of(*this, -1); }
double Rate::high() const { return end_of(*this, 1); }

Rate by_cases(const Sweep& sweep) { return asked_of(sweep, Seen::by_a_case); }
Rate by_random_problems_too(const Sweep& sweep) {
  return asked_of(sweep, Seen::by_a_random_problem);
}

Sweep sweep(const std::vector<Case>& cases, const std::vector<CaseWithEntry>& suite,
            const std::vector<DispatchTable>& dispatches, const Catalogue& catalogue,
            const std::vector<Testee>& testees, const SweepOptions& options,
            const MakeExecutor& make_executor, const std::function<void()>& tried,
            const std::function<bool()>& interrupted) {
  return Sweeper(cases, suite, dispatches, catalogue, testees, options, make_executor, tried,
                 interrupted)
      .sweep();
}

std::string to_text(const Sweep& sweep) {
  std::string text =
      fmt::format("{:<28} {:<34} {}\n", "dispatch table", "seen by cases", "or by random problems");
  std::vector<const DispatchTable*> tables;
  for (const Swept& each : sweep.swept) {
    if (!contains(tables, each.instance.dispatch)) tables.push_back(each.instance.dispatch);
  }
  std::sort(tables.begin(), tables.end(),
            [](const auto* a, const auto* b) { return a->name < b->name; });
  const auto line = [&](const std::string& name, const auto& counts) {
    text +=
        fmt::format("{:<28} {:<34} {}\n", name, text_of(rate_of(sweep, Seen::by_a_case, counts)),
                    text_of(rate_of(sweep, Seen::by_a_random_problem, counts)));
  };
  for (const DispatchTable* each : tables) {
    line(each->name, [&](const DispatchTable& dispatch) { return &dispatch == each; });
  }
  line("cases were made with",
       [](const DispatchTable& dispatch) { return !is_held_out(dispatch); });
  line("held out", is_held_out);
  std::map<std::string, std::vector<const Swept*>> slipped;
  std::set<std::string> made_of;
  std::size_t hidden = 0;
  for (const Swept& each : sweep.swept) {
    made_of.insert(each.mutant);
    hidden += each.seen == Seen::by_nothing;
    if (each.seen == Seen::by_a_random_problem || each.seen == Seen::by_a_drawn_one) {
      slipped[each.mutant].push_back(&each);
    }
  }
  text += fmt::format(
      "\nOf {} mutants that are wrong in one instance, made of {} others, {} show in "
      "no problem of their instance that was tried.\n",
      sweep.swept.size(), made_of.size(), hidden);
  for (const auto& [mutant, all] : slipped) {
    for (const Swept* each : all) {
      text += fmt::format("{} in {}: not seen by {} cases, seen by {}\n", mutant,
                          each->instance.text(), each->cases, name(each->seen));
    }
  }
  return text;
}

std::string to_json(const Sweep& sweep) {
  nlohmann::json all = nlohmann::json::array();
  for (const Swept& each : sweep.swept) {
    all.push_back({{"mutant", each.mutant},
                   {"table", each.instance.dispatch->name},
                   {"instance", each.instance.text()},
                   {"cases", each.cases},
                   {"seen_by", name(each.seen)},
                   {"where", each.where}});
  }
  const auto rate = [](const Rate& r) {
    return nlohmann::json{{"seen", r.seen}, {"of", r.of}, {"low", r.low()}, {"high", r.high()}};
  };
  return json_text({{"by_cases", rate(by_cases(sweep))},
                    {"by_random_problems_too", rate(by_random_problems_too(sweep))},
                    {"mutants", all}},
                   1) +
         "\n";
}

}  // namespace attest::instances
