// Conformance as tests of GoogleTest, in C++17: one for each clause that the tier tries.
//
//   int main(int argc, char** argv) {
//     testing::InitGoogleTest(&argc, argv);
//     attest::RegisterConformance("./libmine.so");         // ./libmine.so:kernel, exec:./worker
//     return RUN_ALL_TESTS();
//   }
//
// Attest.MASK_3 is the clause MASK-3: what stands behind a "-" in --gtest_filter is left out. It
// fails with the verdicts that are blamed on the clause, and is skipped where nothing of it was
// asked for. Attest.conclusion is that of the run: its exit code.
//
// Tests are named without a run. The first that runs has the command `attest` judge what all that
// were selected need: once, in processes of their own. The command is $ATTEST or, as attest::gtest
// of CMake says, the one of the package.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#ifndef ATTEST_COMMAND
#define ATTEST_COMMAND "attest"
#endif

namespace attest {

struct ConformanceOptions {
  std::string tier = "smoke";      // standard: the one that concludes
  std::vector<std::string> cases;  // patterns of ids; empty: all of the tier
  std::vector<std::string>
      profiles;                  // to be met; empty: those declared, or none if `cases` says some
  std::string known;             // a file of known failures, which fail no test
  int jobs = 1;                  // cases at a time
  std::string out;               // a folder that keeps the reports; empty: nothing is kept
  std::string suite = "Attest";  // of which the tests are
};

namespace detail {

inline std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

struct Ran {
  int exit_code;
  std::string text;
};

// `attest` with these words, and what it prints.
inline Ran run_attest(const std::vector<std::string>& words) {
  const char* const named = getenv("ATTEST");
  std::string command = quoted(named ? named : ATTEST_COMMAND);
  for (const std::string& word : words) command += ' ' + quoted(word);
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (!pipe) return {-1, "no process can be started"};
  std::string text;
  std::array<char, 4096> buffer;
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    text.append(buffer.data(), n);
  }
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text};
}

// The text that begins at `at`, behind its quote.
inline std::string text_from(const std::string& json, std::size_t at) {
  std::string text;
  for (; at < json.size() && json[at] != '"'; ++at) {
    at += json[at] == '\\';
    text += json[at];
  }
  return text;
}

// What stands at a key of an object on one line, as the record has it.
inline std::string text_at(const std::string& json, const std::string& key) {
  const std::string opening = '"' + key + "\":\"";
  const std::size_t at = json.find(opening);
  return at == std::string::npos ? "" : text_from(json, at + opening.size());
}

// The texts of the list that follows a key, from `at` on.
inline std::vector<std::string> list_from(const std::string& json, std::size_t at) {
  std::vector<std::string> texts;
  const std::size_t end = json.find(']', at);
  for (at = json.find('"', at); at < end; at = json.find('"', at)) {
    texts.push_back(text_from(json, at + 1));
    at += texts.back().size() + 2;
  }
  return texts;
}

struct Verdict {
  std::string outcome, blamed, told;
  std::vector<std::string> clauses;
  bool known;  // to fail
  bool passed() const { return outcome == "PASS" || outcome == "WARN"; }
  bool failed() const { return !passed() && outcome != "UNSUPPORTED" && !known; }
};

// One testee in one tier: the tests that there are, and the run that they share.
class Conformance {
 public:
  Conformance(std::string testee, ConformanceOptions options)
      : testee_(std::move(testee)), options_(std::move(options)) {}

  // The clauses that the cases cite, or why they can't be listed.
  Ran list() {
    const Ran listed =
        run_attest(with_cases({"list", "--json", "--tier", options_.tier}, options_.cases));
    const std::string id = "\"case\": \"", clauses = "\"clauses\": [";
    for (std::size_t at = 0; (at = listed.text.find(id, at)) != std::string::npos;) {
      at += id.size();
      const std::string name = text_from(listed.text, at);
      at = listed.text.find(clauses, at) + clauses.size();
      for (const std::string& clause : list_from(listed.text, at - 1))
        cases_[clause].insert(entry_of(name));
    }
    return listed;
  }
  std::vector<std::string> clauses() const {
    std::vector<std::string> names;
    for (const auto& each : cases_) names.push_back(each.first);
    return names;
  }
  static std::string test_name(std::string clause) {
    std::replace(clause.begin(), clause.end(), '-', '_');
    return clause;
  }

  void test(const std::string& clause) {
    run_once();
    if (ran_.exit_code < 0 || ran_.exit_code == 2) GTEST_FAIL() << ran_.text;
    int passed = 0, failed = 0;
    std::string elsewhere;
    for (const Verdict& v : verdicts_) {
      const bool cites = std::count(v.clauses.begin(), v.clauses.end(), clause) > 0;
      if (v.failed() && v.blamed == clause && ++failed <= kMostTold) ADD_FAILURE() << v.told;
      passed += cites && v.passed();
      if (cites && (v.known || v.failed() || elsewhere.empty())) elsewhere = v.told;
    }
    if (failed > kMostTold) ADD_FAILURE() << failed - kMostTold << " more are blamed on " << clause;
    if (failed + passed == 0) GTEST_SKIP() << "nothing of it passed: " << elsewhere;
  }

  void test_conclusion() {
    run_once();
    if (ran_.exit_code != 0) ADD_FAILURE() << "exit code " << ran_.exit_code << '\n' << ran_.text;
  }

