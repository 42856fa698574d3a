#include "harness/gate/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "harness/diagnosis/culprit.h"
#include "harness/diagnosis/likeness.h"
#include "harness/diagnosis/looser.h"
#include "harness/diagnosis/retrial.h"
#include "harness/fuzz/draws.h"
#include "harness/fuzz/fuzz.h"
#include "harness/gate/stale.h"
#include "harness/gate/thread_count.h"
#include "harness/gate/too_loose.h"
#include "harness/run/jobs.h"
#include "reports/groups.h"
#include "spec/contains.h"

namespace attest {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A step: so much of each, by several hands. A round: a call of each timed problem, by one alone.
constexpr std::size_t kCasesAStep = 60, kProblemsAStep = 30;
constexpr std::uint64_t kStepsAfterAFault = 2;
constexpr int kInARow = 16;  // each of which is called twice
// In one of so many rounds memory is measured, and time is not.
constexpr std::uint64_t kRoundsAMeasured = 16;
constexpr std::size_t kMostCounterexamples = 3;
constexpr std::array<const char*, 2> kPasses = {"forward", "backward"};

// What was judged, by whom found; the faults are kept.
struct Judged {
  std::string found_by;
  nlohmann::json entry;
  Verdict verdict;
};

void keep_less(std::optional<BytesTaken>& kept, const std::optional<BytesTaken>& more) {
  if (more && (!kept || more->most < kept->most)) kept = more;
}

class Gate {
 public:
  Gate(const GateTasks& tasks, const Contender& testee, const Contender* baseline,
       const GateOptions& options, const MakeExecutor& make_executor,
       const std::function<bool()>& interrupted)
      : tasks_(tasks),
        testee_(testee),
        baseline_(baseline),
        options_(options),
        make_executor_(make_executor),
        interrupted_(interrupted),
        dtypes_(testee.testee.description.dtypes),
        hidden_(fmt::format("gate/{}/", options.seed)),
        draws_({testee.testee.description, dtypes_}, tasks.suite, options.seed),
        times_(tasks.timed.size()),
        threads_(testee.threads),
        meet_(options.run.jobs) {}

  GateResult pass() {
    // A worker ends with the thread that started it: each hand keeps its own throughout.
    const auto first = std::this_thread::get_id();
    in_parallel(options_.run.jobs, [&] {
      if (std::this_thread::get_id() == first) {
        lead();
        return;
      }
      std::unique_ptr<Executor> worker;
      std::optional<Stale> stale;
      unless_it_throws([&] {
        worker = make_executor_(testee_.testee);
        stale.emplace(*worker, options_.seed);
      });
      for (meet_.arrive_and_wait(); goes_on_; meet_.arrive_and_wait()) {
        if (stale) judge_tasks(*stale);
        meet_.arrive_and_wait();
      }
    });
    if (ours_) std::rethrow_exception(ours_);
    for (std::size_t n = 0; n < tasks_.timed.size(); ++n) {
      compare_left_out(n);
      add_untold(n);
      const auto& problem = times_[n].problem;
      if (problem && problem->key_len >= long_row(problem->dtype)) {
        result_.long_rows.push_back(tasks_.timed[n].name);
      }
    }
    for (std::string& each : threads_.not_believed()) {
      result_.not_believed.push_back(std::move(each));
    }
    result_.threads_untold = threads_.too_short();
    result_.declared_too_loose = too_loose(testee_.testee.description, options_.takes_declared);
    result_.faults = std::ssize(faults_);
    if (result_.conforms()) {
      for (std::size_t n = 0; n < tasks_.timed.size(); ++n) add_speeds(n);
    }
    add_counterexamples();
    result_.whole = whole_step_ && (whole_round_ || tasks_.timed.empty()) && !interrupted_() &&
                    !lacks_ && result_.outcomes.contains("PASS") &&
                    !result_.outcomes.contains(std::string(name(Outcome::harness_error)));
    return std::move(result_);
  }

