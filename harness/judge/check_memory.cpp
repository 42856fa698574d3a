#include "harness/judge/checks.h"

#include <fmt/format.h>

#include <vector>

#include "cases/generate.h"
#include "harness/judge/memory.h"

namespace attest {

std::optional<Finding> check_memory(Subject& subject) {
  // Always two, so that what each worker takes is told from what the call takes, and that the
  // stacks of many threads need not be forgiven.
  constexpr int kThreads = 2;
  std::vector<MemoryTaken> forward, backward;
  for (const Index times : {1, 2, 4}) {
    Case longer = subject.prepared.test_case();
    const auto lengthened_problem = lengthened(subject.problem(), times);
    if (!lengthened_problem) {
      return Finding{.outcome = Outcome::inconclusive,
                     .message = "a problem with tables cannot be lengthened"};
    }
    longer.problem = *lengthened_problem;
    // Of its own, so that no earlier call has left memory to be used again.
    subject.calling.executor.renew();
    if (auto finding = check_support(subject, longer.problem)) return finding;
    Calling calling = subject.calling;
    calling.threads = kThreads;
    calling.measure = true;
    const Trial trial = try_out(calling, longer.problem, generate(longer), Placement::end_flush);
    if (trial.stopped) return trial.stopped;
    if (!trial.forward.peak_bytes || (subject.problem().backward && !trial.backward.peak_bytes)) {
      return Finding{.outcome = Outcome::inconclusive, .message = "memory cannot be measured here"};
    }
    forward.push_back({longer.problem, times, trial.forward});
    backward.push_back({longer.problem, times, trial.backward});
  }
  const auto defect = [&](const char* pass, std::vector<MemoryTaken>& taken) {
    count_old_memory(taken);
    return memory_defect(*subject.testee.memory, pass, taken, kThreads);
  };
  auto finding = defect("forward", forward);
  return !finding && subject.problem().backward ? defect("backward", backward) : finding;
}

}  // namespace attest
