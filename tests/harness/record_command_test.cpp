// What a record is worth: edited, doubled, cut, made of other cases, by a testee that nothing
// contains, on a full disk, behind planted links; and what repeating its verdicts shows.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/run/seal.h"
#include "spec/json_text.h"
#include "tests/harness/command.h"

namespace attest {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kMask = " --tier smoke --cases 'mask/**' --profile none";
// Some need no feature.
const std::string kShape = " --tier smoke --cases 'shape/**' --profile none";
const std::string kWrong = std::string(" --testee ") + MUTANTS + ":mutant/top_left";

class RecordCommandTest : public CommandFixture {
 protected:
  fs::path results() const { return folder_ / "out" / "results.jsonl"; }
  std::vector<std::string> lines() const {
    std::istringstream in(contents(results()));
    std::vector<std::string> all;
    for (std::string line; std::getline(in, line);) all.push_back(line);
    return all;
  }
  void write(const std::vector<std::string>& all) const {
    std::ofstream file(results());
    for (const std::string& line : all) file << line << '\n';
  }
  Result report() const { return attest_command("report " + (folder_ / "out").string()); }
  // That it says so everywhere, and nothing better anywhere.
  void expect_inconsistent(const std::string& why) const {
    const Result result = report();
    EXPECT_EQ(result.exit_code, 3) << result.text;
    EXPECT_THAT(result.text, HasSubstr(why));
    for (const char* file : {"report.json", "junit.xml", "summary.md", "index.html"}) {
      const std::string text = contents(folder_ / "out" / file);
      EXPECT_THAT(text, AllOf(HasSubstr("nconsistent"), Not(HasSubstr("Conformant:")),
                              Not(HasSubstr("No failure in"))))
          << file;
    }
  }
  // With digests made anew, as who means to deceive would.
  void reseal(Record& record) const {
    seal(record);
    std::vector<std::string> all = {to_line(record.header)};
    for (const VerdictRecord& v : record.verdicts) all.push_back(to_line(v));
    all.push_back(to_line(*record.footer));
    write(all);
  }
};

TEST_F(RecordCommandTest, FooterThatWasEditedIsNotBelieved) {
  EXPECT_EQ(attest_command("run" + kWrong + kMask + out()).exit_code, 1);
  EXPECT_EQ(report().exit_code, 1);
  Record r = record();
  ASSERT_GE(r.footer->counts.at("FAIL"), 3);
  r.footer->counts = {{"PASS", static_cast<Index>(r.verdicts.size())}};
  r.footer->conclusion = "no failure";
  r.footer->exit_code = 0;
  reseal(r);
  expect_inconsistent(
      "its footer says the conclusion \"no failure\", its verdicts say \"not "
      "conformant\"");
}

TEST_F(RecordCommandTest, DoubledMissingAndForeignVerdictsAreNamed) {
  attest_command("run --testee naive" + kMask + out());
  const Record whole = record();
  const auto conclude_as = [&](Record r) {
    r.footer->counts = {{"PASS", static_cast<Index>(r.verdicts.size())}};
    reseal(r);
  };
  Record r = whole;
  r.verdicts.push_back(r.verdicts[1]);
  conclude_as(r);
  expect_inconsistent("verdicts are doubled: " + r.verdicts[1].case_id + " of naive");
  r = whole;
  r.verdicts.pop_back();
  r.footer->judged -= 1;
  conclude_as(r);
  expect_inconsistent("verdicts are missing: " + whole.verdicts.back().case_id + " of naive");
  r = whole;
  r.verdicts[0].case_id = "mask/invented/dtype=f32/data=normal/s=1";
  conclude_as(r);
  expect_inconsistent("cases that the run did not have: mask/invented/");
  r = whole;
  r.verdicts[0].testee = "stranger";
  conclude_as(r);
  expect_inconsistent("the header does not have: stranger");
}

TEST_F(RecordCommandTest, AnEditIsSeenByItsDigest) {
  attest_command("run --testee naive" + kMask + out());
  const std::vector<std::string> whole = lines();
  const auto edited = [&](std::size_t line, const std::string& from, const std::string& to) {
    std::vector<std::string> all = whole;
    const auto place = all[line].find(from);
    ASSERT_NE(place, std::string::npos) << from;
    all[line].replace(place, from.size(), to);
    write(all);
    expect_inconsistent("digest");
  };
  edited(0, "\"vendor\":\"", "\"vendor\":\"Not ");
  edited(1, "\"because\":\"", "\"because\":\"Not ");
  edited(1, "\"outcome\":\"PASS\"", "\"outcome\":\"WARN\"");
  edited(1, "{", "{\"note\":1,");
  edited(whole.size() - 1, "\"wall_s\":", "\"wall_s\":1");
  write(whole);
  EXPECT_EQ(report().exit_code, 0);
}

TEST_F(RecordCommandTest, BlankLinesAndNulBytesAreNamedByTheirLine) {
  attest_command("run --testee naive" + kMask + out());
  const std::vector<std::string> whole = lines();
  std::vector<std::string> all = whole;
  all.insert(all.begin() + 2, "");
  write(all);
  expect_inconsistent("line 3 is blank");
  all = whole;
  all.back() += std::string(1, '\0') + "more";
  write(all);
  expect_inconsistent(fmt::format("line {} holds NUL bytes", whole.size()));
  EXPECT_EQ(attest_command("verify " + (folder_ / "out").string()).exit_code, 3);
  write(whole);
  EXPECT_EQ(report().exit_code, 0);
}

TEST_F(RecordCommandTest, JobsAndShardsGiveTheSameDigestOfTheVerdicts) {
  const auto run = [&](const std::string& more) {
    attest_command("run --testee naive --testee fa2" + kMask + more + out());
    return record();
  };
  const Record whole = run(" --jobs 1");
  EXPECT_EQ(run(" --jobs 3").footer->digests.verdicts, whole.footer->digests.verdicts);
  Record parts = run(" --shard 2/2");
  EXPECT_NE(parts.footer->digests.verdicts, whole.footer->digests.verdicts);
  for (const VerdictRecord& v : run(" --shard 1/2").verdicts) parts.verdicts.push_back(v);
  seal(parts);
  EXPECT_EQ(parts.footer->digests.verdicts, whole.footer->digests.verdicts);
}

TEST_F(RecordCommandTest, CasesOfOthersAreNeverTheSuitesOwn) {
  fs::copy(CASES, folder_ / "cases", fs::copy_options::recursive);
  const std::string mine = "ATTEST_CASES=" + (folder_ / "cases").string() + " ";
  const std::string run = std::string(ATTEST) + " run --tier smoke --testee naive" + out();
  shell(mine + run);
  EXPECT_TRUE(record().header.cases.bundled) << "the same bytes are the same cases";
  EXPECT_EQ(report().exit_code, 0);
  fs::remove_all(folder_ / "cases" / "mask");
  const Result fewer = shell(mine + run);
  EXPECT_EQ(fewer.exit_code, 3) << fewer.text;
  EXPECT_THAT(fewer.text, HasSubstr("cases that are not the suite's own"));
  EXPECT_FALSE(record().header.cases.bundled);
  // Here are other cases: what the run should have cannot be told.
  const Result elsewhere = report();
  EXPECT_EQ(elsewhere.exit_code, 3);
  EXPECT_THAT(elsewhere.text, HasSubstr("Not verified: which cases the run should have"));
  const Result from = attest_command("run --tier smoke --testee naive --profile none --from " +
                                     (folder_ / "cases" / "empty").string() + out());
  EXPECT_EQ(from.exit_code, 0) << from.text;
  EXPECT_THAT(from.text, AllOf(HasSubstr("No failure in"), HasSubstr("not the suite's own")));
  EXPECT_THAT(report().text, Not(HasSubstr("Not verified")));
}

// In a user namespace that may have no others, nothing contains a testee.
TEST_F(RecordCommandTest, WhatNothingContainedIsSaidAndNeverConformant) {
  const std::string alone = "unshare -Ur sh -c 'echo 0 > /proc/sys/user/max_user_namespaces && ";
  if (shell(alone + "true'").exit_code != 0) GTEST_SKIP() << "no user namespaces here";
  const Result result = shell(alone + ATTEST + " run --tier smoke --testee naive" + out() + "'");
  ASSERT_EQ(record().header.testees[0].isolation, "none") << result.text;
  EXPECT_EQ(result.exit_code, 0) << result.text;
  EXPECT_THAT(result.text, HasSubstr("naive could have written the record"));
  for (const char* file : {"report.json", "junit.xml", "summary.md", "index.html"}) {
    EXPECT_THAT(contents(folder_ / "out" / file), HasSubstr("the record among them")) << file;
  }
}

TEST_F(RecordCommandTest, NetworkThatTesteesHadIsSaid) {
  const std::string run = "run --testee naive" + kMask + out();
  attest_command(run);
  if (record().header.testees[0].isolation == "none") GTEST_SKIP() << "no namespaces here";
  EXPECT_TRUE(record().header.uncontained.empty());
  EXPECT_THAT(attest_command(run + " --allow-network").text, HasSubstr(") had the network."));
  // Namespaces, but none of networks.
  const std::string without =
      "unshare -Ur sh -c 'echo 0 > /proc/sys/user/max_net_namespaces && " ATTEST " ";
  const Result result = shell(
      without + "run --testee naive --tier smoke --cases mask/causal --profile none" + out() + "'");
  if (record().header.testees[0].isolation != "namespaces") GTEST_SKIP() << result.text;
  EXPECT_THAT(result.text, HasSubstr(") had the network."));
}

TEST_F(RecordCommandTest, RecordSaysWhatATesteeIsMadeOf) {
  fs::copy_file(MUTANTS, folder_ / "mine.so");
  const std::string mine = (folder_ / "mine.so").string();
  attest_command("run --testee " + mine + ":mutant/none" + kMask + out());
  const auto files = record().header.testees[0].files;
  ASSERT_TRUE(files.contains(mine));
  EXPECT_THAT(shell("sha256sum " + mine).text, HasSubstr(files.at(mine)));
  for (const auto& [file, sum] : files)
    EXPECT_THAT(file, AllOf(Not(testing::StartsWith("/usr/lib")), Not(HasSubstr("/bin/attest"))));
  attest_command("run --testee 'exec:" ROGUE " shouts'" + kMask + out());
  EXPECT_TRUE(record().header.testees[0].files.contains(ROGUE));
  attest_command("run --testee 'exec:env LD_PRELOAD=" RESIDENT " " ROGUE " shouts'" + kMask +
                 out());
  EXPECT_TRUE(record().header.testees[0].files.contains(RESIDENT)) << "a library of a program";
}

// The program waits in its first call until its file has changed, as by a build.
TEST_F(RecordCommandTest, FileOfATesteeThatChangesDuringARunMakesItsRecordInconsistent) {
  const std::string weights = (folder_ / "weights").string();
  const std::string command = std::string(ATTEST) + " run --testee 'exec:" ROGUE " waits " +
                              weights + " now' --jobs 1" + kShape + out();
  const auto run = [&](const std::string& meanwhile) {
    return shell("{ " + command + " & until [ -s " + results().string() +
                 " ] || ! kill -0 $!; do :; done; " + meanwhile + "; wait $!; }");
  };
  std::ofstream(weights) << "now";
  const Result unchanged = run(":");
  EXPECT_EQ(unchanged.exit_code, 1) << unchanged.text;  // it computes nothing
  EXPECT_THAT(unchanged.text, Not(HasSubstr("Inconsistent record")));
  fs::remove(results());
  std::ofstream(weights) << "later";
  const Result changed = run("echo now > " + weights);
  EXPECT_EQ(changed.exit_code, 3) << changed.text;
  EXPECT_THAT(changed.text,
              HasSubstr("the file " + weights + " changed during the run; made of it: waits"));
  expect_inconsistent("the file " + weights + " changed during the run");
  ASSERT_EQ(record().footer->changed.size(), 1u);
  Record r = record();
  r.footer->changed.clear();  // who leaves that out is seen by the digest
  std::vector<std::string> all = lines();
  all.back() = to_line(*r.footer);
  write(all);
  expect_inconsistent("its digest differs");
}

TEST_F(RecordCommandTest, VerifyRepeatsVerdictsThatItsDigestDraws) {
  attest_command("run --testee naive" + kWrong + kMask + out());
  const std::string verify = "verify " + (folder_ / "out").string();
  const Result all = attest_command(verify + " --rerun 1000");
  EXPECT_EQ(all.exit_code, 0) << all.text;
  EXPECT_THAT(all.text, AllOf(HasSubstr("agrees   FAIL(bound)  mutant/top_left"),
                              HasSubstr("agrees   PASS  naive"), Not(HasSubstr("differs"))));
  const Result few = attest_command(verify + " --rerun 20");
  EXPECT_THAT(few.text, AllOf(HasSubstr("20 of 20 verdicts repeated agree"), HasSubstr("naive"),
                              HasSubstr("mutant/top_left")))
      << "from all over the record";
  EXPECT_EQ(few.text, attest_command(verify + " --rerun 20").text) << "the same are drawn again";
}

// Why a case is not asked depends on all that a testee declares, and on the other cases.
TEST_F(RecordCommandTest, VerifyKnowsWhyACaseWasNotAsked) {
  const std::string testee = " --testee 'exec:" ROGUE " shouts'";
  attest_command("run --tier smoke --profile none" + testee + out());
  const Result all =
      attest_command("verify " + (folder_ / "out").string() + " --rerun 1000" + testee);
  EXPECT_THAT(all.text, AllOf(HasSubstr("UNSUPPORTED(undeclared)  shouts memory/"),
                              Not(HasSubstr("differs"))));
}

TEST_F(RecordCommandTest, VerifyRepeatsVerdictsAsTheyWereMade) {
  setenv("MINE", "1", 1);
  // What hangs is a TIMEOUT in both, if soon enough.
  const auto start = std::chrono::steady_clock::now();
  attest_command("run --testee " + std::string(MUTANTS) +
                 ":mutant/hang --cases shape/zero/no_keys --profile none --give-up-after 1"
                 " --call-limit 0.5 --memory-limit 1000 --threads 2 --env MINE --allow-network" +
                 out());
  const OptionsRecord options = record().header.options;
  EXPECT_EQ(options.threads, 2);
  EXPECT_EQ(options.call_limit, 0.5);
  EXPECT_EQ(options.memory_limit, 1000);
  EXPECT_THAT(options.env, testing::ElementsAre("MINE"));
  EXPECT_TRUE(options.allow_network);
  const std::string verify = "verify " + (folder_ / "out").string() + " --rerun 9";
  const Result again = attest_command(verify);
  EXPECT_EQ(again.exit_code, 0) << again.text;
  EXPECT_THAT(again.text, AllOf(HasSubstr("agrees   TIMEOUT"),
                                HasSubstr("the run had --allow-network --env MINE, which verify")));
  EXPECT_THAT(attest_command(verify + " --allow-network --env MINE").text,
              Not(HasSubstr("the run had")));
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  EXPECT_LT(wall.count(), 50) << "not with the usual limit of 60 s";
}

TEST_F(RecordCommandTest, VerifyRunsNoCommandOutOfARecord) {
  attest_command("run --testee 'exec:" ROGUE " shouts'" + kMask + out());
  const std::string verify = "verify " + (folder_ / "out").string() + " --rerun 1";
  const Result refused = attest_command(verify);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.text, HasSubstr("runs no command out of a record"));
  EXPECT_THAT(attest_command(verify + " --testee 'exec:" ROGUE " shouts'").text,
              HasSubstr("verdicts repeated"));
}

