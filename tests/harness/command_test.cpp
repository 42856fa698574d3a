// The command `attest` as a user meets it: what it prints, what it leaves, how it exits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "spec/json_reader.h"
#include "spec/json_text.h"
#include "spec/record.h"
#include "tests/harness/command.h"

namespace attest {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class CommandTest : public CommandFixture {
 protected:
  // A folder of cases with that one file, for ATTEST_CASES.
  void write_cases(const std::string& text) {
    std::ofstream(folder_ / "mine.json") << text;
    setenv("ATTEST_CASES", folder_.c_str(), 1);
  }
};

const std::string kMutants = std::string(" --testee ") + MUTANTS + ":mutant/";

TEST_F(CommandTest, RunOfTheSmokeTierHasNoFailureAndLeavesEveryReport) {
  const Result result = attest_command("run --tier smoke" + out());
  EXPECT_EQ(result.exit_code, 0) << result.text;
  EXPECT_THAT(result.text, AllOf(HasSubstr("fa2"), HasSubstr("naive"), HasSubstr("index.html")));
  for (const char* file :
       {"results.jsonl", "report.json", "junit.xml", "summary.md", "index.html"}) {
    EXPECT_GT(fs::file_size(folder_ / "out" / file), 100u) << file;
  }
  EXPECT_TRUE(record().footer);
}

TEST_F(CommandTest, SameRunTwiceIsTheSameRecordButForItsTimes) {
  const auto verdicts = [&](const std::string& more) {
    attest_command("run --tier smoke --testee fa2" + more + out());
    std::string text;
    Record r = record();
    for (VerdictRecord& v : r.verdicts) {
      v.verdict.wall_s = 0;
      text += to_line(v);
    }
    return text;
  };
  const std::string once = verdicts(" --jobs 2");
  EXPECT_EQ(once, verdicts(" --jobs 1"));
  EXPECT_NE(once, verdicts(" --seed 2"));
}

TEST_F(CommandTest, WrongKernelExitsWithOneAndAReproLineThatRepeatsTheWorstElement) {
  const Result result =
      attest_command("run --tier smoke --cases 'mask/**'" + kMutants + "top_left" + out());
  EXPECT_EQ(result.exit_code, 1) << result.text;
  const Record r = record();
  int repeated = 0;
  for (const VerdictRecord& v : r.verdicts) {
    if (v.verdict.outcome != Outcome::fail || repeated == 5) continue;
    ++repeated;
    ASSERT_EQ(v.verdict.repro.substr(0, 7), "attest ");
    const Result again =
        attest_command(v.verdict.repro.substr(7) + " --dump " + (folder_ / "dump").string());
    EXPECT_EQ(again.exit_code, 1) << again.text;
    const auto dumped = parse_json(contents(folder_ / "dump" / "problem.json"));
    for (const auto& [tensor, evidence] : v.verdict.tensors) {
      const auto& e = dumped.at("tensors").at(std::string(name(tensor)));
      EXPECT_EQ(e.at("worst").get<std::vector<Index>>(), evidence.worst);
      EXPECT_EQ(number_from_json(e.at("actual")), evidence.actual);
      EXPECT_EQ(number_from_json(e.at("exact")), evidence.exact);
      EXPECT_EQ(number_from_json(e.at("bound")), evidence.bound);
    }
  }
  EXPECT_EQ(repeated, 5);
}

TEST_F(CommandTest, ReproDumpsEverythingAboutACase) {
  const Result listed = attest_command("list --tier smoke --cases 'grad/**'");
  const auto begin = listed.text.find("grad/");
  const std::string id = listed.text.substr(begin, listed.text.find('\n', begin) - begin);
  const Result result =
      attest_command("repro " + id + " --testee naive --dump " + (folder_ / "dump").string());
  EXPECT_EQ(result.exit_code, 0) << result.text;
  for (const char* file :
       {"problem.json", "q.npy", "k.npy", "v.npy", "d_o.npy", "O.npy", "O.exact.npy", "O.bound.npy",
        "LSE.npy", "dQ.npy", "dK.exact.npy", "dV.bound.npy"}) {
    EXPECT_TRUE(fs::exists(folder_ / "dump" / file)) << file;
  }
  const auto entry = parse_json(contents(folder_ / "dump" / "problem.json")).at("entry");
  EXPECT_TRUE(entry.contains("problem")) << entry;
  EXPECT_THAT(attest_command("list --cases " + id + "/fit=d:64").text, HasSubstr(id));
  const std::string fitted = (folder_ / "fitted").string();
  EXPECT_EQ(attest_command("repro " + id + "/fit=d:64 --testee naive --dump " + fitted).exit_code,
            0);
  EXPECT_TRUE(fs::exists(folder_ / "fitted" / "O.npy"));
  // What is expected does not depend on what came back.
  const std::string other = (folder_ / "crash").string();
  EXPECT_EQ(attest_command("repro " + id + kMutants + "crash --dump " + other).exit_code, 1);
  EXPECT_FALSE(fs::exists(folder_ / "crash" / "O.npy"));
  EXPECT_TRUE(fs::exists(folder_ / "crash" / "dV.exact.npy"));
  const Result in_process = attest_command("repro " + id + " --testee naive --in-process");
  EXPECT_EQ(in_process.exit_code, 0);
  EXPECT_THAT(in_process.text, HasSubstr("no isolation, no guards, no limits"));
}

TEST_F(CommandTest, DoctorTellsWhatTheMachineAllows) {
  const Result lines = attest_command("doctor");
  EXPECT_EQ(lines.exit_code, 0) << lines.text;
  const auto facts = nlohmann::json::parse(attest_command("doctor --json").text);
  for (const char* what : {"attest", "processor", "memory", "glibc", "isolation", "network",
                           "counters", "gpu", "python"}) {
    ASSERT_TRUE(facts.contains(what)) << what;
    EXPECT_THAT(lines.text, HasSubstr(std::string(what) + " "));
    EXPECT_NE(facts[what], "");
  }
  const std::string isolation = facts["isolation"];
  attest_command("run --testee fa2 --cases format/formats/f32/dtype=f32/data=normal" + out());
  EXPECT_THAT(isolation, HasSubstr("(" + record().header.isolation + ")"));
}

TEST_F(CommandTest, FilteredRunProvesNoProfileUnlessNoneIsAskedFor) {
  EXPECT_EQ(attest_command("run --testee naive --tier smoke --cases 'mask/**'" + out()).exit_code,
            3);
  EXPECT_EQ(
      attest_command("run --testee naive --tier smoke --cases 'mask/**' --profile none" + out())
          .exit_code,
      0);
}

// What lies beyond the default column is no secret of the record: a bare name refuses it.
TEST_F(CommandTest, ProfileTakesArithmeticBeyondTheDefaultOnlyWhereItIsAskedForSo) {
  const std::string run = std::string("run --tier smoke --testee ") + DECLARES + ":declares/lag";
  for (const char* bare : {"", " --profile forward-core"}) {
    const Result refused = attest_command(run + bare + out());
    EXPECT_EQ(refused.exit_code, 1) << refused.text;
    EXPECT_THAT(refused.text,
                AllOf(HasSubstr("not met: only with a maximum that lags by 5.5 in log2"),
                      HasSubstr("declares/lag meets forward-core only with a maximum that lags by "
                                "5.5 in log2 in f32"),
                      HasSubstr("\"+declared\"")));
  }
  const Result taken = attest_command(run + " --profile forward-core+declared" + out());
  EXPECT_EQ(taken.exit_code, 0) << taken.text;
  EXPECT_THAT(taken.text,
              AllOf(HasSubstr("forward-core+declared  no failure in "),
                    HasSubstr(", with a maximum that lags"), HasSubstr("No failure in")));
  EXPECT_THAT(contents(folder_ / "out" / "report.json"),
              HasSubstr("\"a maximum that lags by 5.5 in log2\""));
  EXPECT_THAT(attest_command("run --profile none+declared" + out()).text,
              HasSubstr("no profile \"none+declared\""));
  EXPECT_THAT(attest_command("run --profile masks/limits+declared" + out()).text,
              HasSubstr("was masks+declared/limits meant?"));
}

TEST_F(CommandTest, FormatDeclaredBeyondTheCapsFailsOnceAndMeetsNothing) {
  const Result result =
      attest_command(std::string("run --tier smoke --testee ") + DECLARES +
                     ":declares/beyond_caps --profile forward-core+declared" + out());
  EXPECT_EQ(result.exit_code, 1) << result.text;
  EXPECT_THAT(result.text,
              AllOf(HasSubstr("FAIL(beyond_caps) NUM-2"), HasSubstr("keeps scores in f16")));
  const Record r = record();
  EXPECT_EQ(r.header.testees[0].beyond_caps.at("f32"), "keeps scores in f16");
  EXPECT_EQ(r.verdicts.front().verdict.reason, "beyond_caps");
  EXPECT_EQ(r.footer->counts.at("FAIL"), 1);
  EXPECT_FALSE(r.footer->counts.contains("PASS"));
  for (const ProfileRecord& p : r.footer->profiles) EXPECT_FALSE(p.met) << p.profile;
  const Result again = attest_command(r.verdicts.front().verdict.repro.substr(7) + out());
  EXPECT_THAT(again.text, HasSubstr("FAIL(beyond_caps) NUM-2"));
}

TEST_F(CommandTest, WhatAKernelThrowsStandsInItsVerdict) {
  const std::string run =
      std::string("run --cases mask/causal/square --profile none --testee ") + GLUE;
  EXPECT_THAT(attest_command(run + ":glue/throws" + out()).text,
              HasSubstr("forward failed: status 1: the kernel threw: no luck today"));
  EXPECT_THAT(attest_command(run + ":glue/throws_a_number" + out()).text,
              HasSubstr("the kernel threw: what is no std::exception"));
}

TEST_F(CommandTest, ShardsThatAreMergedAreTheWhole) {
  const std::string run = "run fa2 mutant:lse_base_2 --cases mask/** --tier smoke --explain";
  std::string merge = "merge";
  for (const char* i : {"3", "1", "2"}) {
    const std::string folder = (folder_ / i).string();
    attest_command(run + " --shard " + i + "/3 --out " + folder);
    merge += " " + folder;
  }
  const Result merged = attest_command(merge + out());
  EXPECT_EQ(merged.exit_code, 1);
  EXPECT_THAT(merged.text, HasSubstr("diagnosis: LSE is exactly what LSE in base 2"));
  const Record parts = record();
  const auto diagnosed = [&] { return contents(folder_ / "out" / "diagnosis.json"); };
  const auto fails = [](const VerdictRecord& each) {
    return each.verdict.outcome == Outcome::fail;
  };
  EXPECT_EQ(
      nlohmann::json::parse(diagnosed()).at("failures").size(),
      static_cast<std::size_t>(std::count_if(parts.verdicts.begin(), parts.verdicts.end(), fails)));
  EXPECT_THAT(diagnosed(), HasSubstr("LSE in base 2"));
  EXPECT_THAT(attest_command(merge + " --out " + (folder_ / "2").string()).text,
              HasSubstr("which is to be merged: it would be lost"));
  const std::string last = contents(folder_ / "2" / "diagnosis.json");
  std::ofstream(folder_ / "2" / "diagnosis.json") << R"({"groups": [{}]})";
  const Result broken = attest_command(merge + out());
  EXPECT_EQ(broken.exit_code, 2);
  EXPECT_THAT(broken.text, HasSubstr((folder_ / "2" / "diagnosis.json").string() + ": "));
  std::ofstream(folder_ / "2" / "diagnosis.json") << last;
  EXPECT_EQ(attest_command("verify " + (folder_ / "out").string()).exit_code, 0);
  attest_command(run + out());
  const Record whole = record();
  EXPECT_EQ(parts.footer->digests.verdicts, whole.footer->digests.verdicts);
  EXPECT_EQ(to_line(parts.header), to_line(whole.header));
}

TEST_F(CommandTest, TruncatedRecordIsReportedAsSuch) {
  attest_command("run --testee naive --tier smoke" + out());
  const std::string text = contents(folder_ / "out" / "results.jsonl");
  std::ofstream(folder_ / "out" / "results.jsonl") << text.substr(0, text.size() / 2);
  const Result result = attest_command("report " + (folder_ / "out").string());
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(contents(folder_ / "out" / "index.html"), HasSubstr("runcated"));
}

TEST_F(CommandTest, RecordThatContradictsItselfConcludesNothing) {
  attest_command("run --testee naive --tier smoke" + out());
  std::string text = contents(folder_ / "out" / "results.jsonl");
  const auto place = text.find("\"outcome\":\"PASS\"");
  text.replace(place, 16, "\"outcome\":\"FAIL\"");
  std::ofstream(folder_ / "out" / "results.jsonl") << text;
  EXPECT_EQ(attest_command("report " + (folder_ / "out").string()).exit_code, 3);
}

TEST_F(CommandTest, MistypedTesteeLeavesTheRecordBeforeAlone) {
  attest_command("run --testee naive --tier smoke" + out());
  const auto size = fs::file_size(folder_ / "out" / "results.jsonl");
  EXPECT_EQ(attest_command("run --testee nosuch --tier smoke" + out()).exit_code, 2);
  EXPECT_EQ(fs::file_size(folder_ / "out" / "results.jsonl"), size);
}

TEST_F(CommandTest, ReportIsMadeAgainFromTheRecordAlone) {
  attest_command("run --testee naive --tier smoke" + out());
  const std::string before = contents(folder_ / "out" / "index.html");
  fs::remove(folder_ / "out" / "index.html");
  EXPECT_EQ(attest_command("report " + (folder_ / "out").string()).exit_code, 0);
  EXPECT_EQ(contents(folder_ / "out" / "index.html"), before);
}

TEST_F(CommandTest, UnknownKeyInACaseFileIsNamedWithFileAndLine) {
  write_cases(
      "{\n \"about\": \"x\",\n \"cases\": [\n  {\"name\": \"a\", \"clauses\": [\"MASK-1\"],\n"
      "   \"becuase\": \"typo\"}\n ]\n}\n");
  const Result result = attest_command("list");
  unsetenv("ATTEST_CASES");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.text,
              AllOf(HasSubstr("mine.json:5"), HasSubstr("\"becuase\""), HasSubstr("because")));
}

