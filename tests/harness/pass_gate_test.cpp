// The gate (harness/gate), of a mock whose times and lacks are what it is made with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "harness/gate/gate.h"
#include "harness/process/in_process.h"
#include "tests/harness/mock_plugin.h"
#include "tests/harness/plain_kernel.h"

namespace attest {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::NiceMock;

// Of each call, seconds: seen from outside, and as its events have it; 0: they have none.
struct Ways {
  double clock, events;
  bool counted = true;   // whether its threads' time is known
  bool lacks = false;    // memory, in every second call
  bool is_long = false;  // its timed problem, in bf16, for which it returns zeros
};

constexpr Index kLongDim = 8;

class Mock : public Executor {
 public:
  explicit Mock(Ways ways) : ways_(ways), executor_(mock_.plugin()) {
    ON_CALL(mock_, forward).WillByDefault(ways.is_long ? zeros : plain::forward);
  }
  Reply execute(nlohmann::json request) override {
    Reply reply = executor_.execute(std::move(request));
    reply.wall_seconds = ways_.clock;
    if (ways_.counted) reply.cpu_seconds = ways_.clock;
    if (ways_.events > 0) reply.body["device_seconds"] = ways_.events;
    if (ways_.lacks && calls_++ % 2 == 1) {
      reply.body = {{"status", "error"}, {"reason", "no_memory"}, {"message", "none"}};
    }
    return reply;
  }
  Arena& arena(std::size_t bytes) override { return executor_.arena(bytes); }

 private:
  static attest_status zeros(const attest_problem&, const attest_inputs&, const attest_outputs& out,
                             const attest_context&) {
    std::memset(out.o.data, 0, kLongDim * sizeof(std::uint16_t));
    return ATTEST_OK;
  }

