// attest run --shapes, as a user meets it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "spec/record.h"
#include "tests/harness/command.h"

namespace attest {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kFarKeys = std::string(" --testee ") + FAR_KEYS + ":far_keys/";

class ShapesCommandTest : public CommandFixture {
 protected:
  std::string shapes(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return " --shapes " + (folder_ / name).string();
  }
};

TEST_F(ShapesCommandTest, ShapesOfAFileAreJudgedAndNoProfileIsConcluded) {
  const std::string mine = shapes("mine.csv",
                                  "B,Hq,Hkv,Sq,Sk,D,mask,backward\n"
                                  "1,4,2,70,70,32,causal,true\n"
                                  "2,4,4,1,300,64,full,\n");
  const Result result = attest_command("run --testee fa2" + mine + out());
  EXPECT_EQ(result.exit_code, 0) << result.text;
  EXPECT_THAT(result.text, AllOf(HasSubstr("No failure in 21 of 21 cases (shapes in use"),
                                 Not(HasSubstr("Conformant"))));
  const Record r = record();
  ASSERT_EQ(r.header.shapes.size(), 1u);
  EXPECT_EQ(r.header.shapes[0], (folder_ / "mine.csv").string());
  EXPECT_FALSE(r.header.cases.bundled);
  EXPECT_EQ(r.verdicts.size(), 21u);
  for (const VerdictRecord& v : r.verdicts) EXPECT_THAT(v.verdict.repro, HasSubstr("--shapes "));
  const Result again = attest_command("verify --rerun 3 " + (folder_ / "out").string());
  EXPECT_EQ(again.exit_code, 0) << again.text;
  EXPECT_THAT(again.text, HasSubstr("3 of 3 verdicts repeated agree"));
  std::ofstream(folder_ / "mine.csv", std::ios::app) << "1,1,1,1,1,1,full,\n";
  EXPECT_THAT(attest_command("verify " + (folder_ / "out").string()).text,
              HasSubstr("the shapes are not those of the run"));
}

TEST_F(ShapesCommandTest, AKernelThatLosesFarKeysOf32HeadsIsCaughtByTheShapesThatHaveThem) {
  const std::string shape = shapes("far.csv", "1,32,8,2,4224,64,64,full\n");
  const Result right = attest_command("run" + kFarKeys + "none" + shape + out());
  EXPECT_EQ(right.exit_code, 0) << right.text;
  const Result wrong = attest_command("run" + kFarKeys + "lost" + shape + out());
  EXPECT_EQ(wrong.exit_code, 1) << wrong.text;
  EXPECT_THAT(wrong.text, HasSubstr("FAIL(bound)"));
  for (const VerdictRecord& v : record().verdicts) {
    EXPECT_EQ(v.verdict.outcome, v.dtype == "f32" ? Outcome::fail : Outcome::unsupported)
        << v.case_id;
  }
  const std::string near = shapes("near.csv",
                                  "1,16,8,2,4224,64,64,full\n"
                                  "1,32,8,2,4096,64,64,full\n");
  EXPECT_EQ(attest_command("run" + kFarKeys + "lost" + near + out()).exit_code, 0);
}

TEST_F(ShapesCommandTest, OfAnExcerptTheSameKernelIsCaughtAndTheShareIsSaid) {
  const std::string shape =
      shapes("part.json", R"([{"name": "part", "dtypes": ["f32"], "data": ["normal"],
    "problem": {"query_heads": 32, "key_heads": 8, "query_len": 24, "key_len": 4160, "head_dim": 32},
    "excerpt": {"groups": 2, "query_heads": 4, "key_heads": 1}}])");
  const Result right = attest_command("run" + kFarKeys + "none" + shape + out());
  EXPECT_EQ(right.exit_code, 0) << right.text;
  EXPECT_THAT(right.text,
              HasSubstr("Compared in part: 1 case, of the least 8.3% of O, 8.3% of LSE."));
  const Verdict v = record().verdicts.at(0).verdict;
  EXPECT_EQ(v.tensors.at(TensorName::o).compared, 4 * 16 * 32);
  EXPECT_EQ(v.tensors.at(TensorName::o).elements, 32 * 24 * 32);
  EXPECT_EQ(v.message, "compared: O 2048 of 24576, LSE 64 of 768 elements");
  EXPECT_THAT(contents(folder_ / "out" / "index.html"), HasSubstr("Compared in part"));
  EXPECT_EQ(attest_command("run" + kFarKeys + "lost" + shape + out()).exit_code, 1);
}

TEST_F(ShapesCommandTest, AShapeOutsideADeclarationIsUnsupportedAndNamesWhatIsMissing) {
  const std::string shape = shapes("wide.csv",
                                   "B,Hq,Hkv,Sq,Sk,D,softcap\n"
                                   "1,2,2,3,4,8,20\n");
  attest_command("run" + kFarKeys + "none" + shape + out());
  for (const VerdictRecord& v : record().verdicts) {
    EXPECT_EQ(v.verdict.outcome, Outcome::unsupported);
    EXPECT_THAT(v.case_id, Not(HasSubstr("fit=")));
    EXPECT_THAT(v.verdict.message, HasSubstr(v.dtype == "f32" ? "softcap" : v.dtype));
  }
}

TEST_F(ShapesCommandTest, PresetsAreListedAndNamed) {
  const Result listed = attest_command("list --shapes");
  EXPECT_EQ(listed.exit_code, 0);
  EXPECT_THAT(listed.text, AllOf(HasSubstr("llama3_8b"), HasSubstr("deepseek_v3")));
  const Result cases = attest_command("list --shapes gpt_oss");
  EXPECT_THAT(cases.text, HasSubstr("shapes/gpt_oss/decode_window/dtype=bf16/data=normal/s=1"));
  EXPECT_THAT(attest_command("list --shapes --json").text, HasSubstr("config.json"));
}

TEST_F(ShapesCommandTest, MistakesExitWithTwoAndSayWhatAndWhere) {
  const auto fails = [&](const std::string& arguments) {
    const Result result = attest_command("run --testee fa2 " + arguments + out());
    EXPECT_EQ(result.exit_code, 2) << result.text;
    return result.text;
  };
  EXPECT_THAT(fails("--shapes nowhere"),
              HasSubstr("there is neither such a file nor such a preset"));
  EXPECT_THAT(fails(shapes("bad.csv", "1,2\n")), HasSubstr("bad.csv:1: 2 columns"));
  EXPECT_THAT(fails("--from x" + shapes("good.csv", "1,1,1,1,1,1,1\n")), HasSubstr("--from"));
}

}  // namespace
}  // namespace attest