TEST_F(CommandTest, FeaturesAreListedAsTheTableHasThem) {
  const Result result = attest_command("list --features --json");
  ASSERT_EQ(result.exit_code, 0);
  const auto features = parse_json(result.text);
  const auto gqa = std::find_if(features.begin(), features.end(),
                                [](const auto& each) { return each.at("feature") == "gqa"; });
  ASSERT_NE(gqa, features.end());
  EXPECT_EQ(gqa->at("clauses").at("HEAD-1"), "forward-core");
  EXPECT_EQ(gqa->at("limit_if_absent"), true);
  EXPECT_THAT(attest_command("list --features").text, HasSubstr("HEAD-1 (forward-core)"));
}

TEST_F(CommandTest, CaseThatIsNotThereTellsTheNearest) {
  const Result result = attest_command("repro mask/causl/bottom_right --testee naive");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.text, HasSubstr("mask/causal/"));
  EXPECT_EQ(attest_command("run --cases mask/causl" + out()).exit_code, 2);
}

TEST_F(CommandTest, CaseMayStandBehindWhoItIsRepeatedWith) {
  const std::string id = "shape/lengths/single_query/sk=1/dtype=f32/data=normal/s=1";
  for (const std::string& arguments : {"--testee naive " + id, "--testee naive --testee fa2 " + id,
                                       "--env HOME " + id + " --testee naive"}) {
    const Result result = attest_command("repro " + arguments);
    EXPECT_EQ(result.exit_code, 0) << arguments << '\n' << result.text;
    EXPECT_THAT(result.text, HasSubstr(id));
  }
}