 private:
  // Of one timed problem, by pass: the seconds of calls that came in pairs, and the least memory.
  struct Times {
    std::optional<Problem> problem = {};
    std::string tells_nothing = {};  // why a call did not
    std::array<std::vector<double>, 2> testee = {}, baseline = {};
    std::array<std::vector<double>, 2> left_out = {};  // by events, beyond those of the baseline
    std::array<bool, 2> by_events = {};
    std::array<std::optional<BytesTaken>, 2> memory = {};
  };

  // What is thrown is ours; it ends the step of all hands, and then all of it.
  template <class Work>
  void unless_it_throws(const Work& work) {
    try {
      work();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!ours_) ours_ = std::current_exception();
      failed_ = true;
    }
  }

  // The hand that times, too, and says how it goes on.
  void lead() {
    std::uint64_t after = 0;
    double judging = 0, timing = 0;
    while (wants_more() && (is_counted() || after < kStepsAfterAFault)) {
      const auto begun = Clock::now();
      if (wants_round(judging, timing)) {
        for (std::size_t n = 0; n < tasks_.timed.size(); ++n) {
          unless_it_throws([&] { time(n, result_.rounds); });
        }
        whole_round_ |= !skipped_;
        ++result_.rounds;
        timing += seconds_since(begun);
      } else {
        step();
        judging += seconds_since(begun);
        after += !faults_.empty();
      }
    }
    goes_on_ = false;
    meet_.arrive_and_wait();
  }

  void step() {
    judged_ = std::vector<std::optional<Judged>>(tasks_in(result_.steps));
    next_ = 0;
    meet_.arrive_and_wait();
    judge_tasks(testee_.executor);
    meet_.arrive_and_wait();
    note_tasks();
    whole_step_ |= !skipped_;
    ++result_.steps;
  }

  bool wants_more() const {
    if (failed_ || interrupted_()) return false;
    if (!is_counted()) return seconds_since(start_) < options_.seconds;
    return result_.steps < options_.steps || wants_rounds();
  }
  // Half of the time, or in turn.
  bool wants_round(double judging, double timing) const {
    if (tasks_.timed.empty()) return false;
    if (!is_counted()) return result_.steps > 0 && timing <= judging;
    if (result_.steps == options_.steps || !wants_rounds()) return wants_rounds();
    return result_.rounds < result_.steps;
  }

  bool wants_rounds() const { return !tasks_.timed.empty() && result_.rounds < options_.rounds; }
  bool is_counted() const { return options_.steps + options_.rounds > 0; }
  // Within a step; a repetition takes whatever time it takes.
  bool is_over() const {
    return failed_ || interrupted_() ||
           (!is_counted() && seconds_since(start_) >= options_.seconds);
  }

  // The first of them are cases.
  std::size_t cases_in(std::uint64_t step) const {
    const std::size_t before = std::min(kCasesAStep * step, tasks_.cases.size());
    return std::min(kCasesAStep, tasks_.cases.size() - before);
  }
  std::size_t tasks_in(std::uint64_t step) const { return cases_in(step) + kProblemsAStep; }

  void judge_tasks(Executor& executor) {
    unless_it_throws([&] {
      for (std::size_t n = next_++; n < judged_.size() && !is_over(); n = next_++) {
        judged_[n] = judged(n, executor);
      }
    });
  }

  void note_size(const Problem& problem) {
    const std::lock_guard lock(mutex_);
    result_.most_queries = std::max(result_.most_queries, problem.query_len);
    result_.most_keys = std::max(result_.most_keys, problem.key_len);
  }

