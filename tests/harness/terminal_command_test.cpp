// The command on a terminal, which is a pseudo-terminal of some width here; and what helps whoever
// sits there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <regex>
#include <sstream>
#include <string>

#include "spec/clause.h"
#include "spec/json_text.h"
#include "spec/profile.h"
#include "tests/harness/command.h"

namespace attest {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Runs a command of a shell on a terminal of so many columns.
Result on_terminal(const std::string& command, unsigned short columns) {
  winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  Result result{-1, ""};
  std::array<char, 4096> buffer{};
  for (ssize_t n = 0; (n = read(terminal, buffer.data(), buffer.size())) > 0;) {
    result.text.append(buffer.data(), static_cast<std::size_t>(n));
  }
  close(terminal);
  int status = 0;
  waitpid(child, &status, 0);
  result.exit_code = WEXITSTATUS(status);
  return result;
}

class TerminalCommandTest : public CommandFixture {
 protected:
  // With what is set before it in the environment.
  std::string smoke(const std::string& testee, const std::string& before = "") const {
    return "unset NO_COLOR COLUMNS; TERM=xterm " + before + " " + ATTEST +
           " run --tier smoke --testee " + testee + out() + " ";
  }
};

// So many of so many.
const std::string kAll = "([0-9]+)/\\1";
MATCHER_P(Has, pattern, "has what matches " + std::string(pattern)) {
  return std::regex_search(arg, std::regex(std::string(pattern)));
}

// What is written between two returns of the cursor.
std::vector<std::string> drawn(const std::string& text) {
  std::vector<std::string> all;
  const std::string end = "\x1b[K";
  for (std::size_t begin = 0; (begin = text.find('\r', begin)) != std::string::npos;) {
    const std::size_t stop = text.find(end, ++begin);
    if (stop == std::string::npos) break;
    const std::string line = text.substr(begin, stop - begin);
    if (line.find('\n') == std::string::npos) all.push_back(line);
  }
  return all;
}

TEST_F(TerminalCommandTest, ProgressIsOneLineThatFitsWhateverTheWidth) {
  for (const unsigned short columns : {40, 80, 200}) {
    const Result result = on_terminal(smoke("naive"), columns);
    EXPECT_EQ(result.exit_code, 0) << result.text;
    const auto lines = drawn(result.text);
    ASSERT_GE(lines.size(), 2u) << result.text;
    for (const std::string& line : lines) EXPECT_LT(line.size(), columns) << line;
    EXPECT_EQ(lines.back(), "") << "the bar is removed";
    EXPECT_THAT(result.text, Has(kAll)) << columns;
  }
  EXPECT_THAT(on_terminal(smoke("naive", "COLUMNS=40"), 200).text,
              AllOf(Has(kAll + ", 0 not passed"), Not(Has(kAll + " verdicts"))));
}

TEST_F(TerminalCommandTest, ColoursAreOnATerminalAloneUnlessTheyAreAskedFor) {
  const std::string green = "\x1b[32mNo failure\x1b[0m in ";
  EXPECT_THAT(on_terminal(smoke("naive"), 80).text, HasSubstr(green));
  EXPECT_THAT(on_terminal(smoke("naive") + "--color never", 80).text, Not(HasSubstr("\x1b[3")));
  const std::string without = smoke("naive", "NO_COLOR=1");
  EXPECT_THAT(on_terminal(without, 80).text, Not(HasSubstr("\x1b[3")));
  EXPECT_THAT(on_terminal(without + "--color always", 80).text, HasSubstr(green));
  EXPECT_THAT(shell(smoke("naive")).text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(shell(smoke("naive") + "--color always").text, HasSubstr(green));
}

TEST_F(TerminalCommandTest, QuietItSaysItsConclusionAndVerboseEachVerdict) {
  EXPECT_THAT(on_terminal(smoke("naive") + "-q --color never", 80).text,
              Has("^No failure in ([0-9]+) of [0-9]+ cases \\(the smoke tier\\); \\1 of [0-9]+ "
                  "verdicts passed, 3 unsupported\\.\r\n$"));
  const Result failing = shell(smoke("mutant:top_left") + "-q");
  EXPECT_EQ(failing.exit_code, 1);
  EXPECT_THAT(failing.text, testing::StartsWith("Not conformant: mutant/top_left does not pass"));
  EXPECT_EQ(std::count(failing.text.begin(), failing.text.end(), '\n'), 1) << failing.text;
  const Result telling = shell(smoke("naive") + "-v");
  EXPECT_THAT(telling.text,
              testing::ContainsRegex("\nPASS [0-9.e-]+ s naive mask/causal/square/dtype=f32/"));
  EXPECT_EQ(shell(smoke("naive") + "-q -v").exit_code, 2);
  EXPECT_EQ(shell(std::string(ATTEST) + " fuzz --testee naive --count 5 -q" + out()).text,
            "Nothing found in 5 random problems: 5 PASS.\n");
}

// Describes itself, and dies in its first call with more to say than is shown.
TEST_F(TerminalCommandTest, WhatACrashPrintedLastIsShown) {
  const std::string dies = python_testee(R"(for i in range(40): print("line", i, file=sys.stderr)
        raise RuntimeError("out of tiles" + 5000 * "!"))");
  const std::string run =
      std::string(ATTEST) + " run --profile none --cases shape/grids" + out() + " --testee " + dies;
  const Result result = shell(run);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.text, AllOf(HasSubstr("CRASH"), HasSubstr("    it printed:\n"),
                                 HasSubstr("    | RuntimeError: out of tiles!!!")));
  EXPECT_THAT(result.text, AllOf(Not(HasSubstr("| line 2\n")), HasSubstr("bytes left out")));
  EXPECT_THAT(contents(folder_ / "out" / "results.jsonl"), HasSubstr(std::string(5000, '!')));
  EXPECT_THAT(shell(run + " -v").text, HasSubstr("    | line 2\n"));
}

TEST_F(TerminalCommandTest, ExplainsEveryClauseByTheTextOfTheStandard) {
  const Result result = attest_command("explain MASK-3");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.text,
              AllOf(HasSubstr("MASK-3 — causal, bottom right, and with any offset\n"),
                    HasSubstr("level     required\n"), HasSubstr("profile   forward-core\n"),
                    HasSubstr("the last query sits on\n   the last key."),
                    HasSubstr("Dao-AILab/flash-attention#282: j <= i instead of j <= i + Sk - Sq."),
                    HasSubstr("mutant/top_left  Dao-AILab/flash-attention#282"),
                    HasSubstr("more, which --all shows")));
  EXPECT_THAT(attest_command("explain MASK-3 --all").text,
              AllOf(Not(HasSubstr("which --all shows")), HasSubstr("mutant/diagonal_wraps")));
  EXPECT_THAT(attest_command("explain mask/causal/square").text,
              AllOf(HasSubstr("off by one either way"), HasSubstr("MASK-2 — causal, top left")));
}

