#include "harness/judge/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cases/generate.h"
#include "harness/judge/drawn.h"
#include "harness/judge/memory.h"

namespace attest {
namespace {

struct ThreadsCounted {
  bool told = true;                    // or calls were too short to tell
  std::optional<double> seconds = {};  // that such a call took, if that was measured
  std::optional<Finding> finding = {};
};

ThreadsCounted count_threads(Subject& subject, const Problem& problem, const Inputs& inputs) {
  constexpr int kSeen = 3;        // calls with more than they may use; fewer are an accident
  constexpr double kSlack = 0.5;  // threads that a runtime has beside
  const std::vector<int> allowed = {1, 1, 1, 2, 3, 4, 7};
  int exceeding = 0;
  int left = static_cast<int>(allowed.size()) * (problem.backward ? 2 : 1);
  for (const int threads : allowed) {
    if (exceeding + left < kSeen) break;  // whatever is still to come
    // Of its own, so that threads of an earlier call that wait for work are not counted.
    subject.calling.executor.renew();
    Calling calling = subject.calling;
    calling.threads = threads;
    calling.measure = true;
    const Trial trial = try_out(calling, problem, inputs, Placement::end_flush);
    if (trial.stopped) return {.finding = trial.stopped};
    if (threads == 1 && !trial.forward.running_threads) {
      return {.told = false, .seconds = trial.forward.wall_seconds};
    }
    for (const CallFacts* facts : {&trial.forward, &trial.backward}) {
      const double running = facts->running_threads.value_or(0);
      if (facts == &trial.forward || problem.backward) --left;
      if (running <= threads + kSlack || ++exceeding < kSeen) continue;
      return {.finding = failure("threads",
                                 fmt::format("{:.1f} threads ran in a call that may use {}, in the "
                                             "mean over it",
                                             running, threads))};
    }
  }
  return {};
}

// By how much to lengthen a problem whose calls took that long, wherever they computed, at a cost
// that grows with the square of its lengths: not much further than it must be, which takes longer,
// too.
double growth_after(std::optional<double> seconds) {
  constexpr double kWanted = 0.12;  // what tells, and a little
  constexpr double kLeast = 1.5, kMost = 8;
  return seconds ? std::clamp(std::sqrt(kWanted / *seconds), kLeast, kMost) : 2;
}

// Whether calls compute on more threads than they may: at the case's lengths, or as many times
// those as it takes for calls to be long enough to tell.
std::optional<Finding> judge_count(Subject& subject) {
  constexpr Index kMostTimes = 64;
  const auto unknown = [](std::string message) {
    return Finding{.outcome = Outcome::inconclusive, .message = std::move(message)};
  };
  for (Index times = 1;;) {
    Case longer = subject.prepared.test_case();
    const auto lengthened_problem = lengthened(subject.problem(), times);
    if (!lengthened_problem) return unknown("a problem with tables cannot be lengthened");
    longer.problem = *lengthened_problem;
    if (auto finding = check_support(subject, longer.problem)) return finding;
    const auto [told, seconds, finding] = count_threads(subject, longer.problem, generate(longer));
    if (told) return finding;
    if (times == kMostTimes) break;
    times =
        std::min(kMostTimes,
                 static_cast<Index>(std::ceil(static_cast<double>(times) * growth_after(seconds))));
  }
  return unknown(
      fmt::format("calls at {} times its lengths end too soon to count threads", kMostTimes));
}

}  // namespace

std::optional<Finding> check_threads(Subject& subject, const Trial& first) {
  if (subject.cites("CALL-2")) {
    if (auto finding = judge_count(subject)) return finding;
  }
  const int usual = subject.calling.threads;
  for (const int threads : {1, 2, 3, 4, 7}) {
    if (threads == usual) continue;
    Calling calling = subject.calling;
    calling.threads = threads;
    const Trial other =
        try_out(calling, subject.problem(), subject.prepared.inputs(), Placement::end_flush);
    if (other.stopped) return other.stopped;
    const auto where = difference(first, other, subject.exemptions);
    if (!where) continue;
    if (subject.arithmetic.thread_invariant) {
      return failure("nondeterministic",
                     fmt::format("{} threads and {} differ: {}", usual, threads, *where), "DET-3");
    }
    std::optional<PreparedCase> own;
    if (other.keep) {
      if (auto finding = check_keep(subject.problem(), subject.prepared.inputs(),
                                    subject.testee.keep_quantum, *other.keep, *other.keep)) {
        return finding;
      }
      own = subject.prepared.with_keep(*other.keep);
    }
    auto finding = check_bounds(subject, other, own ? *own : subject.prepared);
    if (!finding || finding->outcome != Outcome::fail) continue;
    finding->message = fmt::format("with {} threads: {}", threads, finding->message);
    return finding;
  }
  return std::nullopt;
}

}  // namespace attest