TEST_F(RecordCommandTest, VerifySaysWhatDoesNotAgreeAnyMore) {
  fs::copy_file(MUTANTS, folder_ / "mine.so");
  const std::string mine = (folder_ / "mine.so").string();
  attest_command("run --testee " + mine + ":mutant/top_left" + kMask + out());
  Record r = record();
  for (VerdictRecord& v : r.verdicts) {
    v.verdict.outcome = Outcome::pass;
    v.verdict.reason = "";
  }
  r.footer->counts = {{"PASS", static_cast<Index>(r.verdicts.size())}};
  r.footer->judged = static_cast<Index>(r.verdicts.size());
  r.footer->conclusion = "no failure";
  r.footer->exit_code = 0;
  reseal(r);  // a forgery that nothing in the record shows
  EXPECT_EQ(report().exit_code, 0);
  const std::string verify = "verify " + (folder_ / "out").string() + " --rerun 1000";
  const Result forged = attest_command(verify);
  EXPECT_EQ(forged.exit_code, 1) << forged.text;
  EXPECT_THAT(forged.text, HasSubstr("differs  PASS in the record, FAIL(bound) now  "
                                     "mutant/top_left mask/"));
  // Its file is gone; then it is named elsewhere; then it is another.
  fs::rename(mine, folder_ / "moved.so");
  const Result gone = attest_command(verify);
  EXPECT_EQ(gone.exit_code, 2);
  EXPECT_THAT(gone.text, AllOf(HasSubstr("a testee of the record cannot be found"),
                               HasSubstr("there is no library"), HasSubstr("--testee says where")));
  const Result moved =
      attest_command(verify + " --testee " + (folder_ / "moved.so").string() + ":mutant/top_left");
  EXPECT_EQ(moved.exit_code, 1);
  EXPECT_THAT(moved.text, Not(HasSubstr("are not those of the record")));
  std::ofstream(folder_ / "moved.so", std::ios::app) << "changed";
  EXPECT_THAT(
      attest_command(verify + " --testee " + (folder_ / "moved.so").string() + ":mutant/top_left")
          .text,
      HasSubstr("the files of mutant/top_left are not those of the record"));
  EXPECT_THAT(attest_command(verify + " --testee naive").text,
              HasSubstr("--testee names no mutant/top_left"));
}

