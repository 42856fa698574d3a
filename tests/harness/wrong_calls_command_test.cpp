// The command where somebody is mistaken, or something goes wrong around it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "tests/harness/command.h"

namespace attest {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class WrongCallsCommandTest : public CommandFixture {
 protected:
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
};

TEST_F(WrongCallsCommandTest, WhatWasMeantIsNamed) {
  std::ofstream(folder_ / "description.json") << R"({"name": "x", "version": "", "vendor": "",
      "profiles": [], "dtypes": ["f32"], "features": [], "limit": {"head_dim": 64}})";
  std::ofstream(folder_ / "limits.json") << R"({"name": "x", "version": "", "vendor": "",
      "profiles": [], "dtypes": ["f32"], "features": [], "limits": {"head_dims": 64}})";
  const std::string vectors = "vectors " + (folder_ / "v").string();
  const std::string from = vectors + " --description " + folder_.string();
  const std::pair<std::string, const char*> mistakes[] = {
      {"explain mask-3", "there is no clause mask-3; did you mean MASK-3?"},
      {"explain Mask/Causal/square", "the nearest:\n  mask/causal/square/"},
      {vectors + " --features causl", "there is no feature \"causl\"; did you mean causal?"},
      {vectors + " --features Causal,LSE", "\"Causal\"; did you mean causal?"},
      {from + "/description.json", "unknown key \"limit\"; did you mean limits?"},
      {from + "/limits.json", "unknown key \"head_dims\"; did you mean head_dim?"},
      {"explain causal", "causal is a feature; attest list --features says its clauses"},
      {"explain masks", "masks is a profile; attest list --profiles says its clauses"},
      {"help", "attest COMMAND --help"},
      {"list --shapes lama3_8b", "nor such a preset; did you mean llama3_8b?"},
      {"run fa22", "no FILE.so, FILE.py or exec:COMMAND; did you mean fa2?"},
      {"check fa2 --thread 2", "attest: check has no option --thread; did you mean --threads?"},
      {"check fa2 -t 2", "attest: check has no option -t; "},
      {"check fa2 naive", "attest: check: testee: "},
      {"--tier smoke run",
       "--tier stands before the command, which comes first: attest run --tier"
       " smoke\n"},
      {"--tier=smoke run 'a b'", "which comes first: attest run --tier=smoke 'a b'\n"},
      {"--versoin", "has no option --versoin; did you mean --version?"}};
  for (const auto& [arguments, text] : mistakes) {
    const Result result = attest_command(arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments;
    EXPECT_THAT(result.text, HasSubstr(text)) << arguments;
  }
  EXPECT_EQ(attest_command("--help").exit_code, 0);
  EXPECT_EQ(attest_command("--version").exit_code, 0);
}

TEST_F(WrongCallsCommandTest, OutputThatCannotBeWrittenIsAnError) {
  for (const char* command : {"list", "list --features", "explain MASK-3", "check naive",
                              "run naive --cases mask/causal/square --profile none"}) {
    const std::string where = std::string(command).starts_with("run") ? out() : "";
    const Result result =
        shell(std::string("(") + ATTEST + " " + command + where + " > /dev/full)");
    EXPECT_EQ(result.exit_code, 2) << command;
    EXPECT_THAT(result.text, HasSubstr("cannot")) << command;
  }
  // Whoever stopped reading has read enough.
  const Result read = shell(std::string("(") + ATTEST + " check naive | head -n 1)");
  EXPECT_THAT(read.text, Not(HasSubstr("cannot")));
}

TEST_F(WrongCallsCommandTest, CheckStopsAtAKernelThatHangs) {
  const auto begin = std::chrono::steady_clock::now();
  const Result result = attest_command("check " + python_testee("time.sleep(1000)"));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(result.exit_code, 1) << result.text;
  EXPECT_THAT(result.text, AllOf(HasSubstr("TIMEOUT"), HasSubstr("it takes too long")));
  EXPECT_EQ(result.text.find("TIMEOUT"), result.text.rfind("TIMEOUT")) << result.text;
  EXPECT_LT(took.count(), 40);
}

TEST_F(WrongCallsCommandTest, CheckCutsALongLineThatACrashPrinted) {
  const std::string mine = python_testee("sys.exit('begins ' + 2**20 * 'x' + ' ends')");
  const Result result = attest_command("check " + mine);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.text,
              AllOf(HasSubstr("    | xxx"), HasSubstr("--json has them"), HasSubstr("xxx ends\n")));
  EXPECT_LT(result.text.size(), 20'000u);
  EXPECT_THAT(attest_command("check --json " + mine).text,
              AllOf(HasSubstr("begins xxx"), HasSubstr("bytes left out"),
                    HasSubstr(std::string(50'000, 'x') + " ends")));
}

TEST_F(WrongCallsCommandTest, NewRefusesNamesThatStandInAnothersWay) {
  const std::string in = "cd " + folder_.string() + " && " + ATTEST + " new ";
  for (const char* name : {"numpy", "torch", "json", "class", "attest_attention"}) {
    const Result result = shell(in + name + " --language python");
    EXPECT_EQ(result.exit_code, 2) << name;
    EXPECT_THAT(result.text, HasSubstr("another name, as my_" + std::string(name) + ", will do"));
  }
  EXPECT_EQ(shell(in + "m --language c").exit_code, 2);
  EXPECT_EQ(files(), 0u);
  EXPECT_EQ(shell(in + "numpy --language c").exit_code, 0);
  EXPECT_EQ(shell(in + "my_numpy --language python").exit_code, 0);
}

TEST_F(WrongCallsCommandTest, FoldersAreWrittenWholeOrNotAtAll) {
  // No file may have more than 1 KiB.
  const std::string in = "cd " + folder_.string() + " && ulimit -f 1 && " + ATTEST;
  for (const char* command : {" new mine", " vectors v --tier smoke"}) {
    const Result result = shell(in + command);
    EXPECT_EQ(result.exit_code, 2) << command;
    EXPECT_THAT(result.text, HasSubstr("File too large")) << command;
    EXPECT_EQ(files(), 0u) << command;
  }
  const Result stopped = shell("cd " + folder_.string() + " && timeout -s INT 0.5 " + ATTEST +
                               " vectors v --max-bytes 1T");
  EXPECT_THAT(stopped.text, HasSubstr("attest: "));
  EXPECT_EQ(files(), 0u) << stopped.text;
  EXPECT_EQ(shell("cd " + folder_.string() + " && " + ATTEST +
                  " vectors v/ --cases mask/causal/square/dtype=f32")
                .exit_code,
            0);
  EXPECT_EQ(files(), 1u) << "nothing but v";
}

}  // namespace
}  // namespace attest