 private:
  static constexpr int kMostTold = 5;

  static std::vector<std::string> with_cases(std::vector<std::string> words,
                                             const std::vector<std::string>& cases) {
    for (const std::string& each : cases) words.insert(words.end(), {"--cases", each});
    return words;
  }

  // "mask/causal/square" of a case's id: up to what varies.
  static std::string entry_of(const std::string& id) {
    return id.substr(0, id.rfind('/', id.find('=')));
  }

  // What the selected tests need; empty: the whole tier.
  std::vector<std::string> cases_needed() const {
    std::set<std::string> selected, needed;
    const testing::UnitTest& all = *testing::UnitTest::GetInstance();
    for (int s = 0; s < all.total_test_suite_count(); ++s) {
      const testing::TestSuite& suite = *all.GetTestSuite(s);
      for (int t = 0; suite.name() == options_.suite && t < suite.total_test_count(); ++t) {
        const testing::TestInfo& test = *suite.GetTestInfo(t);
        if (test.should_run()) selected.insert(test.name());
      }
    }
    if (selected.count("conclusion") > 0) return {};
    for (const auto& [clause, entries] : cases_) {
      if (selected.count(test_name(clause)) > 0) needed.insert(entries.begin(), entries.end());
    }
    return {needed.begin(), needed.end()};
  }

  void run_once() {
    if (std::exchange(has_run_, true)) return;
    std::string folder = options_.out;
    if (folder.empty()) {
      folder = testing::TempDir() + "attest-XXXXXX";
      if (!mkdtemp(folder.data())) ran_ = {-1, "no folder can be made: " + folder};
      if (ran_.exit_code < 0) return;
    }
    const std::vector<std::string> needed = cases_needed();
    std::vector<std::string> words = {"run",
                                      "--testee",
                                      testee_,
                                      "--tier",
                                      options_.tier,
                                      "--jobs",
                                      std::to_string(options_.jobs),
                                      "--out",
                                      folder};
    if (!options_.known.empty()) words.insert(words.end(), {"--known", options_.known});
    const bool part = !needed.empty() || !options_.cases.empty();
    for (const std::string& each : part ? std::vector<std::string>{"none"} : options_.profiles) {
      words.insert(words.end(), {"--profile", each});
    }
    ran_ = run_attest(with_cases(words, needed.empty() ? options_.cases : needed));
    read(folder);
    if (!options_.out.empty()) return;
    std::filesystem::remove_all(folder);
    const std::size_t at = ran_.text.find("\nReport: ");  // which is no more
    if (at != std::string::npos) ran_.text.erase(at, ran_.text.find('\n', at + 1) - at);
  }

  // The record; its page for build servers says which failures are known.
  void read(const std::filesystem::path& folder) {
    std::ifstream page(folder / "junit.xml"), record(folder / "results.jsonl");
    const std::string junit{std::istreambuf_iterator<char>(page), {}};
    for (std::string line; std::getline(record, line);) {
      if (text_at(line, "kind") != "verdict") continue;
      const std::string id = text_at(line, "case"), testee = text_at(line, "testee");
      const std::string topic = testee + "." + id.substr(0, id.find('/'));
      const std::size_t at = junit.find("classname=\"" + topic + "\" name=\"" + id + "\"");
      const std::string known = "><skipped message=\"known: ";
      Verdict v;
      v.outcome = text_at(line, "outcome");
      v.known = at < junit.size() && junit.compare(junit.find('>', at), known.size(), known) == 0;
      v.clauses = list_from(line, line.find("\"clauses\":["));
      v.blamed = text_at(line, "blamed");
      if (v.blamed.empty() && !v.clauses.empty()) v.blamed = v.clauses.front();
      v.told = (v.known ? "known: " : "") + v.outcome + " " + testee + " " + id + "\n    " +
               text_at(line, "message") + "\n    " + text_at(line, "repro");
      verdicts_.push_back(std::move(v));
    }
  }

  std::string testee_;
  ConformanceOptions options_;
  std::map<std::string, std::set<std::string>> cases_;  // entries by the clause that they cite
  bool has_run_ = false;
  Ran ran_{0, ""};
  std::vector<Verdict> verdicts_;
};

class ConformanceTest : public testing::Test {
 public:
  // Of no clause: the conclusion.
  ConformanceTest(std::shared_ptr<Conformance> all, std::string clause)
      : all_(std::move(all)), clause_(std::move(clause)) {}
  void TestBody() override { clause_.empty() ? all_->test_conclusion() : all_->test(clause_); }

 private:
  std::shared_ptr<Conformance> all_;
  std::string clause_;
};

}  // namespace detail

// Registers the tests of one testee, as --testee names it; before RUN_ALL_TESTS. Several testees
// need suites of their own. Returns how many tests there are.
inline int RegisterConformance(const std::string& testee, const ConformanceOptions& options = {}) {
  const auto all = std::make_shared<detail::Conformance>(testee, options);
  const detail::Ran listed = all->list();
  std::vector<std::string> clauses = all->clauses();
  clauses.emplace_back();
  for (const std::string& clause : clauses) {
    const std::string name = clause.empty() ? "conclusion" : detail::Conformance::test_name(clause);
    testing::RegisterTest(
        options.suite.c_str(), name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
        [all, clause]() -> testing::Test* { return new detail::ConformanceTest(all, clause); });
  }
  return static_cast<int>(clauses.size());
}

}  // namespace attest