TEST_F(CommandTest, MistakesOfUsageExitWithTwoAndSayWhatAndWhere) {
  EXPECT_EQ(attest_command("").exit_code, 2);
  EXPECT_EQ(attest_command("run --tier gigantic").exit_code, 2);
  EXPECT_THAT(attest_command("run --testee ./none.so" + out()).text,
              HasSubstr("there is no library ./none.so"));
  EXPECT_THAT(attest_command("run --shard 3/2" + out()).text, HasSubstr("--shard 3/2"));
  EXPECT_THAT(attest_command("run --profile magic" + out()).text, HasSubstr("forward-core"));
  EXPECT_THAT(attest_command("report /nonexistent").text,
              HasSubstr("/nonexistent/results.jsonl: there is no such file"));
  EXPECT_EQ(attest_command("run --testee ./none.so" + out()).exit_code, 2);
  fs::remove_all(folder_ / "out");
  EXPECT_EQ(attest_command("criteria --inputs theirs --cases 'mask/**'" + out()).exit_code, 2);
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

TEST_F(CommandTest, OptionThatIsGivenSomethingElseSaysWhatItTakes) {
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"run --tier smok", "attest: --tier takes smoke, standard or full, not smok\n"},
      {"list --tier 1", "attest: --tier takes smoke, standard or full, not 1\n"},
      {"run --jobs 0", "attest: --jobs takes a number from 1 to 1024, not 0\n"},
      {"run --threads two", "attest: --threads takes a number from 1 to 4096, not two\n"},
      {"run --seed=-1", "attest: --seed takes a number from 0 to 18446744073709551615, not -1\n"},
      {"list --seed 18446744073709551616",
       "attest: --seed takes a number from 0 to 18446744073709551615, not 18446744073709551616\n"},
      {"run --call-limit 0",
       "attest: --call-limit takes a number of seconds above 0, at most 1000000, not 0\n"},
      {"run --call-limit nan",
       "attest: --call-limit takes a number of seconds above 0, at most 1000000, not nan\n"},
      {"run --start-limit 1e10",
       "attest: --start-limit takes a number of seconds above 0, at most 1000000, not 1e10\n"},
      {"run --out ''", "attest: --out takes a folder, not an empty name\n"},
      {"run --out " ATTEST, "attest: --out takes a folder; " ATTEST " is none\n"},
      {"run --out /proc/x",
       "attest: --out takes a folder; /proc/x cannot be made: No such file or directory\n"},
      {"runn", "attest: there is no command runn; did you mean run?\n"},
      {"run --testees fa2", "attest: run has no option --testees; did you mean --testee?\n"},
      {"run --profile maskz",
       "attest: there is no profile \"maskz\"; did you mean masks? (+declared, /limits or "
       "+declared/limits may stand behind each)\n"},
      {"run --testee fa3",
       "attest: --testee fa3: no bundled kernel of that name, and no FILE.so, FILE.py or "
       "exec:COMMAND; did you mean fa2?\n"},
      {"run --color sometimes", "attest: --color takes auto, always or never, not sometimes\n"},
      {"explain MASK-3.9", "attest: MASK-3 has no sentence 9\n"},
      {"explain MSK-3", "attest: there is no clause MSK-3; did you mean MASK-3?\n"},
      {"completion fish", "attest: completion knows bash, not fish\n"},
      {"report here there", "attest: report does not know what to do with there\n"},
      {"fuzz --count 0", "attest: --count takes a number from 1 to 18446744073709551615, not 0\n"},
      {"fuzz --finds 0", "attest: --finds takes a number from 1 to 1000000, not 0\n"},
      {"fuzz --dtype f8", "attest: --dtype takes one of f64, f32, f16, bf16, not f8\n"},
      {"",
       "attest: which command? there are list, explain, check, run, fuzz, gate, rank, selfcheck, "
       "criteria, "
       "limits, doctor, new, probe, repro, vectors, judge, report, merge, verify, completion; "
       "--help says more\n"}};
  for (const auto& [arguments, text] : mistakes) {
    const Result result = attest_command(arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments;
    EXPECT_EQ(result.text, text);
  }
}

