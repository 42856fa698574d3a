#include "harness/selfcheck/culprits.h"

#include <algorithm>
#include <atomic>

#include "harness/diagnosis/culprit.h"
#include "harness/diagnosis/retrial.h"
#include "harness/run/jobs.h"
#include "reports/groups.h"

namespace attest {
namespace {

// Other cases that a failure of its kind may have: of its topic and its format.
std::vector<const Case*> others_like(const Case& test_case, const std::vector<Case>& cases) {
  constexpr std::size_t kMostTried = 40;
  const std::string topic =
      test_case.id.substr(0, test_case.id.find('/', test_case.id.find('/') + 1));
  std::vector<const Case*> others;
  for (const Case& each : cases) {
    if (others.size() == kMostTried) break;
    if (each.id != test_case.id && each.problem.dtype == test_case.problem.dtype &&
        each.id.starts_with(topic + "/")) {
      others.push_back(&each);
    }
  }
  return others;
}

// As a run diagnoses it, which has all failures that are alike; the hunt has stopped at the first.
std::string culprit_of(const Verdict& verdict, const Case& test_case,
                       const std::vector<Case>& cases, const Testee& testee, Executor& executor,
                       const RunOptions& options, const std::function<bool()>& interrupted) {
  if (!asks_for_names(verdict)) return verdict.blamed;
  Consensus consensus;
  const FailureKind kind = kind_of(testee.name, verdict);
  const auto look_at = [&](const Case& failing) {
    const auto again =
        try_again(failing, testee, executor, options, 1, LookFor::mistakes, interrupted);
    if (!again || !again->said || kind_of(testee.name, again->verdict) != kind) return;
    consensus.add(failing.id, *again->said);
  };
  look_at(test_case);
  for (const Case* each : others_like(test_case, cases)) {
    if (consensus.meant().alike.empty() || consensus.is_reached() || interrupted()) break;
    look_at(*each);
  }
  return culprit(verdict, test_case, consensus.meant().alike,
                 reliefs(test_case, testee, executor, options, interrupted),
                 consensus.problems() > 1 ? Names::first : Names::doubted);
}

}  // namespace

void find_culprits(Hunt& hunt, const std::vector<Case>& cases, const std::vector<Testee>& testees,
                   const RunOptions& options, const MakeExecutor& make_executor,
                   const std::function<bool()>& interrupted) {
  std::map<std::string, const Case*> known;
  for (const Case& each : cases) known[each.id] = &each;
  std::atomic<std::size_t> next = 0;
  in_parallel(options.jobs, [&] {
    for (std::size_t i = next++; i < hunt.hunted.size() && !interrupted(); i = next++) {
      Hunted& hunted = hunt.hunted[i];
      if (!hunted.caught) continue;
      const auto testee = std::find_if(testees.begin(), testees.end(), [&](const Testee& each) {
        return each.name == hunted.caught->testee;
      });
      const auto test_case = known.find(hunted.caught->case_id);
      hunted.culprit = hunted.caught->verdict.blamed;
      if (testee == testees.end() || test_case == known.end()) continue;
      hunted.culprit = culprit_of(hunted.caught->verdict, *test_case->second, cases, *testee,
                                  *make_executor(*testee), options, interrupted);
    }
  });
}

}  // namespace attest