TEST_F(RecordCommandTest, VerifyOfATruncatedRecordIsIncomplete) {
  attest_command("run --testee naive" + kMask + out());
  std::vector<std::string> all = lines();
  all.pop_back();
  write(all);
  const Result result = attest_command("verify " + (folder_ / "out").string() + " --rerun 2");
  EXPECT_EQ(result.exit_code, 3) << result.text;
  EXPECT_THAT(result.text,
              AllOf(HasSubstr("Truncated"), HasSubstr("2 of 2 verdicts repeated agree")));
}

TEST_F(RecordCommandTest, WhereTheTimeWentIsToldToWhoAsks) {
  const Result plain = attest_command("run --testee naive" + kMask + out());
  EXPECT_THAT(plain.text, Not(HasSubstr("by stage")));
  EXPECT_FALSE(parse_json(lines().back()).contains("stages"));
  fs::remove_all(folder_ / "out");
  const Result told = attest_command("run --testee naive --profile-stages" + kMask + out());
  EXPECT_EQ(told.exit_code, plain.exit_code);
  EXPECT_THAT(told.text, AllOf(HasSubstr("Time of all jobs, by stage:\n"), HasSubstr("\n  call ")));
  const nlohmann::json footer = parse_json(lines().back());
  for (const char* stage :
       {"generate", "reference", "encode", "call", "decode", "judge", "write"}) {
    EXPECT_GT(footer.at("stages").value(stage, 0.0), 0) << stage;
  }
  EXPECT_EQ(report().exit_code, told.exit_code);  // the record is whole
}

