// attest selfcheck --instances, as a user meets it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "spec/json_text.h"
#include "tests/harness/command.h"

namespace attest {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class InstancesCommandTest : public CommandFixture {
 protected:
  void SetUp() override {
    CommandFixture::SetUp();
    std::filesystem::create_directories(folder_ / "tables");
    std::ofstream(folder_ / "tables" / "narrow.json")
        << R"({"system": "a", "sources": ["b"], "about": "c", "passes": "forward", "points":
               [{"of": "dtype", "values": ["bf16"]}, {"of": "head_dim", "up_to": [16, 64]}]})";
  }

  Result swept(const std::string& more) const {
    return attest_command("selfcheck --instances 6 --random 60 --tier smoke --dispatch " +
                          (folder_ / "tables").string() + more + out());
  }
};

TEST_F(InstancesCommandTest, TheSameSeedSeesTheSameWhateverTheJobs) {
  const Result result = swept(" --jobs 1");
  EXPECT_THAT(result.text, AllOf(HasSubstr("\nnarrow "), HasSubstr("\ncases were made with "),
                                 HasSubstr("Of 6 mutants that are wrong in one instance")));
  const std::string told = contents(folder_ / "out" / "instances.json");
  EXPECT_THAT(told, HasSubstr("\"seen_by\": \"a case\""));
  EXPECT_EQ(swept(" --jobs 3").exit_code, result.exit_code);
  EXPECT_EQ(contents(folder_ / "out" / "instances.json"), told);
  swept(" --seed 2");
  EXPECT_NE(contents(folder_ / "out" / "instances.json"), told);
}

TEST_F(InstancesCommandTest, ADispatchThatIsDeclaredIsMetByMoreCases) {
  std::ofstream(folder_ / "tables" / "narrow.json")
      << R"({"system": "a", "sources": ["b"], "about": "c", "passes": "forward", "points":
             [{"of": "head_dim", "up_to": [41, 43, 45, 47]}, {"of": "head_dim", "up_to": [64]}]})";
  const auto fewest = [&](const std::string& more) {
    swept(more);
    const auto told = parse_json(contents(folder_ / "out" / "instances.json"));
    int cases = std::numeric_limits<int>::max();
    for (const auto& each : told["mutants"]) cases = std::min(cases, each["cases"].get<int>());
    return cases;
  };
  EXPECT_EQ(fewest(""), 0);
  EXPECT_GE(fewest(" --declared"), 1);
}

TEST_F(InstancesCommandTest, ATableThatIsNotUnderstoodIsNamed) {
  std::ofstream(folder_ / "tables" / "narrow.json") << "{}";
  const Result result = swept("");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.text, HasSubstr("narrow.json"));
}

}  // namespace
}  // namespace attest
