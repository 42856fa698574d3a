#include "harness/process/pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "harness/process/arena.h"
#include "harness/process/worker.h"

namespace attest {
namespace {

// Counts how many there are of each testee.
class Counted : public Executor {
 public:
  Counted(std::map<std::string, int>& alive, const std::string& name) : alive_(alive[name]) {
    ++alive_;
  }
  ~Counted() override { --alive_; }
  Reply execute(nlohmann::json) override { return {}; }
  Arena& arena(std::size_t) override { throw std::logic_error("nobody asks"); }

 private:
  int& alive_;
};

class PoolTest : public testing::Test {
 protected:
  Testee testee(const std::string& name) {
    Testee testee;
    testee.name = name;
    return testee;
  }
  ExecutorPool::Lease take(ExecutorPool& pool, const std::string& name) {
    return pool.take(name, testee(name));
  }
  int all() const {
    int sum = 0;
    for (const auto& [name, count] : alive_) sum += count;
    return sum;
  }

  std::map<std::string, int> alive_;
  MakeExecutor make_ = [this](const Testee& t) {
    return std::make_unique<Counted>(alive_, t.name);
  };
};

TEST_F(PoolTest, WhatServedATesteeServesItAgain) {
  ExecutorPool pool(make_, 4);
  const Executor* const first = &*take(pool, "a");
  take(pool, "b");
  EXPECT_EQ(&*take(pool, "a"), first);
}

TEST_F(PoolTest, ExecutorServesOneJobAtATime) {
  ExecutorPool pool(make_, 4);
  const auto one = take(pool, "a"), other = take(pool, "a");
  EXPECT_NE(&*one, &*other);
}

TEST_F(PoolTest, LeastUsedIsDismissedWhereTooManyWouldBe) {
  ExecutorPool pool(make_, 2);
  take(pool, "a");
  take(pool, "b");
  take(pool, "a");
  take(pool, "c");
  EXPECT_EQ(alive_["a"], 1);
  EXPECT_EQ(alive_["b"], 0);
}

TEST_F(PoolTest, ThereAreNoMoreThanAllowedHoweverManyTesteesThereAre) {
  ExecutorPool pool(make_, 3);
  for (int i = 0; i < 20; ++i) {
    const auto one = take(pool, std::to_string(i % 7)), other = take(pool, std::to_string(i % 5));
    EXPECT_LE(all(), 3);
  }
}

TEST_F(PoolTest, WhomNobodyAsksForAnyMoreIsForgotten) {
  ExecutorPool pool(make_, 4);
  take(pool, "a");
  take(pool, "b");
  pool.forget("a");
  EXPECT_EQ(alive_["a"], 0);
  EXPECT_EQ(alive_["b"], 1);
}

TEST(CrewTest, SixtyFourJobsFitIntoTwoHundredAndFiftySixFiles) {
  const Crew crew = crew_for(64, 256, 10);
  EXPECT_GE(crew.jobs, 16);
  EXPECT_GE(crew.workers, static_cast<std::size_t>(crew.jobs));
}

TEST(CrewTest, AUsualLimitLeavesEveryJob) { EXPECT_EQ(crew_for(16, 1024, 10).jobs, 16); }

TEST(CrewTest, ThereIsAlwaysOneJob) { EXPECT_EQ(crew_for(64, 20, 10).jobs, 1); }

RC_GTEST_PROP(CrewTest, NeverOpensMoreThanItMay, ()) {
  const auto jobs = *rc::gen::inRange(1, 1025);
  const auto files = *rc::gen::inRange<std::size_t>(128, 100000);
  const Crew crew = crew_for(jobs, files, 10);
  RC_ASSERT(crew.jobs <= jobs);
  RC_ASSERT(10 + crew.workers * kDescriptorsOfAWorker + kStartsAtOnce * kDescriptorsOfAStart +
                static_cast<std::size_t>(crew.jobs) * 3 <=
            files);
}

}  // namespace
}  // namespace attest
