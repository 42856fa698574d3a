// attest gate, as a program or a person meets it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "spec/json_text.h"
#include "tests/harness/command.h"

namespace attest {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class GateCommandTest : public CommandFixture {
 protected:
  // A file of small ones.
  std::string shapes() const {
    const auto file = folder_ / "shapes.csv";
    std::ofstream(file) << "1,2,1,96,96,16,16,causal\n";
    return file.string();
  }
  // On small shapes, of one step and two rounds.
  Result gate(const std::string& arguments) {
    return attest_command("gate " + arguments + " --steps 1 --rounds 2 --shapes " + shapes() +
                          out());
  }
};

TEST_F(GateCommandTest, ARightKernelPassesAndItsSpeedIsARatio) {
  const Result told = gate("fa2 --baseline naive");
  EXPECT_EQ(told.exit_code, 0) << told.text;
  EXPECT_THAT(told.text, AllOf(StartsWith("Conformant: fa2. Judged 60 cases, 30 random problems, "),
                               HasSubstr("how many times as fast as naive\n"),
                               HasSubstr(" --steps 1 --rounds 2\nNext: attest run --testee fa2\n"),
                               Not(HasSubstr("wrong itself"))));
}

TEST_F(GateCommandTest, AWrongKernelIsToldByTheSmallestProblemsWithACommandThatRepeatsThem) {
  const Result told = gate("mutant:scale_squared --json --seed 1");
  EXPECT_EQ(told.exit_code, 1);
  const auto json = parse_json(told.text);
  EXPECT_EQ(json["verdict"], "not conformant");
  EXPECT_EQ(json["blamed"], "SCORE-1");
  EXPECT_THAT(json["did_you_mean"].get<std::string>(), HasSubstr("the scale twice"));
  EXPECT_TRUE(json["speeds"].empty());
  ASSERT_FALSE(json["counterexamples"].empty());
  const auto next = json["next"].get<std::string>();
  ASSERT_THAT(next, StartsWith("attest repro "));
  EXPECT_EQ(json["counterexamples"][0]["repro"], next);
  EXPECT_EQ(attest_command(next.substr(7)).exit_code, 1);
}

TEST_F(GateCommandTest, TheSeedIsHiddenAndRepeatsAll) {
  auto first = parse_json(gate("mutant:scale_squared --json").text);
  const auto other = parse_json(gate("mutant:scale_squared --json").text);
  EXPECT_NE(first["seed"], other["seed"]);
  EXPECT_EQ(first["verdict"], other["verdict"]);
  const auto again = parse_json(
      attest_command(first["again"].get<std::string>().substr(7) + " --json" + out()).text);
  for (const char* const same : {"verdict", "seed", "judged", "outcomes", "faults", "again"}) {
    EXPECT_EQ(again[same], first[same]) << same;
  }
}

TEST_F(GateCommandTest, WhatRepeatsItStartsTheKernelAsItWasStarted) {
  const auto told =
      parse_json(gate("mutant:scale_squared --json --env MINE --allow-network --threads 2").text);
  const std::string options = " --threads 2 --env MINE --allow-network";
  EXPECT_THAT(told["again"].get<std::string>(), HasSubstr(options));
  EXPECT_THAT(told["next"].get<std::string>(), HasSubstr(options));
}

TEST_F(GateCommandTest, ProcessesThatAKernelLeavesBehindAreTold) {
  EXPECT_THAT(gate(HACKS ":burdens_machine --baseline naive").text,
              AllOf(HasSubstr("\nUndecided: it leaves processes behind"),
                    HasSubstr("\nUndecided: it ignores the end of processes")));
  EXPECT_THAT(gate(HACKS ":honest").text, Not(HasSubstr("processes")));
}

TEST_F(GateCommandTest, WhoseCodeRunsIsNamedAsUndecidedWhereItIsNotTold) {
  const std::string rounds = " --rounds 3 --shapes " + shapes() + out();
  const auto text = [&](const std::string& kernel) {
    return attest_command("gate " HACKS ":" + kernel + rounds).text;
  };
  EXPECT_THAT(text("starts_processes"), HasSubstr("its calls start processes"));
  EXPECT_THAT(text("runs_from_memory"), HasSubstr("it runs code that no file holds"));
  EXPECT_THAT(text("copies_code"), HasSubstr("KiB of its code lie in memory alone"));
  EXPECT_THAT(text("honest"),
              AllOf(Not(HasSubstr("start processes")), Not(HasSubstr("no file holds")),
                    Not(HasSubstr("in memory alone"))));
}

TEST_F(GateCommandTest, ADropoutThatTheKernelDrawsIsTimedAndJudgedByItsOwnMask) {
  const auto file = folder_ / "draws.json";
  std::ofstream(file) << R"({"shapes": [{"name": "draws", "dtypes": ["f32"], "problem": {
    "query_heads": 2, "key_heads": 2, "query_len": 8, "key_len": 16, "head_dim": 64,
    "dropout": {"mode": "generated", "probability": 0.1, "seed": 7}}}]})"
                      << "\n";
  const Result told =
      attest_command("gate fa2 --steps 1 --rounds 3 --json --shapes " + file.string() + out());
  EXPECT_EQ(told.exit_code, 0) << told.text;
  EXPECT_GT(parse_json(told.text)["outcomes"].value("PASS", 0), 3) << told.text;
}