  // The n-th task of the step.
  Judged judged(std::size_t n, Executor& executor) {
    const std::uint64_t step = result_.steps;
    const std::size_t cases = cases_in(step);
    const auto verdict = [&](PreparedCase& prepared) {
      if (&executor == &testee_.executor && testee_.workers) {
        testee_.workers->draw(prepared.test_case().bits, false);
      }
      note_size(prepared.problem());
      return verdict_on(prepared, testee_.testee, executor, options_.run);
    };
    if (n >= cases) {
      Drawn drawn = draws_.draw(kProblemsAStep * step + n - cases);
      Judged judged = {"random problem", drawn.entry, verdict(drawn.prepared)};
      // One in a step as a loop that times would: the same sizes in a row, with other numbers.
      for (int more = 1; n == cases && more < kInARow && judged.verdict.outcome == Outcome::pass;
           ++more) {
        judged.entry["bits"] = fmt::format("{}/{}", drawn.entry["bits"].get<std::string>(), more);
        PreparedCase again(read_entry(judged.entry, kFuzzStem), 1);
        judged.verdict = verdict(again);
      }
      return judged;
    }
    Case test_case = tasks_.cases[kCasesAStep * step + n];
    test_case.bits = hidden_ + (test_case.bits.empty() ? test_case.id : test_case.bits);
    PreparedCase prepared(test_case, 1);
    Judged judged = {"case", {}, verdict(prepared)};
    if (!is_fault(judged.verdict.outcome)) return judged;
    judged.entry = entry_of(test_case);
    judged.entry["bits"] = hidden_ + judged.entry["bits"].get<std::string>();
    return judged;
  }

  void note_tasks() {
    for (std::size_t n = 0; n < judged_.size(); ++n) {
      if (!judged_[n]) {
        skipped_ = true;
        continue;
      }
      ++(n < cases_in(result_.steps) ? result_.cases : result_.problems);
      note(std::move(*judged_[n]));
    }
  }

  void note(Judged judged) {
    lacks_ |= judged.verdict.outcome == Outcome::not_run && !is_over();
    ++result_.outcomes[std::string(name(judged.verdict.outcome))];
    if (is_fault(judged.verdict.outcome)) faults_.push_back(std::move(judged));
  }

  void time(std::size_t n, std::uint64_t round) {
    if (is_over()) {
      skipped_ = true;
      return;
    }
    const nlohmann::json entry = entry_of_round(tasks_.timed[n], options_.seed, round);
    // The first of them warms up.
    const bool is_measured = round % kRoundsAMeasured == 0;
    const bool told = contains(tasks_.timed[n].data, entry["data"][0].get<std::string>());
    const Round tried =
        try_round(entry, testee_, baseline_, (round + n) % 2 == 0, is_measured, told);
    for (const double threads : tried.testee.threads) {
      if (!testee_.on_device()) threads_.add_running(threads);
    }
    ++result_.calls;
    Times& times = times_[n];
    if (!testee_.on_device()) {  // whose memory is not the host's
      keep_less(times.memory[0], tried.testee.forward_bytes);
      keep_less(times.memory[1], tried.testee.backward_bytes);
    }
    if (!times.problem) times.problem = read_entry(entry, kFuzzStem).problem;
    if (tried.baseline && is_fault(tried.baseline->verdict.outcome)) {
      result_.baseline_faults.push_back(
          fmt::format("{}: {}", tasks_.timed[n].name, tried.baseline->verdict.message));
    }
    note_size(*times.problem);
    note({"timed call", entry, tried.testee.verdict});
    if (tried.testee.verdict.outcome == Outcome::inconclusive) {
      times.tells_nothing = tried.testee.verdict.message;
      return;
    }
    const auto add = [&](std::size_t pass, const std::optional<PassTime>& own,
                         const std::optional<PassTime>& others) {
      if (!own || (tried.baseline && !others)) return;
      // Both by the same clock.
      const bool by_events = own->on_device && (!others || others->on_device);
      const double seconds = by_events ? *own->on_device : own->clock;
      const double least = least_seconds(*times.problem, pass == 1, testee_.on_device());
      if (seconds < least) {
        result_.not_believed.push_back(
            fmt::format("{}: a call returned in {:.3g} s, and no machine computes it in less than "
                        "{:.3g} s",
                        tasks_.timed[n].name, seconds, least));
      }
      if (is_measured || !told) return;
      if (!by_events) {
        threads_.add(fmt::format("{} {}", tasks_.timed[n].name, kPasses[pass]), *own);
      }
      times.by_events[pass] = by_events;
      times.testee[pass].push_back(seconds);
      if (!others) return;
      times.baseline[pass].push_back(by_events ? *others->on_device : others->clock);
      if (by_events) {
        times.left_out[pass].push_back((own->clock - *own->on_device) -
                                       (others->clock - *others->on_device));
      }
    };
    const TimedCall* const other = tried.baseline ? &*tried.baseline : nullptr;
    add(0, tried.testee.forward, other ? other->forward : std::nullopt);
    add(1, tried.testee.backward, other ? other->backward : std::nullopt);
  }