TEST_F(CommandTest, ReproShrinksAFailingCaseToOneThatFailsToo) {
  const std::string id =
      "mask/causal/wide/sq=300,sk=290,anchor=bottom_right/dtype=bf16/data=normal/s=1";
  const Result result = attest_command("repro " + id + " --shrink" + kMutants + "top_left" + out());
  EXPECT_EQ(result.exit_code, 1) << result.text;
  EXPECT_THAT(result.text, HasSubstr("shrunk   f32 b1 h1/1 q1 k2 d1"));
  const std::size_t line = result.text.find("attest repro shrunk/");
  ASSERT_NE(line, std::string::npos) << result.text;
  const Result again =
      attest_command(result.text.substr(line + 7, result.text.find('\n', line) - line - 7));
  EXPECT_EQ(again.exit_code, 1) << again.text;
  EXPECT_THAT(again.text, HasSubstr("FAIL  mutant/top_left"));
}

Index tried(const Record& record) {
  Index problems = 0;
  for (const auto& [outcome, count] : record.footer->tried) problems += count;
  return problems;
}

TEST_F(CommandTest, FuzzOfARightKernelFindsNothingAndCountsWhatItTried) {
  const Result result = attest_command("fuzz --testee fa2 --testee naive --count 60" + out());
  EXPECT_EQ(result.exit_code, 0) << result.text;
  EXPECT_THAT(result.text, HasSubstr("Nothing found in 120 random problems"));
  ASSERT_TRUE(record().footer);
  EXPECT_EQ(tried(record()), 120);
  ASSERT_EQ(record().searches.size(), 2u);
  EXPECT_EQ(record().searches[1].testee, "naive");
  EXPECT_EQ(record().searches[0].seed, 1u);
  EXPECT_EQ(record().searches[1].seed, 2u);
  EXPECT_EQ(record().searches[1].next, 60u);
  EXPECT_THAT(result.text, HasSubstr("testee  seed  problems"));
  EXPECT_EQ(record().verdicts.size(), 0u);
  EXPECT_FALSE(fs::exists(folder_ / "out" / "found.json"));
  EXPECT_GT(fs::file_size(folder_ / "out" / "index.html"), 100u);
  EXPECT_EQ(attest_command("report " + (folder_ / "out").string()).exit_code, 0);
}

