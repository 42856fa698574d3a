#include "harness/run/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "harness/run/conclude.h"
#include "harness/run/seal.h"
#include "harness/run/sha256.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

VerdictRecord audited_verdict(const std::string& id, Outcome outcome = Outcome::pass) {
  VerdictRecord v{.case_id = id, .testee = "fa2", .dtype = "f32", .verdict = {}};
  v.verdict.outcome = outcome;
  if (outcome == Outcome::fail) v.verdict.reason = "bound";
  v.verdict.clauses = {"MASK-1"};
  return v;
}

class AuditTest : public testing::Test {
 protected:
  AuditTest() {
    record_.header = {.suite_version = "1",
                      .cases = {.digest = "c", .bundled = true, .selected = 2, .complete = 2},
                      .testees = {{.name = "fa2",
                                   .isolation = "other-user",
                                   .profiles = {"forward-core"},
                                   .features = {"lse"},
                                   .dtypes = {"f32"}}},
                      .tier = "standard"};
    record_.verdicts = {audited_verdict("a"), audited_verdict("b")};
    finish();
  }
  void finish() {
    record_.footer = conclude(record_.header, record_.verdicts);
    seal(record_);
  }
  // Of the record as it stands now, whose footer may be of earlier.
  std::vector<std::string> defects(const Expectation& expected = {
                                       .ids = std::vector<std::string>{"a", "b"}}) {
    Record sealed = record_;
    if (sealed.footer) {
      seal(sealed);
    }
    Record audited = record_;
    audit(audited, sealed.footer ? sealed.footer->digests : Digests(), expected);
    unverified_ = audited.unverified;
    return audited.defects;
  }
  Record record_;
  std::vector<std::string> unverified_;
};

TEST_F(AuditTest, WhatIsAsItWasWrittenHasNoDefect) {
  EXPECT_EQ(record_.footer->conclusion, "conformant");
  EXPECT_THAT(defects(), IsEmpty());
  EXPECT_THAT(unverified_, IsEmpty());
}

// Three FAILs and a footer that says otherwise: the digests made anew.
TEST_F(AuditTest, FooterThatSaysMoreThanTheVerdictsIsNotBelieved) {
  const Footer flattering = *record_.footer;
  record_.verdicts[0] = audited_verdict("a", Outcome::fail);
  record_.footer = flattering;
  seal(record_);
  EXPECT_THAT(defects(),
              testing::Contains(HasSubstr("its footer says the conclusion \"conformant\", "
                                          "its verdicts say \"not conformant\"")));
  finish();
  record_.footer->profiles[0].passed = 2;
  seal(record_);
  EXPECT_THAT(defects(), ElementsAre(HasSubstr("other standings of profiles")));
  finish();
  record_.footer->counts["PASS"] = 2;
  seal(record_);
  EXPECT_THAT(defects(), ElementsAre(HasSubstr("counts other outcomes")));
}

TEST_F(AuditTest, DoubledUnknownAndMissingVerdictsAreNamed) {
  record_.verdicts.push_back(audited_verdict("a"));
  finish();
  EXPECT_THAT(defects(), ElementsAre("verdicts are doubled: a of fa2"));
  record_.verdicts.back() = audited_verdict("c");
  finish();
  EXPECT_THAT(defects(), ElementsAre("verdicts are on cases that the run did not have: c of fa2"));
  record_.verdicts.pop_back();
  record_.verdicts.pop_back();
  finish();
  EXPECT_THAT(defects(), ElementsAre("verdicts are missing: b of fa2"));
  record_.verdicts[0].testee = "stranger";
  finish();
  EXPECT_THAT(defects(),
              testing::Contains("verdicts are of testees that the header does not have: stranger"));
}

TEST_F(AuditTest, FormsThatADispatchAsksForAreCounted) {
  record_.header.testees[0].besides = 1;
  record_.verdicts.push_back(audited_verdict("a/fit=d:16"));
  finish();
  EXPECT_THAT(defects(), IsEmpty());
  record_.verdicts.pop_back();
  finish();
  EXPECT_THAT(defects(),
              ElementsAre("fa2 has verdicts on 0 forms beside its cases, of 1 that it was asked"));
}

TEST_F(AuditTest, WithoutTheCasesTheirNumberIsCheckedAndTheRestSaidToBeUnverified) {
  const Expectation none = {.ids = {}, .why_not = "they are not here"};
  EXPECT_THAT(defects(none), IsEmpty());
  EXPECT_THAT(unverified_, ElementsAre("which cases the run should have: they are not here"));
  record_.verdicts.pop_back();
  finish();
  EXPECT_THAT(defects(none), ElementsAre("fa2 has verdicts on 1 cases, of 2 that were selected"));
}

