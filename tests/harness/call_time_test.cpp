#include "harness/process/call_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace attest {
namespace {

using std::chrono::milliseconds;

TEST(CallTimeTest, LargeProblemsMayTakeLonger) {
  const nlohmann::json small = {{"batch", 2},     {"query_heads", 4}, {"query_len", 128},
                                {"key_len", 128}, {"head_dim", 64},   {"value_dim", 64}};
  EXPECT_NEAR(limit_for({{"problem", small}}, 60), 60, 0.01);
  nlohmann::json large = small;
  for (const char* length : {"query_len", "key_len"}) large[length] = 1'000'000;
  EXPECT_NEAR(limit_for({{"problem", large}}, 60), 60 + 8e12 * 128 / 2e9, 1);
  EXPECT_EQ(limit_for({{"op", "describe"}}, 60), 60);
}

// A family without processes, which never computes.
TEST(CallTimeTest, WhoIsSeenIdleForAsLongAsTheLimitHasPassedIt) {
  CallTime time(1);
  const auto start = CallTime::Clock::now();
  for (int look = 0; look <= 19; ++look) time.look({}, start + look * milliseconds(50));
  EXPECT_FALSE(time.passed());
  time.look({}, start + milliseconds(1050));
  EXPECT_THAT(time.passed().value_or(""), testing::HasSubstr("in which it was idle"));
}

TEST(CallTimeTest, WhoWasNotLookedAtForLongIsNotTakenForIdle) {
  CallTime time(1);
  const auto start = CallTime::Clock::now();
  time.look({}, start);
  time.look({}, start + milliseconds(5000));
  EXPECT_FALSE(time.passed());
  EXPECT_LT(time.spent().idle_s, 0.5);
}

TEST(CallTimeTest, TenTimesTheLimitIsTooLongWhateverWasSeen) {
  CallTime time(1);
  const auto start = CallTime::Clock::now();
  time.look({}, start);
  time.look({}, start + milliseconds(9900));
  EXPECT_FALSE(time.passed());
  time.look({}, start + milliseconds(10100));
  EXPECT_THAT(time.passed().value_or(""), testing::HasSubstr("10 times the limit"));
}

}  // namespace
}  // namespace attest
