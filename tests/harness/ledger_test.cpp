// Blocks and memory, from a plug-in through attest-worker to the verdict.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "harness/process/in_process.h"
#include "harness/process/testee.h"
#include "harness/run/examine.h"
#include "tests/harness/mock_plugin.h"
#include "tests/harness/plain_kernel.h"

namespace attest {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const Installation kWorkerOnly = {.worker = WORKER, .plugins = {}, .cases = {}};

Case schedule_case() {
  Case c;
  c.id = "test/ledger/schedule/dtype=f32/data=normal/s=1";
  c.clauses = {"SCHED-1", "SCHED-3", "MASK-2"};
  c.data = "normal";
  c.problem = {.dtype = DType::f32,
               .query_heads = 2,
               .key_heads = 2,
               .query_len = 75,
               .key_len = 75,
               .head_dim = 4,
               .value_dim = 4,
               .scale = 0.5,
               .mask = Mask::causal(Anchor::top_left),
               .backward = true};
  c.check = Check::schedule;
  return c;
}

Case memory_case() {
  Case c = schedule_case();
  c.id = "test/ledger/memory/dtype=f32/data=normal/s=1";
  c.clauses = {"MEM-1", "MEM-2"};
  c.problem.query_heads = c.problem.key_heads = 1;
  c.problem.query_len = c.problem.key_len = 256;
  c.problem.backward = false;
  c.check = Check::memory;
  return c;
}

Verdict verdict_on_testee(const std::string& spec, const Case& test_case, int threads = 1) {
  const Limits limits;
  const auto testees = find_testees({spec}, kWorkerOnly, limits, {});
  WorkerExecutor executor(worker_options(testees.front(), limits, {}));
  PreparedCase prepared(test_case, 1);
  return examine(prepared, testees.front().description, testees.front().kernel, executor, threads)
      .verdict;
}

Verdict verdict_on(const std::string& kernel, const Case& test_case, int threads = 1) {
  return verdict_on_testee(std::string(PLUGINS) + "/ledger.so:ledger/" + kernel, test_case,
                           threads);
}

TEST(LedgerTest, RightScheduleIsFollowedFromEveryThread) {
  const Verdict v = verdict_on("none", schedule_case(), 4);
  EXPECT_EQ(v.outcome, Outcome::pass) << v.message;
}

TEST(LedgerTest, BalanceIsJudgedWhereItIsCited) {
  Case c = schedule_case();
  c.clauses = {"SCHED-1"};
  EXPECT_EQ(verdict_on("imbalanced", c).outcome, Outcome::pass);
}

struct WrongSchedule {
  const char* kernel;
  const char* clause;
  const char* message;
};

class BlockTest : public testing::TestWithParam<WrongSchedule> {};

TEST_P(BlockTest, IsNamed) {
  const Verdict v = verdict_on(GetParam().kernel, schedule_case());
  EXPECT_EQ(v.outcome, Outcome::fail);
  EXPECT_EQ(v.reason, "schedule");
  EXPECT_EQ(v.clauses.front(), GetParam().clause);
  EXPECT_THAT(v.message, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    AllFaults, BlockTest,
    testing::Values(
        WrongSchedule{
            "misses", "SCHED-1",
            "the visible pair of query 32 and key 16, batch 0, head 1 lies in no block, with 1 "
            "thread"},
        WrongSchedule{"misses_dq", "SCHED-1", "lies in no block (pass 2 of the backward call)"},
        WrongSchedule{
            "doubles", "SCHED-1",
            "lies in 2 blocks: block (worker 0, batch 0, head 1, queries 32..48, keys 16..32)"},
        WrongSchedule{"visits", "SCHED-1",
                      "head 1, queries 32..48, keys 48..64) has no visible pair"},
        WrongSchedule{"lies", "SCHED-2", "keys 16..32) is reported as masked, and none is hidden"},
        WrongSchedule{"imbalanced", "SCHED-3", "2 times the mean, declared 1.4, with 2 threads"}),
    [](const auto& breach) {
      std::string name = breach.param.kernel;
      std::erase(name, '_');
      return name;
    });

#ifdef ATTEST_SANITIZED

TEST(LedgerTest, MemoryIsNotJudgedWhereASanitizerTakesMost) {
  const Verdict v = verdict_on("hoards", memory_case());
  EXPECT_EQ(v.outcome, Outcome::inconclusive);
  EXPECT_THAT(v.message, HasSubstr("memory cannot be measured here"));
}

#else

TEST(LedgerTest, MemoryWithinTheDeclarationPasses) {
  const Verdict v = verdict_on("none", memory_case());
  EXPECT_EQ(v.outcome, Outcome::pass) << v.message;
}

// 24 bytes a pair: below the slack at 512 x 512, beyond it at 1024 x 1024.
TEST(LedgerTest, SecretMemoryIsFoundThoughItIsFreedBeforeTheCallReturns) {
  const Verdict v = verdict_on("hoards", memory_case());
  EXPECT_EQ(v.outcome, Outcome::fail);
  EXPECT_EQ(v.reason, "memory");
  EXPECT_EQ(v.clauses.front(), "MEM-1");
  EXPECT_THAT(v.message, HasSubstr("forward of 1024 queries and 1024 keys: took 2"));
}

// Between two looks at what runs it may come and go: then nobody knows, and nothing passes.
TEST(LedgerTest, MemoryOfAProcessThatACallStartsNeverPasses) {
  const Verdict v = verdict_on("delegates", memory_case());
  EXPECT_THAT(v.outcome, AnyOf(Outcome::fail, Outcome::inconclusive)) << v.message;
}

TEST(LedgerTest, FilesInMemoryThatNobodyMapsCount) {
  const Verdict v = verdict_on("files", memory_case());
  EXPECT_EQ(v.outcome, Outcome::fail) << v.message;
}

TEST(LedgerTest, MemoryTakenAtLoadTimeCountsForTheCallThatUsesIt) {
  const Verdict v = verdict_on("keeps", memory_case());
  EXPECT_EQ(v.outcome, Outcome::fail);
  EXPECT_EQ(v.clauses.front(), "MEM-1");
  EXPECT_THAT(v.message, HasSubstr("took 3"));
}

// An interpreter has pages of its own, which no problem makes more.
TEST(LedgerTest, ScratchThatAProgramTookWhenItStartedCountsAsFarAsItGrowsWithTheProblem) {
  Case c = memory_case();
  c.problem.query_len = c.problem.key_len = 128;
  const auto verdict_on_python = [&](const std::string& way) {
    return verdict_on_testee("exec:python3 " PYTHON_WORKER " " + way, c);
  };
  const Verdict right = verdict_on_python("");
  EXPECT_EQ(right.outcome, Outcome::pass) << right.message;
  const Verdict secret = verdict_on_python("keeps 256");
  EXPECT_EQ(secret.outcome, Outcome::fail);
  EXPECT_EQ(secret.clauses.front(), "MEM-1");
  EXPECT_THAT(secret.message, HasSubstr("forward of 512 queries and 512 keys: took 1"));
  EXPECT_EQ(verdict_on_python("keeps 96").outcome, Outcome::inconclusive);
}

TEST(LedgerTest, GrowthBeyondItsClassIsFound) {
  const Verdict v = verdict_on("grows", memory_case());
  EXPECT_EQ(v.reason, "memory");
  EXPECT_EQ(v.clauses.front(), "MEM-2");
  EXPECT_THAT(v.message, HasSubstr("at 4 times the lengths; declared linear"));
}

#endif

// ---- Who promises nothing, and who says too much ----------------------------------------------

class MockedTest : public testing::Test {
 protected:
  MockedTest() {
    description_.dtypes = {DType::f32};
    description_.features = {"lse", "causal", "backward", "value-dim"};
    ON_CALL(mock_, forward).WillByDefault([this](auto& p, auto& in, auto& out, auto& context) {
      for (Index i = 0; context.trace && i < blocks_; ++i) {
        attest_block block{};
        block.struct_size = size_;
        block.query_end = block.key_end = 75;
        context.trace(context.trace_context, &block);
      }
      return plain::forward(p, in, out, context);
    });
    ON_CALL(mock_, backward).WillByDefault(plain::backward);
  }
  Verdict verdict_on(const Case& test_case) {
    PreparedCase prepared(test_case, 1);
    return examine(prepared, description_, "mock", executor_, 1).verdict;
  }

  Index blocks_ = 0;
  std::size_t size_ = sizeof(attest_block);
  Description description_;
  testing::NiceMock<MockPlugin> mock_;
  InProcessExecutor executor_{mock_.plugin()};
};

TEST_F(MockedTest, WhatIsNotPromisedIsNotAsked) {
  EXPECT_CALL(mock_, forward).Times(0);
  for (const Case& test_case : {schedule_case(), memory_case()}) {
    const Verdict v = verdict_on(test_case);
    EXPECT_EQ(v.outcome, Outcome::unsupported);
    EXPECT_THAT(v.clauses, IsEmpty());
  }
  description_.schedule = ScheduleDeclaration();
  Case c = schedule_case();
  c.clauses = {"SCHED-2"};
  EXPECT_EQ(verdict_on(c).message, "does not declare schedule/masks_partial_only");
  c.clauses = {"SCHED-3"};
  EXPECT_EQ(verdict_on(c).message, "does not declare schedule/imbalance");
}

TEST_F(MockedTest, PromiseThatIsNotGivenIsNoLongerCited) {
  description_.schedule = ScheduleDeclaration();
  blocks_ = 2;
  Case c = schedule_case();
  c.clauses = {"SCHED-1", "SCHED-2", "SCHED-3"};
  c.problem.query_heads = c.problem.key_heads = 1;
  c.problem.backward = false;
  const Verdict v = verdict_on(c);
  EXPECT_EQ(v.outcome, Outcome::fail);
  EXPECT_THAT(v.clauses, ElementsAre("SCHED-1"));
  EXPECT_THAT(v.message, HasSubstr("lies in 2 blocks"));
  blocks_ = 1;
  EXPECT_EQ(verdict_on(c).outcome, Outcome::pass);
  size_ = 8;  // a block of a struct that ends before its fields is none
  EXPECT_THAT(verdict_on(c).message, HasSubstr("lies in no block"));
}

TEST_F(MockedTest, MoreBlocksThanAReplyHoldsConcludeNothing) {
  description_.schedule = ScheduleDeclaration();
  blocks_ = (1 << 16) + 1;
  Case c = schedule_case();
  c.problem.query_heads = c.problem.key_heads = 1;
  c.problem.backward = false;
  EXPECT_EQ(verdict_on(c).outcome, Outcome::inconclusive);
}

TEST_F(MockedTest, MemoryThatCannotBeMeasuredConcludesNothing) {
  description_.memory = MemoryDeclaration();
  EXPECT_EQ(verdict_on(memory_case()).outcome, Outcome::inconclusive);
}

}  // namespace
}  // namespace attest