TEST_F(AuditTest, TruncatedOrIncompleteRecordsMissNoCases) {
  record_.verdicts.pop_back();
  finish();
  record_.footer->complete = false;
  record_.footer->conclusion = "incomplete";
  record_.footer->exit_code = 3;
  seal(record_);
  EXPECT_THAT(defects(), IsEmpty());
  record_.footer.reset();
  EXPECT_THAT(defects(), IsEmpty());
  record_.verdicts.push_back(record_.verdicts[0]);
  EXPECT_THAT(defects(), ElementsAre("verdicts are doubled: a of fa2"));
}

TEST_F(AuditTest, AnEditIsSeenByTheDigests) {
  record_.verdicts[0].verdict.wall_s = 3;
  EXPECT_THAT(defects(), ElementsAre(HasSubstr("something was changed")));
  record_.verdicts[0].verdict.tensors[TensorName::o] = {.max_ratio = 0.5};
  EXPECT_THAT(defects(), ElementsAre(HasSubstr("its verdicts are not those")));
}

// Its header may say what no run says: what concludes from it was made for runs.
TEST_F(AuditTest, HeaderThatNoRunWritesIsADefect) {
  const Header header = record_.header;
  record_.header.profiles = {"everything"};
  EXPECT_THAT(defects(), testing::Contains(HasSubstr("there is no profile everything")));
  record_.header = header;
  for (const char* name : {"nothing", "none"}) {
    record_.header.testees[0].profiles = {name};
    EXPECT_THAT(defects(), testing::Contains(HasSubstr(std::string("is no profile ") + name)));
  }
  record_.header = header;
  record_.header.testees[0].arithmetic = {{"f32", {{"exp_ulp", "many"}}}};
  EXPECT_THAT(defects(), testing::Contains(HasSubstr("nothing can be concluded from its header")));
}

TEST_F(AuditTest, CasesAreExpectedOnlyWhereTheirFilesAreThoseOfTheRun) {
  const fs::path root = fs::path(testing::TempDir()) / "audit_cases";
  fs::remove_all(root);
  fs::create_directories(root);
  std::ofstream(root / "mine.json")
      << R"({"about": "x", "cases": [{"name": "one", "clauses": ["MASK-1"], "because": "y",
             "dtypes": ["f32", "f16"], "tier": "smoke"}]})";
  Header header = record_.header;
  header.cases.digest = sha256_of_cases(root);
  header.seed = 1;
  const auto ids_of = [&](const Header& h) {
    return expected_cases(h, {.cases = root, .bundled = {}, .version = {}, .commit = {}}).ids;
  };
  ASSERT_TRUE(ids_of(header));
  EXPECT_THAT(*ids_of(header), ElementsAre("mine/one/dtype=f32/data=normal/s=1",
                                           "mine/one/dtype=f16/data=normal/s=1"));
  header.shard = "2/2";
  EXPECT_THAT(*ids_of(header), ElementsAre("mine/one/dtype=f16/data=normal/s=1"));
  header.cases.digest = "other";
  EXPECT_FALSE(ids_of(header));
  header.from = "/nonexistent";
  EXPECT_FALSE(ids_of(header));
  fs::remove_all(root);
}

// Parsers survive it; what walks over their result does not.
TEST_F(AuditTest, LineThatNestsDeepIsAnErrorWithItsFileAndLine) {
  const fs::path file = fs::path(testing::TempDir()) / "audit_deep.jsonl";
  std::ofstream(file) << to_line(record_.header) << "\n"
                      << R"({"kind":"verdict","case":)" << std::string(200000, '[')
                      << std::string(200000, ']') << "}\n"
                      << to_line(*record_.footer) << "\n";
  try {
    read_and_audit(file, {});
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_EQ(error.what(), file.string() + ": line 2: lists and objects nest deeper than 256");
  }
  fs::remove(file);
}

TEST_F(AuditTest, AFittedCaseIsTheCaseThatWasSelected) {
  record_.verdicts = {audited_verdict("a/s=1/fit=sq:128"), audited_verdict("b")};
  finish();
  EXPECT_THAT(defects({.ids = std::vector<std::string>{"a/s=1", "b"}}), IsEmpty());
}

}  // namespace
}  // namespace attest
