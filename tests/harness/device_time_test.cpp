// Times of kernels on a device (harness/gate): of a mock, whose times are what it is made with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
struct Times {
  double clock, events;
};

// Right, with a word for its time.
class OnDevice : public Executor {
 public:
  explicit OnDevice(Times times) : times_(times), executor_(mock_.plugin()) {
    ON_CALL(mock_, forward).WillByDefault(plain::forward);
  }
  Reply execute(nlohmann::json request) override {
    Reply reply = executor_.execute(std::move(request));
    reply.wall_seconds = times_.clock;
    if (times_.events > 0) reply.body["device_seconds"] = times_.events;
    return reply;
  }
  Arena& arena(std::size_t bytes) override { return executor_.arena(bytes); }

 private:
  const Times times_;
  NiceMock<MockPlugin> mock_;
  InProcessExecutor executor_;
};

Description of_f32() {
  Description d = {.name = "mock",
                   .version = "1",
                   .vendor = "test",
                   .profiles = {},
                   .dtypes = {DType::f32},
                   .features = {},
                   .arithmetic = {},
                   .declared_arithmetic = {}};
  d.arithmetic[DType::f32] = loosest(DType::f32);
  return d;
}

GateResult timed(Times own, Times baseline, bool on_device = true) {
  const Testee testee = {.name = "mock/It",
                         .spec = "./mock.so",
                         .kernel = "mock",
                         .command = {},
                         .description = of_f32()};
  const std::vector<CaseWithEntry> nothing;
  TimedProblem problem = {.name = "small f32", .entry = {}, .data = {"normal"}};
  problem.entry = {{"name", "small"},
                   {"clauses", {"NUM-1"}},
                   {"because", "It is timed."},
                   {"problem", {{"query_len", 4}, {"key_len", 4}, {"head_dim", 8}}},
                   {"dtypes", {"f32"}},
                   {"data", {"normal"}},
                   {"bits", "gate"}};
  OnDevice first(own), second(baseline);
  const Contender it = {testee, first, 1, on_device}, other = {testee, second, 1, on_device};
  return pass_gate(
      {.cases = {}, .suite = nothing, .timed = {problem}}, it, &other, {.rounds = 8},
      [&](const Testee&) { return std::make_unique<OnDevice>(own); }, [] { return false; });
}

TEST(DeviceTimeTest, IsThatOfTheEventsOfBoth) {
  const GateResult result = timed({0.03, 0.001}, {0.04, 0.004});
  ASSERT_EQ(result.speeds.size(), 1u);
  EXPECT_TRUE(result.speeds[0].by_events);
  EXPECT_EQ(result.speeds[0].seconds.median, 0.001);
  EXPECT_EQ(result.speeds[0].ratio->median, 4);
  EXPECT_THAT(result.not_believed, IsEmpty());
}

TEST(DeviceTimeTest, IsTakenFromOutsideWhereOneHasNoEvents) {
  for (const auto& [own, baseline] : {std::pair<Times, Times>{{0.03, 0.001}, {0.06, 0}},
                                      std::pair<Times, Times>{{0.03, 0}, {0.06, 0.001}}}) {
    const GateResult result = timed(own, baseline);
    ASSERT_EQ(result.speeds.size(), 1u);
    EXPECT_FALSE(result.speeds[0].by_events);
    EXPECT_EQ(result.speeds[0].ratio->median, 2);
  }
}

TEST(DeviceTimeTest, IsNoWordOfAKernelThatRunsOnNone) {
  const GateResult result = timed({0.03, 0.001}, {0.06, 0.001}, false);
  ASSERT_EQ(result.speeds.size(), 1u);
  EXPECT_FALSE(result.speeds[0].by_events);
  EXPECT_EQ(result.speeds[0].seconds.median, 0.03);
}

TEST(DeviceTimeTest, IsNotLongerThanTheCall) {
  EXPECT_FALSE(timed({0.03, 0.04}, {0.03, 0.001}).speeds.at(0).by_events);
}

TEST(DeviceTimeTest, IsNotBelievedWhereEventsLeaveOutMoreThanThoseOfTheBaseline) {
  const GateResult result = timed({0.04, 0.001}, {0.025, 0.004});
  ASSERT_EQ(result.not_believed.size(), 1u);
  EXPECT_THAT(result.not_believed[0],
              HasSubstr("by the events of its device a call takes 0.001 s, and seen from outside "
                        "0.018 s more"));
  EXPECT_THAT(result.speeds, IsEmpty());
}

TEST(DeviceTimeTest, IsBelievedWhereTheBaselineLeavesOutMore) {
  EXPECT_THAT(timed({0.025, 0.004}, {0.06, 0.004}).not_believed, IsEmpty());
}

}  // namespace
}  // namespace attest
