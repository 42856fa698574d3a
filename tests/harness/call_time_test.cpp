#include "harness/process/call_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attest {
namespace {

using std::chrono::milliseconds;

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
