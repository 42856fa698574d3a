#include "spec/verdict.h"

#include <gtest/gtest.h>

#include <map>

namespace attest {
namespace {

TEST(VerdictTest, EveryOutcomeHasItsNameAndIsFoundByIt) {
  const std::map<Outcome, std::string_view> names = {{Outcome::pass, "PASS"},
                                                     {Outcome::warn, "WARN"},
                                                     {Outcome::fail, "FAIL"},
                                                     {Outcome::unsupported, "UNSUPPORTED"},
                                                     {Outcome::inconclusive, "INCONCLUSIVE"},
                                                     {Outcome::crash, "CRASH"},
                                                     {Outcome::timeout, "TIMEOUT"},
                                                     {Outcome::protocol_error, "PROTOCOL_ERROR"},
                                                     {Outcome::harness_error, "HARNESS_ERROR"},
                                                     {Outcome::not_run, "NOT_RUN"}};
  EXPECT_EQ(names.size(), static_cast<std::size_t>(Outcome::not_run) + 1) << "all outcomes";
  for (const auto& [outcome, expected] : names) {
    EXPECT_EQ(name(outcome), expected);
    EXPECT_EQ(outcome_named(expected), outcome);
  }
  EXPECT_FALSE(outcome_named("pass"));
  EXPECT_FALSE(outcome_named(""));
}

TEST(VerdictTest, OnlyPassAndWarnConform) {
  for (int i = 0; i <= static_cast<int>(Outcome::not_run); ++i) {
    const auto outcome = static_cast<Outcome>(i);
    EXPECT_EQ(conforms(outcome), outcome == Outcome::pass || outcome == Outcome::warn);
  }
}

TEST(VerdictTest, IsNotRunUntilSomethingIsKnown) { EXPECT_EQ(Verdict{}.outcome, Outcome::not_run); }

}  // namespace
}  // namespace attest