TEST_F(TerminalCommandTest, CheckTellsWhetherTheGlueIsRight) {
  const Result right = attest_command("check fa2");
  EXPECT_EQ(right.exit_code, 0) << right.text;
  EXPECT_THAT(right.text,
              AllOf(HasSubstr("The glue is right."), HasSubstr("\n  attest run --testee fa2\n"),
                    HasSubstr("PASS  the largest element of O a quarter larger: FAIL(bound)\n"),
                    HasSubstr("PASS  a byte beside O changed: FAIL(guard)\n")));
  const Result wrong = attest_command("check mutant:scale_squared --json");
  EXPECT_EQ(wrong.exit_code, 1) << wrong.text;
  const auto told = parse_json(wrong.text).at(0);
  EXPECT_EQ(told.at("right"), false);
  EXPECT_EQ(told.at("easy").at(0).at("outcome"), "FAIL");
  EXPECT_THAT(told.at("easy").at(0).at("did_you_mean").get<std::string>(),
              HasSubstr("exactly what the scale twice"));
  EXPECT_THAT(told.at("next").at(0).get<std::string>(), HasSubstr("attest repro "));
  EXPECT_EQ(attest_command("check").exit_code, 2);
}

TEST_F(TerminalCommandTest, ListsWhatThereIsBesideCases) {
  const std::string named = attest_command("list --profiles").text;
  for (const Profile& profile : profiles()) {
    EXPECT_THAT(named, HasSubstr(std::string(profile.name)));
  }
  EXPECT_EQ(parse_json(attest_command("list --clauses --json").text).size(), clauses().size());
  EXPECT_EQ(parse_json(attest_command("list --profiles --json").text).size(), profiles().size());
  const Result testees = attest_command("list --testees");
  EXPECT_THAT(testees.text, AllOf(HasSubstr("fa2/scalar"), HasSubstr("naive/textbook")));
  EXPECT_EQ(attest_command("list --profiles --clauses").exit_code, 2);
}

