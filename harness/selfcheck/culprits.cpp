#include "harness/selfcheck/culprits.h"

#include <algorithm>
#include <atomic>

#include "harness/diagnosis/culprit.h"
#include "harness/diagnosis/retrial.h"
#include "harness/run/jobs.h"

namespace attest {
namespace {

std::string culprit_of(const Verdict& verdict, const Case& test_case, const Testee& testee,
                       Executor& executor, const RunOptions& options,
                       const std::function<bool()>& interrupted) {
  if (!asks_for_names(verdict)) return verdict.blamed;
  Consensus consensus;
  const auto again = try_again(test_case, testee, executor, options, 1, interrupted);
  if (again && again->said) consensus.add(test_case.id, *again->said);
  return culprit(verdict, test_case, consensus.meant().alike,
                 reliefs(test_case, testee, executor, options, interrupted), LookedAt::one);
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
      hunted.culprit = culprit_of(hunted.caught->verdict, *test_case->second, *testee,
                                  *make_executor(*testee), options, interrupted);
    }
  });
}

}  // namespace attest
