// Threads that a call starts, from a plug-in through attest-worker to the verdict (CALL-2).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "harness/process/testee.h"
#include "harness/run/examine.h"

namespace attest {
namespace {

using testing::MatchesRegex;

Verdict verdict_of_threads(const std::string& kernel) {
  Case c;
  c.id = "test/threads/dtype=f32/data=normal/s=1";
  c.clauses = {"CALL-2", "DET-3"};
  c.data = "normal";
  c.problem = {.dtype = DType::f32,
               .query_heads = 2,
               .key_heads = 2,
               .query_len = 256,
               .key_len = 256,
               .head_dim = 16,
               .value_dim = 16,
               .scale = 0.25};
  c.check = Check::threads;
  const Limits limits;
  const Installation installation = {.worker = WORKER, .plugins = {}, .cases = {}};
  const auto testees = find_testees({std::string(PLUGINS) + "/threads.so:threads/" + kernel},
                                    installation, limits, {});
  WorkerExecutor executor(worker_options(testees.front(), limits, {}));
  PreparedCase prepared(c, 1);
  return examine(prepared, testees.front().description, testees.front().kernel, executor, 1)
      .verdict;
}

TEST(ForkedThreadsTest, KernelThatForksAndJoinsAsManyAsItMayForEachHeadPasses) {
  const Verdict v = verdict_of_threads("fork_join");
  EXPECT_EQ(v.outcome, Outcome::pass) << v.message;
}

TEST(ForkedThreadsTest, KernelThatStartsManyShortLivedThreadsFails) {
  const Verdict v = verdict_of_threads("short_lived");
  EXPECT_EQ(v.outcome, Outcome::fail) << v.message;
  EXPECT_EQ(v.reason, "threads");
  EXPECT_EQ(v.clauses.front(), "CALL-2");
  // In which of the calls, tells how busy the machine is.
  EXPECT_THAT(v.message, MatchesRegex("[0-9.]+ threads ran in a call that may use [0-9]+, in the "
                                      "mean over it.*"));
}

}  // namespace
}  // namespace attest