TEST_F(RecordCommandTest, SecondRunInAFolderIsRefusedAndChangesNothing) {
  attest_command("run --testee naive" + kMask + out());
  const std::string before = contents(results());
  const int folder = open((folder_ / "out").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(flock(folder, LOCK_EX | LOCK_NB), 0);
  const Result second = attest_command("run --testee naive" + kMask + out());
  close(folder);
  EXPECT_EQ(second.exit_code, 2);
  EXPECT_THAT(second.text,
              HasSubstr("another run writes into the folder " + (folder_ / "out").string()));
  EXPECT_EQ(contents(results()), before);
}

TEST_F(RecordCommandTest, ReportsOfTheRunBeforeAreGoneOnceARunBegins) {
  attest_command("run --testee naive" + kMask + out());
  const Result result =
      shell(std::string("{ ") + ATTEST + " run --testee naive --tier standard" + out() +
            " & until [ ! -e " + (folder_ / "out" / "index.html").string() +
            " ] || ! kill -0 $!; do :; done; ls " + (folder_ / "out").string() +
            "; kill -INT $!; wait $!; }");
  EXPECT_EQ(result.exit_code, 3) << result.text;
  EXPECT_THAT(result.text.substr(0, result.text.find("attest:")), Not(HasSubstr("index.html\n")));
  EXPECT_THAT(contents(folder_ / "out" / "index.html"), HasSubstr("Truncated"));
}

// As a testee, or another user, plants them.
TEST_F(RecordCommandTest, NoFileIsWrittenThroughALink) {
  const fs::path precious = folder_ / "precious";
  std::ofstream(precious) << "mine";
  for (const char* folder : {"out", "dump"}) {
    fs::create_directories(folder_ / folder);
    for (const char* name :
         {"results.jsonl", "report.json", "junit.xml", "summary.md", "index.html", "problem.json",
          "q.npy", "O.npy", "shrunk.json", "found.json"}) {
      fs::create_symlink(precious, folder_ / folder / name);
    }
  }
  attest_command("run" + kWrong + kMask + out());
  const std::string dump = " --dump " + (folder_ / "dump").string();
  const Record r = record();
  const auto failed = std::find_if(r.verdicts.begin(), r.verdicts.end(), [](const auto& v) {
    return v.verdict.outcome == Outcome::fail;
  });
  ASSERT_NE(failed, r.verdicts.end());
  attest_command("repro '" + failed->case_id + "'" + kWrong + dump + " --shrink" + out());
  attest_command("fuzz --seed 1 --count 2000 --testee " + std::string(MUTANTS) +
                 ":mutant/top_left" + out());
  EXPECT_EQ(contents(precious), "mine");
  EXPECT_GT(fs::file_size(folder_ / "dump" / "q.npy"), 64u);
  EXPECT_FALSE(fs::is_symlink(folder_ / "out" / "shrunk.json"));
  EXPECT_FALSE(fs::is_symlink(folder_ / "out" / "found.json"));
  EXPECT_FALSE(fs::is_symlink(results()));
  if (geteuid() != 0) GTEST_SKIP() << "only root gives a link away";
  fs::create_directories(folder_ / "etc");
  fs::create_directory_symlink(folder_ / "etc", folder_ / "link");
  ASSERT_EQ(lchown((folder_ / "link").c_str(), 65534, 65534), 0);
  for (const std::string& command :
       {"run --testee naive" + kMask + " --out " + (folder_ / "link").string(),
        "repro '" + failed->case_id + "' --testee naive --dump " + (folder_ / "link").string()}) {
    const Result result = attest_command(command);
    EXPECT_EQ(result.exit_code, 2) << result.text;
    EXPECT_THAT(result.text, HasSubstr("is a link of another user"));
  }
  EXPECT_TRUE(fs::is_empty(folder_ / "etc"));
}

TEST_F(RecordCommandTest, FullDiskIsSaidWhenItHappensAndLeavesWhatWasThere) {
  fs::create_directories(folder_ / "out");
  if (mount("tmpfs", (folder_ / "out").c_str(), "tmpfs", 0, "size=200k") != 0) {
    GTEST_SKIP() << "only root makes a small disk";
  }
  const Result full =
      attest_command("run --tier smoke --testee naive --testee fa2 --jobs 1" + out());
  EXPECT_EQ(full.exit_code, 2) << full.text;
  EXPECT_THAT(full.text, HasSubstr("results.jsonl: No space left on device"));
  const std::string before = contents(results());
  EXPECT_GT(before.size(), 100'000u) << "as far as there was room";
  EXPECT_FALSE(record().footer);
  std::ofstream(folder_ / "out" / "ballast") << std::string(1 << 20, 'x');
  const Result begun = attest_command("run --tier smoke --testee naive" + out());
  EXPECT_EQ(begun.exit_code, 2);
  EXPECT_THAT(begun.text, HasSubstr("No space left on device"));
  EXPECT_EQ(contents(results()), before);
  const Result dumped = attest_command("repro " + record().verdicts[0].case_id +
                                       " --testee naive --dump " + (folder_ / "out").string());
  EXPECT_EQ(dumped.exit_code, 2);
  EXPECT_THAT(dumped.text, HasSubstr("problem.json: No space left on device"));
  umount2((folder_ / "out").c_str(), MNT_DETACH);
}

TEST_F(RecordCommandTest, LimitOnTheSizeOfFilesIsSaidAndLeavesWhatWasThere) {
  attest_command("run --testee naive" + kMask + out());
  const std::string before = contents(results()), page = contents(folder_ / "out" / "index.html");
  const std::string limited = std::string("ulimit -f 1; ") + ATTEST + " ";
  for (const std::string& command :
       {"run --testee naive" + kMask + out(), "report " + (folder_ / "out").string(),
        "list >" + (folder_ / "list").string()}) {
    const Result result = shell("{ " + limited + command + "; }");
    EXPECT_EQ(result.exit_code, 2) << command;
    EXPECT_THAT(result.text, HasSubstr("File too large")) << command;
  }
  EXPECT_EQ(contents(results()), before);
  EXPECT_EQ(contents(folder_ / "out" / "index.html"), page);
}

TEST_F(RecordCommandTest, WhatIsPrintedOntoAFullDiskIsNotLostInSilence) {
  for (const char* little_or_much : {" list --tier smoke --cases decode/decode", " list"}) {
    const Result result =
        shell(std::string("{ ") + ATTEST + little_or_much + " 2>&1 >/dev/full; }");
    EXPECT_EQ(result.exit_code, 2) << little_or_much;
    EXPECT_THAT(result.text, HasSubstr("No space left on device"));
  }
}

TEST_F(RecordCommandTest, KnownFailuresFailNoRunButTheirAbsenceDoes) {
  const std::string run = "run" + kWrong + kMask;
  ASSERT_EQ(attest_command(run + out()).exit_code, 1);
  const std::string known = (folder_ / "known.json").string();
  EXPECT_EQ(
      attest_command("report " + (folder_ / "out").string() + " --write-known " + known).exit_code,
      1);
  const Result knowing = attest_command(run + " --known " + known + out());
  EXPECT_EQ(knowing.exit_code, 0) << knowing.text;
  EXPECT_THAT(knowing.text,
              AllOf(HasSubstr("with failures that were known"), HasSubstr("known: FAIL (bound)")));
  EXPECT_GT(record().footer->known, 2);
  EXPECT_EQ(report().exit_code, 0);
  for (const char* file : {"junit.xml", "summary.md", "index.html"}) {
    EXPECT_THAT(contents(folder_ / "out" / file), HasSubstr("known: FAIL (bound)")) << file;
  }
  // The kernel is mended.
  nlohmann::json list = parse_json(contents(known));
  for (auto& entry : list["known"]) entry["testee"] = "naive";
  std::ofstream(known) << list.dump();
  const Result mended = attest_command("run --testee naive" + kMask + " --known " + known + out());
  EXPECT_EQ(mended.exit_code, 1);
  EXPECT_THAT(mended.text, HasSubstr("naive passes mask/"));
  std::ofstream(known) << "[\n{\"case\": 7}\n]";
  const Result wrong = attest_command(run + " --known " + known + out());
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.text, HasSubstr("known.json:2: "));
}

TEST_F(RecordCommandTest, LineThatNestsDeepIsAnErrorWithItsLine) {
  attest_command("run --testee naive" + kMask + out());
  std::vector<std::string> all = lines();
  all[2] = "{\"kind\":\"verdict\",\"because\":" + std::string(200'000, '[') +
           std::string(200'000, ']') + "}";
  write(all);
  for (const char* command : {"report ", "verify "}) {
    const Result result = attest_command(command + (folder_ / "out").string());
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.text, HasSubstr("results.jsonl: line 3: lists and objects nest deeper"));
  }
}

}  // namespace
}  // namespace attest