  // What the events of a device leave out, copies and waits, they leave out of both.
  void compare_left_out(std::size_t n) {
    for (const std::size_t pass : {0, 1}) {
      const std::vector<double>& left_out = times_[n].left_out[pass];
      if (left_out.empty()) continue;
      const double told = interval_of(times_[n].testee[pass]).median;
      const Interval more = interval_of(left_out);
      if (more.least <= kLeftOutUnseen + told / 2) continue;
      result_.not_believed.push_back(fmt::format(
          "{}: by the events of its device a call takes {:.3g} s, and seen from outside "
          "{:.3g} s more than that and what the baseline's leave out",
          tasks_.timed[n].name, told, more.median));
    }
  }

  // A time is one of a call that was right, as far as its results tell.
  void add_untold(std::size_t n) {
    const Times& times = times_[n];
    if (times.tells_nothing.empty()) return;
    result_.untold.push_back(fmt::format("{}: {}", tasks_.timed[n].name,
                                         times.testee[0].empty()
                                             ? times.tells_nothing
                                             : "some calls are not timed: " + times.tells_nothing));
  }

  void add_speeds(std::size_t n) {
    for (const std::size_t pass : {0, 1}) {
      const auto &own = times_[n].testee[pass], &others = times_[n].baseline[pass];
      if (own.empty()) continue;
      Speed speed = {.problem = tasks_.timed[n].name,
                     .shape = to_string(*times_[n].problem),
                     .pass = kPasses[pass],
                     .calls = own.size(),
                     .seconds = interval_of(own),
                     .by_events = times_[n].by_events[pass],
                     .least = least_seconds(*times_[n].problem, pass == 1, testee_.on_device()),
                     .memory = times_[n].memory[pass]};
      if (!others.empty()) {
        for (std::size_t at = 0; at < own.size(); ++at) {
          speed.ratios.push_back(others[at] / own[at]);
        }
        speed.baseline = interval_of(others);
        speed.ratio = interval_of(speed.ratios);
      }
      result_.speeds.push_back(std::move(speed));
    }
  }

  // The simplest fault of each kind, made small: no more than a few.
  void add_counterexamples() {
    std::stable_sort(faults_.begin(), faults_.end(), [](const Judged& a, const Judged& b) {
      return a.entry.dump().size() < b.entry.dump().size();
    });
    // One of each kind first.
    std::set<std::tuple<Outcome, Reason, std::string>> kinds;
    std::stable_partition(faults_.begin(), faults_.end(), [&](const Judged& fault) {
      const Verdict& v = fault.verdict;
      return kinds.insert({v.outcome, v.reason, v.blamed}).second;
    });
    for (std::size_t n = 0; n < std::min(faults_.size(), kMostCounterexamples); ++n) {
      result_.counterexamples.push_back(small(faults_[n]));
    }
    // What can be named says most.
    std::stable_partition(result_.counterexamples.begin(), result_.counterexamples.end(),
                          [](const Counterexample& each) { return !each.meant.empty(); });
  }