TEST_F(TerminalCommandTest, BundledKernelsAreJudgedAsThisMachineHasThemUnlessAllAreAskedFor) {
  const std::string run = "run --profile none --cases format/formats/f32/dtype=f32/data=normal -v ";
  const Result usual = attest_command(run + out());
  EXPECT_EQ(usual.exit_code, 0) << usual.text;
  EXPECT_THAT(usual.text, AllOf(HasSubstr("5 of 5 verdicts passed"), Not(HasSubstr("scalar"))));
  EXPECT_THAT(attest_command(run + "--all-targets" + out()).text, HasSubstr("fa2/scalar"));
  EXPECT_EQ(attest_command(run + "--all-targets --testee fa2" + out()).exit_code, 2);
}

TEST_F(TerminalCommandTest, HelpTellsDefaultsAndExitCodes) {
  for (const char* command : {"", "list", "run", "fuzz", "selfcheck", "criteria", "repro", "report",
                              "merge", "verify", "explain", "completion"}) {
    EXPECT_THAT(attest_command(std::string(command) + " --help").text,
                HasSubstr("Exit codes: 0 nothing failed"))
        << command;
  }
  EXPECT_THAT(attest_command("run --help").text,
              AllOf(HasSubstr("[standard]"), HasSubstr("--jobs INT"), HasSubstr("=reports/out"),
                    HasSubstr("WHEN [auto]"), HasSubstr("--shard TEXT=1/1")));
}

TEST_F(TerminalCommandTest, BashCompletesCommandsOptionsAndValues) {
  const auto completed = [&](const std::string& words, int place) {
    const std::string script =
        std::string("source <(") + ATTEST + " completion bash); COMP_WORDS=(" + words +
        "); COMP_CWORD=" + std::to_string(place) + "; _attest; echo \"${COMPREPLY[*]}\"";
    return shell("bash -c '" + script + "'").text;
  };
  EXPECT_EQ(completed("attest se", 1), "selfcheck\n");
  EXPECT_EQ(completed("attest run --give", 2), "--give-up-after\n");
  EXPECT_EQ(completed("attest run --tier s", 3), "smoke standard\n");
  EXPECT_EQ(completed("attest run --profile var", 3), "varlen\n");
  EXPECT_EQ(completed("attest explain MASK-1", 2),
            "MASK-1 MASK-10 MASK-11 MASK-12 MASK-13 MASK-14 MASK-15\n");
  EXPECT_EQ(completed("attest run --testee ./mi", 3), "\n") << "files";
  EXPECT_EQ(completed("attest run --testee na", 3), "naive\n");
  EXPECT_EQ(completed("attest check fa", 2), "fa1_split_kv fa2\n");
  EXPECT_EQ(completed("attest list --shapes ll", 3), "llama3_70b llama3_8b\n");
  EXPECT_EQ(completed("attest vectors --dtype b", 3), "bf16\n");
  EXPECT_EQ(completed("attest new --language p", 3), "python\n");
  EXPECT_THAT(contents(std::string(BUILD) + "/share/bash-completion/completions/attest"),
              HasSubstr("complete -o default -F _attest attest\n"));
}

}  // namespace
}  // namespace attest
