#include "harness/process/stage.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

namespace attest {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMoment = 1e-3;  // seconds

double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

void work_for_a_moment() {
  for (const auto start = Clock::now(); seconds_since(start) < kMoment;) continue;
}

double spent_in(const std::string& stage) {
  const auto all = stage_seconds();
  const auto place = all.find(stage);
  return place == all.end() ? 0 : place->second;
}

TEST(StageTest, WhatAnInnerStageTakesTheOuterOneDoesNot) {
  const double law = spent_in("law"), write = spent_in("write");
  const auto start = Clock::now();
  {
    const InStage outer(RunStage::law);
    work_for_a_moment();
    {
      const InStage inner(RunStage::write);
      work_for_a_moment();
    }
    work_for_a_moment();
  }
  const double all = seconds_since(start), outer = spent_in("law") - law,
               inner = spent_in("write") - write;
  EXPECT_GE(outer, 2 * kMoment);
  EXPECT_GE(inner, kMoment);
  EXPECT_LE(outer + inner, all);
}

TEST(StageTest, ThreadsAreInStagesOfTheirOwn) {
  const double encode = spent_in("encode");
  const InStage here(RunStage::decode);
  std::thread([] {
    work_for_a_moment();
    const InStage there(RunStage::encode);
    work_for_a_moment();
  }).join();
  EXPECT_GE(spent_in("encode") - encode, kMoment);
}

TEST(StageTest, OutsideOfStagesNothingIsCounted) {
  const auto before = stage_seconds();
  work_for_a_moment();
  EXPECT_EQ(stage_seconds(), before);
}

}  // namespace
}  // namespace attest
