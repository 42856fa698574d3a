// attest limits, as a user meets it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "spec/json_reader.h"
#include "spec/json_text.h"
#include "tests/harness/command.h"

namespace attest {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class LimitsCommandTest : public CommandFixture {};

TEST_F(LimitsCommandTest, TellsTheLeastFaultThatTheCasesAndRandomProblemsSee) {
  const Result result =
      attest_command("limits --tier smoke --fault exp --fault 'key lost' --fuzz 20" + out());
  EXPECT_EQ(result.exit_code, 0) << result.text;
  EXPECT_THAT(result.text, AllOf(HasSubstr("\nThe smoke tier (15"), HasSubstr("Random problems ("),
                                 HasSubstr("\nkey lost  f32"), Not(HasSubstr("log2 e")),
                                 Not(HasSubstr("FALSE ALARM"))));
  const auto json = parse_json(contents(folder_ / "out" / "limits.json"));
  EXPECT_EQ(json["command"],
            "attest limits --tier smoke --fuzz 20 --fault 'exp' --fault 'key lost'");
  EXPECT_EQ(json["columns"].size(), 2u);
  EXPECT_THAT(contents(folder_ / "out" / "limits.md"), HasSubstr("# Detection limits"));
  const Result again = attest_command(json["command"].get<std::string>().substr(7) + out());
  auto second = parse_json(contents(folder_ / "out" / "limits.json"));
  second["wall_s"] = json["wall_s"];
  EXPECT_EQ(second, json);
}

TEST_F(LimitsCommandTest, AFaultThatThereIsNotIsToldWithThoseThatThereAre) {
  const Result result = attest_command("limits --fault typo" + out());
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.text,
              AllOf(HasSubstr("there is no fault \"typo\"; there are"), HasSubstr("key doubled")));
}

}  // namespace
}  // namespace attest