// Wrong only where Sq % 32 is 15 and a window reaches 3 back.
TEST_F(CommandTest, FuzzFindsARareFaultMakesItSmallAndItsLineRepeatsIt) {
  const Result result =
      attest_command("fuzz --seed 1 --count 20000" + kMutants + "rare_window" + out());
  EXPECT_EQ(result.exit_code, 1) << result.text;
  const auto file = parse_json(contents(folder_ / "out" / "found.json"));
  const auto& problem = file.at("cases").at(0).at("problem");
  EXPECT_EQ(problem.at("query_len"), 15);
  EXPECT_THAT(problem.at("mask").get<std::string>(), HasSubstr("window -3.."));
  EXPECT_LE(problem.size(), 4u) << problem;
  const Record r = record();
  ASSERT_EQ(r.verdicts.size(), 1u);
  EXPECT_EQ(r.verdicts[0].verdict.outcome, Outcome::fail);
  EXPECT_EQ(r.footer->counts.at("FAIL"), 1);
  const Result again = attest_command(r.verdicts[0].verdict.repro.substr(7));
  EXPECT_EQ(again.exit_code, 1) << again.text;
  EXPECT_THAT(again.text, HasSubstr("FAIL  mutant/rare_window"));
}

// As timeout(1) does it: the same signal twice, one right after the other.
TEST_F(CommandTest, FuzzThatIsInterruptedEndsCleanlyAndIsIncomplete) {
  const std::string file = (folder_ / "out" / "results.jsonl").string();
  const Result result =
      shell(std::string("{ ") + ATTEST + " fuzz --testee naive" + out() + " & until [ -s " + file +
            " ] || ! kill -0 $!; do :; done;"
            " kill -INT $!; kill -INT $!; wait $!; }");
  EXPECT_EQ(result.exit_code, 3) << result.text;
  EXPECT_THAT(result.text, HasSubstr("interrupted"));
  EXPECT_FALSE(record().footer);
}

