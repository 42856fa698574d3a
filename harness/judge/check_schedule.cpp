#include "harness/judge/checks.h"

#include <fmt/format.h>

#include <set>

#include "harness/judge/pictures.h"
#include "harness/judge/schedule.h"
#include "harness/process/wire.h"

namespace attest {
namespace {

// With more threads a worker has few blocks in any case (SCHED-3).
Index most_balanced(const Problem& p) { return 3 * p.batch * p.query_heads; }

// Keeps the figures of a schedule that is as it must be.
void note_schedule(Subject& subject, const Trial& traced, const std::optional<Trial>& untraced,
                   int threads) {
  auto& pictures = subject.verdict.pictures;
  pictures.clear();  // of the most threads alone
  const auto note = [&](const CallFacts& facts, const CallFacts& unasked, bool backward) {
    subject.verdict.schedule.push_back(schedule_evidence(
        facts.blocks, backward, threads, facts.thread_seconds, unasked.thread_seconds));
    pictures.push_back(
        blocks_picture(subject.problem(), facts.blocks, subject.verdict.schedule.back()));
  };
  note(traced.forward, untraced ? untraced->forward : CallFacts(), false);
  if (subject.problem().backward) {
    note(traced.backward, untraced ? untraced->backward : CallFacts(), true);
  }
}

std::optional<Finding> schedule_finding(Planes& planes, ScheduleDeclaration declared,
                                        const Trial& trial, int threads) {
  if (threads > most_balanced(planes.problem())) declared.imbalance.reset();
  if (trial.forward.blocks_left_out || trial.backward.blocks_left_out) {
    return Finding{
        .outcome = Outcome::inconclusive,
        .message = fmt::format("more blocks than the {} that a reply may hold", kMostBlocks)};
  }
  const auto defect = [&](const CallFacts& facts, bool backward) {
    return schedule_defect(planes, declared, facts.blocks, backward, threads);
  };
  auto finding = defect(trial.forward, false);
  if (!finding && planes.problem().backward) finding = defect(trial.backward, true);
  if (finding) {
    finding->message += fmt::format(", with {} thread{}", threads, threads == 1 ? "" : "s");
  }
  return finding;
}

}  // namespace

std::optional<Finding> check_schedule(Subject& subject, const Trial& first) {
  ScheduleDeclaration declared = *subject.testee.schedule;
  if (!subject.cites("SCHED-3")) {
    declared.imbalance.reset();  // a case with few blocks has no fair balance
  }
  Planes planes(subject.problem(), subject.prepared.inputs());
  std::set<int> counts = {1, 2, 3};
  for (const int many : {4, 8, 16}) {
    if (declared.imbalance && many <= most_balanced(subject.problem())) counts.insert(many);
  }
  if (auto finding = schedule_finding(planes, declared, first, subject.calling.threads))
    return finding;
  if (!counts.contains(subject.calling.threads))
    note_schedule(subject, first, {}, subject.calling.threads);
  for (const int threads : counts) {
    Calling calling = subject.calling;
    calling.threads = threads;
    calling.measure = true;
    // Few workers have few blocks in a small case, and no time to be seen at them.
    std::optional<Trial> untraced;
    if (declared.imbalance && threads > 1) {
      untraced =
          try_out(calling, subject.problem(), subject.prepared.inputs(), Placement::end_flush);
      if (untraced->stopped) return untraced->stopped;
    }
    calling.trace = true;
    std::optional<Trial> again;
    if (threads != subject.calling.threads) {
      again = try_out(calling, subject.problem(), subject.prepared.inputs(), Placement::end_flush);
    }
    const Trial& traced = again ? *again : first;
    if (traced.stopped) return traced.stopped;
    if (auto finding = schedule_finding(planes, declared, traced, threads)) return finding;
    if (untraced && subject.arithmetic.deterministic) {
      if (const auto where = difference(traced, *untraced, subject.exemptions)) {
        return failure("nondeterministic",
                       fmt::format("asked for its blocks, with {} threads, it gives other bits "
                                   "than unasked: {}",
                                   threads, *where));
      }
    }
    note_schedule(subject, traced, untraced, threads);
  }
  return std::nullopt;
}

}  // namespace attest