  // For so long, from now on, somebody waits.
  std::function<bool()> patience() const {
    constexpr double kSeconds = 15;
    return
        [this, start = Clock::now()] { return interrupted_() || seconds_since(start) > kSeconds; };
  }

  Counterexample small(const Judged& fault) {
    const Testee& testee = testee_.testee;
    const Find find = shrunk({fault.entry, fault.verdict}, "attest gate", testee, options_.run,
                             make_executor_, patience());
    Counterexample example = {
        .found_by = fault.found_by, .entry = find.entry, .verdict = find.verdict};
    const auto executor = make_executor_(testee);
    PreparedCase prepared(read_entry(find.entry, kFuzzStem), 1);
    example.problem = to_string(prepared.problem());
    const Examination again = examination_of(prepared, testee, *executor, options_.run);
    example.seen_again = is_fault(again.verdict.outcome);
    if (!example.seen_again || !asks_for_names(again.verdict)) return example;
    const auto ends = patience();
    auto alike = mistakes_of(fault, *executor, ends);
    example.verdict.blamed = culprit(fault.verdict, read_entry(fault.entry, kFuzzStem), alike, {});
    put_first(alike, example.verdict.blamed);
    example.meant = explanation(alike, prepared, testee.description, again.trial, ends);
    if (alike.empty() && !example.meant.empty()) example.verdict.blamed = kClauseOfDeclarations;
    return example;
  }

  // That explain what is alike among the faults, as they were found: a small problem is often too
  // small to tell mistakes apart.
  std::vector<Likeness> mistakes_of(const Judged& fault, Executor& executor,
                                    const std::function<bool()>& ends) const {
    constexpr int kMostLooked = 8;
    const Testee& testee = testee_.testee;
    const FailureKind kind = kind_of(testee.name, fault.verdict);
    Consensus consensus;
    int looked = 0;
    for (const Judged& each : faults_) {
      if (looked == kMostLooked || consensus.is_reached() || ends()) break;
      if (kind_of(testee.name, each.verdict) != kind) continue;
      const Case failing = read_entry(each.entry, kFuzzStem);
      if (is_too_large(failing)) continue;
      ++looked;
      const auto again =
          try_again(failing, testee, executor, options_.run, 1, LookFor::mistakes, ends);
      if (!again || !again->said || kind_of(testee.name, again->verdict) != kind) continue;
      consensus.add(each.entry["bits"].get<std::string>(), *again->said);
    }
    return consensus.meant().alike;
  }

  const GateTasks& tasks_;
  const Contender& testee_;
  const Contender* const baseline_;
  const GateOptions& options_;
  const MakeExecutor& make_executor_;
  const std::function<bool()>& interrupted_;
  const std::vector<DType> dtypes_;
  const std::string hidden_;  // what bits begin with
  const Draws draws_;
  const Clock::time_point start_ = Clock::now();
  std::vector<Times> times_;
  ThreadCount threads_;
  // Of the step that all hands are at.
  std::barrier<> meet_;
  bool goes_on_ = true;
  std::atomic<std::size_t> next_ = 0;
  std::vector<std::optional<Judged>> judged_ = {};
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;  // of `ours_`, and of the sizes
  std::exception_ptr ours_ = {};
  std::vector<Judged> faults_ = {};
  bool lacks_ = false;  // something was not tried, for want of memory
  // Whether the time was up before all of a step or a round was asked, and whether that of one was.
  bool skipped_ = false, whole_step_ = false, whole_round_ = false;
  GateResult result_;
};

}  // namespace

GateResult pass_gate(const GateTasks& tasks, const Contender& testee, const Contender* baseline,
                     const GateOptions& options, const MakeExecutor& make_executor,
                     const std::function<bool()>& interrupted) {
  return Gate(tasks, testee, baseline, options, make_executor, interrupted).pass();
}

}  // namespace attest