TEST_F(CommandTest, TesteeThatHangsIsGivenUpAndTheRunIsIncomplete) {
  const Result run = attest_command(
      "run --testee " + std::string(MUTANTS) +
      ":mutant/hang --cases shape/zero --profile none --call-limit 0.2 --give-up-after 2" + out());
  EXPECT_EQ(run.exit_code, 1) << run.text;
  const Record all = record();
  EXPECT_EQ(all.footer->counts.at("TIMEOUT"), 2);
  EXPECT_GT(all.footer->counts.at("NOT_RUN"), 10);
  EXPECT_EQ(attest_command("report " + (folder_ / "out").string()).exit_code, 1)
      << "a record like any other";
}

TEST_F(CommandTest, TimeThatIsUpLeavesTheRestUntriedAndTheRunIncomplete) {
  const Result run = attest_command("run --testee fa2 --cases shape --max-time 0.0001" + out());
  EXPECT_EQ(run.exit_code, 3) << run.text;
  EXPECT_GT(record().footer->counts.at("NOT_RUN"), 10);
}

TEST_F(CommandTest, CallInProgressWhenTheTimeIsUpIsGivenUpAndNotRun) {
  const Result run = attest_command(
      "run --testee " + std::string(MUTANTS) +
      ":mutant/hang --cases shape/zero --profile none --max-time 1 --call-limit 1000" + out());
  EXPECT_EQ(run.exit_code, 3) << run.text;
  const Record all = record();
  EXPECT_EQ(all.footer->counts.at("NOT_RUN"), static_cast<Index>(all.verdicts.size()));
  EXPECT_EQ(all.verdicts.front().verdict.reason, "max_time");
  EXPECT_LT(all.footer->wall_s, 100);
}