// It has two of the kernel, of which one meets the backward calls of what the other has seen.
TEST_F(GateCommandTest, WorkersThatAreTimedShareNothing) {
  const auto file = folder_ / "training.json";
  std::ofstream(file) << R"({"about": "It is timed.", "cases": [{
    "name": "small", "clauses": ["GRAD-1"], "because": "It is timed.", "dtypes": ["f32"],
    "problem": {"query_len": 8, "key_len": 8, "head_dim": 8, "backward": true},
    "data": ["normal"]}]})";
  for (const std::string kernel : {"sees_inputs", "finds_home_empty"}) {
    const Result told = attest_command("gate " HACKS ":" + kernel + " --rounds 6 --json --shapes " +
                                       file.string() + out());
    EXPECT_EQ(parse_json(told.text)["outcomes"], nlohmann::json({{"PASS", 6}})) << told.text;
  }
}

TEST_F(GateCommandTest, KernelsAreRankedByTheirSpeedIfTheyConform) {
  const auto shapes = folder_ / "shapes.csv";
  std::ofstream(shapes) << "1,2,1,96,96,16,16,causal\n";
  const auto kernels = folder_ / "kernels";
  std::filesystem::create_directory(kernels);
  std::ofstream(kernels / "no_kernel.so") << "nothing\n";
  std::ofstream(kernels / "notes.txt") << "nothing\n";
  const Result told = attest_command("rank mutant:scale_squared naive " + kernels.string() +
                                     " --steps 1 --rounds 3 --shapes " + shapes.string() + out());
  EXPECT_EQ(told.exit_code, 1) << told.text;
  EXPECT_THAT(told.text,
              AllOf(HasSubstr("3 of 3: no_kernel.so, not loaded\n"), HasSubstr("\n1      naive "),
                    HasSubstr("\nmutant:scale_squared: SCORE-1: "),
                    HasSubstr("1 of 3 kernels conforms; the fastest is naive: ")));
  EXPECT_THAT(contents(folder_ / "out" / "index.html"), HasSubstr("no_kernel.so"));
  EXPECT_EQ(attest_command("rank " + (folder_ / "out").string()).exit_code, 2);
  EXPECT_EQ(attest_command("rank nosuch").exit_code, 2);
}

TEST_F(GateCommandTest, WhatItCannotDoIsSaid) {
  EXPECT_THAT(gate("fa2 --budget 0").text, HasSubstr("--budget takes a number of seconds above 0"));
  EXPECT_THAT(attest_command("gate fa2 --budget 1x").text, HasSubstr("--budget takes a number"));
  for (const char* count : {"--steps 1", "--rounds 1"}) {
    const Result both = attest_command(fmt::format("gate fa2 --budget 5s {}", count));
    EXPECT_EQ(both.exit_code, 2);
    EXPECT_THAT(both.text, HasSubstr("--budget excludes --"));
  }
  EXPECT_THAT(attest_command("gate nosuch").text,
              HasSubstr("attest: nosuch: no bundled kernel of that name"));
  EXPECT_THAT(attest_command("gate fa2 --baseline nosuch").text,
              HasSubstr("attest: --baseline nosuch: no bundled kernel of that name"));
  EXPECT_THAT(attest_command("gate " MUTANTS " --budget 1").text,
              HasSubstr("kernels, and one is taken"));
  EXPECT_EQ(attest_command("gate fa2 --seed 0").exit_code, 2);
}

TEST_F(GateCommandTest, ShapesOfWhichTheKernelDeclaresNoneAreIncomplete) {
  const auto file = folder_ / "softcap.json";
  std::ofstream(file) << R"({"shapes": [{"name": "capped", "dtypes": ["f32"], "problem": {
    "query_heads": 2, "key_heads": 2, "query_len": 8, "key_len": 16, "head_dim": 64,
    "softcap": 20}}]})"
                      << "\n";
  const Result told = attest_command("gate " HACKS ":honest --steps 1 --rounds 2 --shapes " +
                                     file.string() + out());
  EXPECT_EQ(told.exit_code, 3) << told.text;
  EXPECT_THAT(told.text, AllOf(StartsWith("Incomplete: "),
                               HasSubstr("none of the shapes is what it declares")));
}

TEST_F(GateCommandTest, WhoseTimeIsUpBeforeAnythingWasWholeIsIncomplete) {
  const Result told = attest_command("gate fa2 --budget 0.001s" + out());
  EXPECT_EQ(told.exit_code, 3) << told.text;
  EXPECT_THAT(told.text, StartsWith("Incomplete: fa2."));
}

}  // namespace
}  // namespace attest