  const Ways ways_;
  int calls_ = 0;
  NiceMock<MockPlugin> mock_;
  InProcessExecutor executor_;
};

Description of(DType dtype) {
  Description d = {.name = "mock",
                   .version = "1",
                   .vendor = "test",
                   .profiles = {},
                   .dtypes = {dtype},
                   .features = {"long"},
                   .arithmetic = {},
                   .declared_arithmetic = {}};
  d.arithmetic[dtype] = loosest(dtype);
  return d;
}

GateResult passed(Ways own, Ways baseline, bool on_device, const GateOptions& options,
                  bool is_timed = true) {
  const Testee testee = {.name = "mock/It",
                         .spec = "./mock.so",
                         .kernel = "mock",
                         .command = {},
                         .description = of(own.is_long ? DType::bf16 : DType::f32)};
  const std::vector<CaseWithEntry> nothing;
  TimedProblem problem = {.name = "small f32", .entry = {}, .data = {"normal"}};
  problem.entry = {{"name", "small"},
                   {"clauses", {"NUM-1"}},
                   {"because", "It is timed."},
                   {"problem", {{"query_len", 4}, {"key_len", 4}, {"head_dim", 8}}},
                   {"dtypes", {"f32"}},
                   {"data", {"normal"}},
                   {"bits", "gate"}};
  if (own.is_long) {
    problem.entry["problem"] = {{"query_len", 1}, {"key_len", 65536}, {"head_dim", kLongDim}};
    problem.entry["dtypes"] = {"bf16"};
  }
  Mock first(own), second(baseline);
  const auto has_device = [on_device] { return on_device; };
  const Contender it = {.testee = testee, .executor = first, .on_device = has_device},
                  other = {.testee = testee, .executor = second, .on_device = has_device};
  GateTasks tasks = {.cases = {}, .suite = nothing};
  if (is_timed) tasks.timed = {problem};
  return pass_gate(
      tasks, it, &other, options, [&](const Testee&) { return std::make_unique<Mock>(own); },
      [] { return false; });
}

GateResult timed(Ways own, Ways baseline, bool on_device = true) {
  return passed(own, baseline, on_device, {.rounds = 8});
}

TEST(PassGateTest, DeviceTimeIsThatOfTheEventsOfBoth) {
  const GateResult result = timed({0.03, 0.001}, {0.04, 0.004});
  ASSERT_EQ(result.speeds.size(), 1u);
  EXPECT_TRUE(result.speeds[0].by_events);
  EXPECT_EQ(result.speeds[0].seconds.median, 0.001);
  EXPECT_EQ(result.speeds[0].ratio->median, 4);
  EXPECT_THAT(result.not_believed, IsEmpty());
}

TEST(PassGateTest, DeviceTimeIsTakenFromOutsideWhereOneHasNoEvents) {
  for (const auto& [own, baseline] : {std::pair<Ways, Ways>{{0.03, 0.001}, {0.06, 0}},
                                      std::pair<Ways, Ways>{{0.03, 0}, {0.06, 0.001}}}) {
    const GateResult result = timed(own, baseline);
    ASSERT_EQ(result.speeds.size(), 1u);
    EXPECT_FALSE(result.speeds[0].by_events);
    EXPECT_EQ(result.speeds[0].ratio->median, 2);
  }
}

TEST(PassGateTest, DeviceTimeIsNoWordOfAKernelThatRunsOnNone) {
  const GateResult result = timed({0.03, 0.001}, {0.06, 0.001}, false);
  ASSERT_EQ(result.speeds.size(), 1u);
  EXPECT_FALSE(result.speeds[0].by_events);
  EXPECT_EQ(result.speeds[0].seconds.median, 0.03);
}

TEST(PassGateTest, DeviceTimeIsNotLongerThanTheCall) {
  EXPECT_FALSE(timed({0.03, 0.04}, {0.03, 0.001}).speeds.at(0).by_events);
}

TEST(PassGateTest, DeviceTimeIsNotBelievedWhereEventsLeaveOutMoreThanThoseOfTheBaseline) {
  const GateResult result = timed({0.04, 0.001}, {0.025, 0.004});
  ASSERT_EQ(result.not_believed.size(), 1u);
  EXPECT_THAT(result.not_believed[0],
              HasSubstr("by the events of its device a call takes 0.001 s, and seen from outside "
                        "0.018 s more"));
  EXPECT_THAT(result.speeds, IsEmpty());
}

TEST(PassGateTest, DeviceTimeIsBelievedWhereTheBaselineLeavesOutMore) {
  EXPECT_THAT(timed({0.025, 0.004}, {0.06, 0.004}).not_believed, IsEmpty());
}

TEST(PassGateTest, CallOfWhichItIsNotKnownOnHowManyThreadsItComputesIsNotBelieved) {
  EXPECT_THAT(timed({0.03, 0}, {0.03, 0}, false).not_believed, IsEmpty());
  EXPECT_THAT(timed({0.03, 0, false}, {0.03, 0}, false).not_believed,
              testing::ElementsAre(HasSubstr("cannot be told")));
}

TEST(PassGateTest, NoTimeIsTakenWhereZerosWouldPass) {
  const Ways zeros = {.clock = 0.03, .events = 0, .is_long = true};
  const GateResult result = passed(zeros, zeros, false, {.rounds = 2});
  EXPECT_THAT(result.outcomes, testing::ElementsAre(testing::Pair("INCONCLUSIVE", 2)));
  EXPECT_THAT(result.untold, testing::ElementsAre(HasSubstr("zeros would pass for O")));
  EXPECT_THAT(result.speeds, IsEmpty());
}

TEST(PassGateTest, WhatThereIsNoMemoryForLeavesItIncomplete) {
  const GateOptions options = {.steps = 1, .rounds = 1};
  EXPECT_TRUE(passed({0.03, 0}, {0.03, 0}, false, options).whole);
  const GateResult result = passed({0.03, 0, true, true}, {0.03, 0}, false, options);
  EXPECT_FALSE(result.whole);
  EXPECT_GT(result.outcomes.at("PASS"), 0);
}

TEST(PassGateTest, RoundsAreNotWaitedForWhereNothingIsTimed) {
  const GateResult result = passed({0.03, 0}, {0.03, 0}, false, {.steps = 1, .rounds = 3}, false);
  EXPECT_TRUE(result.whole);
  EXPECT_EQ(result.rounds, 0u);
  EXPECT_EQ(result.steps, 1u);
}

}  // namespace
}  // namespace attest