// Whoever sees a process sees its arguments; case ids are not for testees.
TEST_F(CommandTest, CommandLineOfARunningCommandTellsNoCase) {
  const Result seen = shell(std::string(ATTEST) + " run --testee 'exec:" + ROGUE +
                            " silent' --cases shape/zero --start-limit 1" + out() +
                            " & while grep -qs silent /proc/$!/cmdline; do :; done;"
                            " tr '\\0' ' ' < /proc/$!/cmdline; wait");
  EXPECT_THAT(seen.text, HasSubstr("/attest"));
  EXPECT_THAT(seen.text, Not(HasSubstr("shape/zero")));
}

TEST_F(CommandTest, TesteeMayLieInTheFolderOfTheRecord) {
  fs::copy_file(MUTANTS, folder_ / "mine.so");
  fs::permissions(folder_, fs::perms::all);
  const Result result = shell("cd " + folder_.string() + " && " + ATTEST +
                              " run --testee ./mine.so:mutant/none --profile none --tier smoke"
                              " --cases 'mask/**' --out .");
  EXPECT_EQ(result.exit_code, 0) << result.text;
}

TEST_F(CommandTest, ProgramInAFolderThatNoOtherUserMayReadRunsAsTheSameUserInNamespaces) {
  fs::copy_file(ROGUE, folder_ / "rogue");
  fs::permissions(folder_, fs::perms::owner_all);
  for (const char* command : {"exec:./rogue shouts", "exec:env ./rogue shouts"}) {
    const Result result =
        shell("cd " + folder_.string() + " && " + ATTEST + " run --testee '" + command +
              "' --profile none --tier smoke --cases 'shape/**' --out out");
    EXPECT_EQ(result.exit_code, 1);
    if (record().header.isolation == "accidental faults only") GTEST_SKIP() << "no namespaces here";
    EXPECT_THAT(result.text, Not(HasSubstr("runs without isolation")));
    EXPECT_EQ(record().header.isolation, "the same user, in namespaces of its own");
  }
}

TEST_F(CommandTest, SystemThatCallsEveryPageResidentFailsNobodyForIt) {
  const Result result =
      shell(std::string("LD_PRELOAD=") + RESIDENT + " " + ATTEST +
            " run --testee fa2 --profile none --tier smoke --cases 'mask/**'" + out());
  EXPECT_EQ(result.exit_code, 0) << result.text;
  EXPECT_THAT(result.text, Not(HasSubstr("preload")));
}

TEST_F(CommandTest, NothingThatATesteeSaysReachesATerminalAsAnEscape) {
  // One that needs no feature, so that it is asked.
  const std::string id = "seeds/tutorial/forward/dtype=f32/data=uniform/s=1";
  const Result result = attest_command("repro " + id + " --testee 'exec:" ROGUE " shouts'");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.text, AllOf(HasSubstr("red"), HasSubstr("gone"), Not(HasSubstr("\x1b"))));
  const Result mute = attest_command("run --testee 'exec:printf \"\\033[2J\"'" + out());
  EXPECT_EQ(mute.exit_code, 2);
  EXPECT_THAT(mute.text, AllOf(HasSubstr("It printed"), Not(HasSubstr("\x1b"))));
}

TEST_F(CommandTest, ListOfNothingIsIncompleteAndSaysWhy) {
  const auto all = parse_json(attest_command("list --json").text);
  const auto standard = std::find_if(all.begin(), all.end(),
                                     [](const auto& c) { return c.at("tier") == "standard"; });
  ASSERT_NE(standard, all.end());
  const std::string only = " --cases '" + standard->at("case").get<std::string>() + "'";
  EXPECT_EQ(attest_command("list" + only).exit_code, 0);
  const Result result = attest_command("list --tier smoke" + only);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.text, HasSubstr("nothing is selected; a higher --tier may hold"));
}

TEST_F(CommandTest, InstalledProgramHasItsOwnCasesAndKernels) {
  const std::string prefix = (folder_ / "usr").string();
  const Result installed =
      shell(std::string(CMAKE) + " --install " + BUILD + " --prefix " + prefix);
  ASSERT_EQ(installed.exit_code, 0) << installed.text;
  EXPECT_TRUE(fs::exists(folder_ / "usr" / "include" / "attest" / "attest_plugin.h"));
  const std::string program = prefix + "/bin/attest";
  const auto listed = parse_json(shell(program + " list --tier smoke --json").text);
  ASSERT_FALSE(listed.empty());
  EXPECT_EQ(listed[0].at("file").get<std::string>().find(prefix + "/share/attest/cases/"), 0u);
  const std::string one = " --cases " + listed[0].at("case").get<std::string>();
  const Result ran =
      shell(program + " run --testee naive --profile none --tier smoke" + one + out());
  EXPECT_EQ(ran.exit_code, 0) << ran.text;
}

TEST_F(CommandTest, NewKernelIsWrittenIntoAFolderThatIsNotThere) {
  const std::string in = "cd " + folder_.string() + " && " + ATTEST + " new ";
  const Result written = shell(in + "mine --language c --template training");
  EXPECT_EQ(written.exit_code, 0);
  EXPECT_THAT(written.text, HasSubstr("ctest --test-dir build"));
  const std::string source = contents(folder_ / "mine" / "mine.c");
  EXPECT_THAT(source, HasSubstr(".name = \"mine\""));
  EXPECT_THAT(source, HasSubstr(".backward = backward"));
  EXPECT_THAT(source, Not(AnyOf(HasSubstr("cu_query_lens.data) {"), HasSubstr("@NAME@"))))
      << "of other templates";

  const Result again = shell(in + "mine");
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.text, HasSubstr("new: mine is there already; nothing was written"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "mine" / "mine.cpp"));
  const std::pair<const char*, const char*> mistakes[] = {
      {"../up", "begins with a letter, unlike \"../up\""},
      {"test", "test is the name of a target or library that CMake or Attest has"},
      {"x --language rust", "--language takes c, c++, cuda, python, not rust"},
      {"x --template big", "--template takes minimal, inference, training, serving, not big"}};
  for (const auto& [arguments, said] : mistakes) {
    const Result result = shell(in + arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments;
    EXPECT_THAT(result.text, HasSubstr(said));
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "x"));
}

TEST_F(CommandTest, HelpAndVersionExitWithZero) {
  EXPECT_EQ(attest_command("--version").exit_code, 0);
  EXPECT_THAT(attest_command("run --help").text, AllOf(HasSubstr("--testee"), HasSubstr("--tier")));
  EXPECT_THAT(attest_command("verify --help").text, HasSubstr("Default: those of the record"));
}

TEST_F(CommandTest, CriteriaPutTheRulesOfOthersBesideAttestOnTheSameResults) {
  const Result result = attest_command("criteria --inputs ours --cases lse/lse/base" +
                                       (" --testee fa2 --testee mutant:lse_base_2" + out()));
  EXPECT_EQ(result.exit_code, 0) << result.text;
  EXPECT_THAT(result.text, HasSubstr("criteria.html"));
  const auto side = parse_json(contents(folder_ / "out" / "criteria.json")).at("sides").at(0);
  const auto names = [&](const std::string& judge, const char* key) {
    for (const auto& each : side.at("judges")) {
      if (each.at("name") == judge) return json_text(each.at("scores").at("f16").at(key));
    }
    return "no judge " + judge;
  };
  EXPECT_EQ(names("Attest", "caught_names"), R"(["mutant/lse_base_2"])");
  EXPECT_EQ(names("Attest", "failed_names"), "[]");
  // It compares no LSE.
  EXPECT_EQ(names("flash-attention 2", "missed_names"), R"(["mutant/lse_base_2"])");
}

TEST_F(CommandTest, MutantsAreNamedByTheirFaultOrByTheDefectThatTheyRestate) {
  const auto said_of = [&](const std::string& mutant) {
    return attest_command("run --cases lse/lse/base --testee mutant:" + mutant + out()).text;
  };
  EXPECT_THAT(said_of("lse_base_2"), HasSubstr("FAIL(bound) LSE-1 mutant/lse_base_2"));
  EXPECT_THAT(said_of("A093"),
              AllOf(HasSubstr("LSE-1 mutant/lse_base_2"), HasSubstr("LSE-1 mutant/lse_ln2_twice")));
  EXPECT_THAT(said_of("lse_base_9"), HasSubstr("no mutant has that name"));
}

}  // namespace
}  // namespace attest
