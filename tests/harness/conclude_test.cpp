#include "harness/run/conclude.h"

#include <gtest/gtest.h>

#include "reports/standing.h"
#include "spec/profile.h"

namespace attest {
namespace {

Header header() {
  Header header;
  header.tier = "standard";
  header.cases = {.digest = {}, .bundled = true, .selected = 1, .complete = 1};
  header.testees = {{.name = "fa2",
                     .isolation = "other-user",
                     .profiles = {"forward-core"},
                     .features = {"lse"},
                     .dtypes = {"f32", "bf16"}}};
  return header;
}

VerdictRecord verdict_record(Outcome outcome, const std::string& dtype = "f32",
                             std::vector<std::string> clauses = {"MASK-1"}) {
  VerdictRecord record{.case_id = "a/b", .testee = "fa2", .dtype = dtype, .verdict = {}};
  record.verdict.outcome = outcome;
  record.verdict.clauses = std::move(clauses);
  return record;
}

const std::vector<VerdictRecord> kAllPassed = {verdict_record(Outcome::pass, "f32"),
                                               verdict_record(Outcome::pass, "bf16")};

int exit_code(const Header& h, const std::vector<VerdictRecord>& verdicts) {
  return conclude(h, verdicts).exit_code;
}

TEST(ConcludeTest, AllDemandedCasesPassedIsConformant) {
  const Footer footer = conclude(header(), kAllPassed);
  EXPECT_EQ(footer.exit_code, kConformant);
  ASSERT_EQ(footer.profiles.size(), 2u);
  EXPECT_TRUE(footer.profiles[0].met);
  EXPECT_EQ(footer.profiles[0].demanded, 1);
  EXPECT_EQ(footer.counts.at("PASS"), 2);
}

TEST(ConcludeTest, ProfileOfATesteeWithoutLseIsMarked) {
  Header without = header();
  without.testees[0].features = {};
  EXPECT_EQ(conclude(without, kAllPassed).profiles[0].profile, "forward-core (O-only)");
  EXPECT_EQ(conclude(header(), kAllPassed).profiles[0].profile, "forward-core");
}

TEST(ConcludeTest, WarnStaysConformant) {
  EXPECT_EQ(
      exit_code(header(), {verdict_record(Outcome::warn), verdict_record(Outcome::pass, "bf16")}),
      kConformant);
}

TEST(ConcludeTest, NothingRanIsIncompleteAndNeverConformant) {
  EXPECT_EQ(exit_code(header(), {}), kIncomplete);
  Header none = header();
  none.profiles = {kNoProfile};
  EXPECT_EQ(exit_code(none, {}), kIncomplete);
  EXPECT_EQ(exit_code(none, {verdict_record(Outcome::unsupported)}), kIncomplete);
}

TEST(ConcludeTest, EveryKindOfMisbehaviourIsNotConformant) {
  for (const Outcome outcome :
       {Outcome::fail, Outcome::crash, Outcome::timeout, Outcome::protocol_error}) {
    auto verdicts = kAllPassed;
    verdicts.push_back(verdict_record(outcome));
    EXPECT_EQ(exit_code(header(), verdicts), kNotConformant) << name(outcome);
  }
}

TEST(ConcludeTest, FailureOutsideEveryProfileCountsToo) {
  auto verdicts = kAllPassed;
  verdicts.push_back(verdict_record(Outcome::fail, "f32", {"GRAD-1"}));
  EXPECT_EQ(exit_code(header(), verdicts), kNotConformant);
}

TEST(ConcludeTest, RefusedDemandedCaseMissesTheProfile) {
  auto verdicts = kAllPassed;
  verdicts.push_back(verdict_record(Outcome::unsupported));
  EXPECT_EQ(exit_code(header(), verdicts), kNotConformant);
  verdicts.back() = verdict_record(Outcome::unsupported, "f32", {"GRAD-1"});  // not demanded
  EXPECT_EQ(exit_code(header(), verdicts), kConformant);
}

TEST(ConcludeTest, DialectLeavesTheProfileUnmetThatDemandsTheCase) {
  auto verdicts = kAllPassed;
  verdicts.push_back(verdict_record(Outcome::unsupported, "f32", {"MASK-3", "EMPTY-1"}));
  verdicts.back().verdict.reason = "dialect";
  const Footer footer = conclude(header(), verdicts);
  EXPECT_EQ(footer.exit_code, kNotConformant);
  EXPECT_FALSE(footer.profiles[0].met);
  EXPECT_TRUE(footer.profiles[1].met);
}

// Whose cases say nothing then, and would be counted for nobody.
TEST(ConcludeTest, ProfileIsNotMetWithoutItsPromises) {
  Header h = header();
  h.testees[0].profiles = {"invariant"};
  h.testees[0].dtypes = {"f32"};
  std::vector<VerdictRecord> verdicts = {verdict_record(Outcome::pass, "f32", {"DET-2"})};
  EXPECT_TRUE(conclude(h, verdicts).profiles[0].met);
  verdicts.push_back(verdict_record(Outcome::unsupported, "f32", {}));
  verdicts.back().verdict.message = "does not declare schedule";
  EXPECT_TRUE(conclude(h, verdicts).profiles[0].met) << "a promise of another";
  verdicts.back().verdict.message = "does not declare form_invariant";
  const Footer footer = conclude(h, verdicts);
  EXPECT_FALSE(footer.profiles[0].met);
  EXPECT_EQ(footer.profiles[0].needs.at("form_invariant"), 1);
  EXPECT_EQ(footer.exit_code, kNotConformant);
}

// Else it would look as if it had not been claimed.
TEST(ConcludeTest, ProfileWithoutACaseSaysWhatItsCasesNeed) {
  Header h = header();
  h.testees[0].profiles = {"forward-core", "double", "training-full", "schedule"};
  auto verdicts = kAllPassed;
  verdicts.push_back(verdict_record(Outcome::unsupported, "f64", {"FORMAT-1", "MASK-1"}));
  verdicts.back().verdict.reason = "undeclared";
  verdicts.back().verdict.message = "f64";
  verdicts.push_back(verdict_record(Outcome::unsupported, "f64", {"FORMAT-1", "MASK-4"}));
  verdicts.back().verdict.reason = "undeclared";
  verdicts.back().verdict.message = "f64, gqa, window";  // more than the other
  verdicts.push_back(verdict_record(Outcome::unsupported, "f32", {"GRAD-5", "GRAD-1"}));
  verdicts.back().verdict.reason = "undeclared";
  verdicts.back().verdict.message = "backward, dlse";
  verdicts.push_back(verdict_record(Outcome::unsupported, "f32", {}));
  verdicts.back().verdict.message = "does not declare schedule";
  const Footer footer = conclude(h, verdicts);
  EXPECT_EQ(footer.exit_code, kIncomplete);
  std::map<std::string, std::map<std::string, Index>> needs;
  for (const ProfileRecord& p : footer.profiles) {
    if (p.profile == "forward-core") continue;
    EXPECT_EQ(p.demanded, 0);
    EXPECT_FALSE(p.met || p.complete);
    needs[p.profile] = p.needs;
  }
  using Needs = std::map<std::string, Index>;
  EXPECT_EQ(needs.size(), 3u);
  EXPECT_EQ(needs["double"], (Needs{{"f64", 2}}));
  EXPECT_EQ(needs["training-full"],
            (Needs{{"backward", 1}, {"dlse", 1}, {"the profile training-core", 1}}));
  EXPECT_EQ(needs["schedule"], (Needs{{"schedule", 1}}));
}

class BeyondDefaultTest : public testing::Test {
 protected:
  BeyondDefaultTest() {
    header_.testees[0].arithmetic = {{"bf16", {{"exp_ulp", 736}, {"key_block", 128}}}};
  }
  Footer footer(std::vector<VerdictRecord> verdicts = kAllPassed) const {
    return conclude(header_, verdicts);
  }
  Header header_ = header();
};

TEST_F(BeyondDefaultTest, ABareNameRefusesItWhoeverGivesIt) {
  for (const std::vector<std::string>& asked : {std::vector<std::string>{}, {"forward-core"}}) {
    header_.profiles = asked;
    const Footer f = footer();
    EXPECT_EQ(f.exit_code, kNotConformant);
    EXPECT_EQ(f.conclusion, "not conformant");
    ASSERT_EQ(f.profiles.size(), 2u);
    EXPECT_TRUE(f.profiles[0].met) << "f32 declares nothing";
    EXPECT_TRUE(f.profiles[0].with.empty());
    EXPECT_FALSE(f.profiles[1].met);
    EXPECT_TRUE(f.profiles[1].complete);
    EXPECT_EQ(f.profiles[1].passed, f.profiles[1].demanded);
    EXPECT_EQ(f.profiles[1].with, std::vector<std::string>{"exp of 736 units"});
  }
}

TEST_F(BeyondDefaultTest, WithDeclaredBehindItsNameAProfileTakesItAndSaysSo) {
  const std::vector<std::string> taking = {"forward-core+declared"};
  for (const bool claimed : {true, false}) {
    header_.testees[0].profiles = claimed ? taking : std::vector<std::string>{"forward-core"};
    header_.profiles = claimed ? std::vector<std::string>{} : taking;
    const Footer f = footer();
    EXPECT_EQ(f.exit_code, kConformant);
    ASSERT_EQ(f.profiles.size(), 2u);
    EXPECT_EQ(f.profiles[1].profile, "forward-core+declared");
    EXPECT_TRUE(f.profiles[1].met);
    EXPECT_EQ(f.profiles[1].with, std::vector<std::string>{"exp of 736 units"});
  }
  // It is asked for by its bare name, though the testee claims no such thing.
  header_.testees[0].profiles = taking;
  header_.profiles = {"forward-core"};
  EXPECT_EQ(footer().exit_code, kNotConformant);
}

TEST_F(BeyondDefaultTest, ExcusesNothingElse) {
  header_.profiles = {"forward-core+declared"};
  EXPECT_EQ(
      footer({verdict_record(Outcome::pass), verdict_record(Outcome::fail, "bf16")}).exit_code,
      kNotConformant);
  EXPECT_EQ(footer({verdict_record(Outcome::pass), verdict_record(Outcome::unsupported, "bf16")})
                .exit_code,
            kNotConformant);
  header_.filters = {"mask/*"};
  EXPECT_EQ(footer().exit_code, kIncomplete);
}

TEST_F(BeyondDefaultTest, WithoutAProfileTheCasesAloneDecide) {
  header_.profiles = {kNoProfile};
  EXPECT_EQ(footer().exit_code, kConformant);
}

TEST(ConcludeTest, AProbedDeclarationMeetsNoProfileThatIsAskedFor) {
  Header probed = header();
  probed.testees[0].profiles = {};
  probed.testees[0].probed = true;
  for (const char* profile : {"forward-core", "forward-core+declared"}) {
    probed.profiles = {profile};
    const Footer footer = conclude(probed, kAllPassed);
    EXPECT_EQ(footer.exit_code, kNotConformant);
    EXPECT_FALSE(footer.profiles.at(0).met);
    EXPECT_EQ(standing_text(footer.profiles.at(0)),
              "not met: only with a declaration that was probed");
  }
}

TEST(ConcludeTest, HowGradientsAreRoundedKeepsNoProfileOfTheForwardPassFromBeingMet) {
  Header beyond = header();
  beyond.testees[0].arithmetic["bf16"] = {
      {"grouped_gradients", "rounded"}, {"gradient_block", 32}, {"dbias_terms", "rounded"}};
  EXPECT_EQ(conclude(beyond, kAllPassed).exit_code, kConformant);
  EXPECT_EQ(conclude(beyond, kAllPassed).profiles.at(1).with, std::vector<std::string>());
  beyond.testees[0].profiles = {"training-core"};
  const auto standings =
      conclude(beyond, {verdict_record(Outcome::pass, "bf16", {"GRAD-1"})}).profiles;
  EXPECT_EQ(standings.back().with.size(), 3u);
}

TEST(ConcludeTest, FormatBeyondTheCapsMeetsNoProfile) {
  Header beyond = header();
  beyond.testees[0].profiles = {"forward-core+declared"};
  beyond.testees[0].beyond_caps = {{"bf16", "accumulates PV in bf16"}};
  const Footer footer = conclude(beyond, kAllPassed);
  EXPECT_EQ(footer.exit_code, kNotConformant);
  EXPECT_TRUE(footer.profiles[0].met);
  EXPECT_FALSE(footer.profiles[1].met);
}

TEST(ConcludeTest, OurOwnErrorIsNobodyElsesFailure) {
  auto verdicts = kAllPassed;
  verdicts.push_back(verdict_record(Outcome::harness_error));
  EXPECT_EQ(exit_code(header(), verdicts), kUsageOrHarnessError);
}

TEST(ConcludeTest, InconclusiveAndNotRunAreIncomplete) {
  for (const Outcome outcome : {Outcome::inconclusive, Outcome::not_run}) {
    auto verdicts = kAllPassed;
    verdicts.push_back(verdict_record(outcome));
    EXPECT_EQ(exit_code(header(), verdicts), kIncomplete) << name(outcome);
  }
}

TEST(ConcludeTest, FilteredOrShardedRunsProveNoProfile) {
  Header filtered = header();
  filtered.filters = {"mask/*"};
  EXPECT_EQ(exit_code(filtered, kAllPassed), kIncomplete);
  EXPECT_FALSE(conclude(filtered, kAllPassed).profiles[0].met);
  Header sharded = header();
  sharded.shard = "1/2";
  EXPECT_EQ(exit_code(sharded, kAllPassed), kIncomplete);
  filtered.profiles = {kNoProfile};
  EXPECT_EQ(exit_code(filtered, kAllPassed), kConformant);
}

TEST(ConcludeTest, CasesOfOthersProveNoProfile) {
  Header other = header();
  other.from = "/home/me/mine.json";
  EXPECT_EQ(exit_code(other, kAllPassed), kIncomplete);
  EXPECT_FALSE(conclude(other, kAllPassed).profiles[0].met);
  other.profiles = {kNoProfile};
  EXPECT_EQ(exit_code(other, kAllPassed), kConformant);
}

TEST(ConcludeTest, ShapesProveNoProfile) {
  Header shapes = header();
  shapes.shapes = {"llama3_8b"};
  EXPECT_EQ(exit_code(shapes, kAllPassed), kIncomplete);
  shapes.profiles = {kNoProfile};
  EXPECT_EQ(conclude(shapes, kAllPassed).conclusion, kNoFailure);
}

TEST(ConcludeTest, OutputsAloneAreNeverConformantAndMeetNoProfile) {
  Header of_outputs = header();
  of_outputs.vectors = "/tmp/vectors";
  of_outputs.testees[0].isolation = kNotStarted;
  const Footer footer = conclude(of_outputs, kAllPassed);
  EXPECT_EQ(footer.conclusion, kNoFailure);
  EXPECT_EQ(footer.exit_code, kConformant);
  for (const ProfileRecord& each : footer.profiles) EXPECT_FALSE(each.met || each.complete);
}

// What passed all that it was given, and cannot be called conformant by that.
TEST(ConcludeTest, OnlyTheCompleteTierOfTheSuiteAndOfContainedTesteesIsConformant) {
  EXPECT_EQ(conclude(header(), kAllPassed).conclusion, "conformant");
  Header full = header();
  full.tier = "full";
  EXPECT_EQ(conclude(full, kAllPassed).conclusion, "conformant");
  Header smoke = header(), uncontained = header(), none = header(), unsaid = header();
  smoke.tier = "smoke";
  uncontained.testees[0].isolation = "none";
  unsaid.testees[0].isolation = "";
  none.profiles = {kNoProfile};
  for (const Header& h : {smoke, uncontained, none, unsaid}) {
    const Footer footer = conclude(h, kAllPassed);
    EXPECT_EQ(footer.conclusion, kNoFailure);
    EXPECT_EQ(footer.exit_code, 0);
    EXPECT_EQ(footer.judged, 1) << "cases, not verdicts";
    for (const ProfileRecord& p : footer.profiles) EXPECT_FALSE(p.met || p.complete);
  }
  Header replaced = header();  // ATTEST_CASES
  replaced.cases.bundled = false;
  EXPECT_EQ(conclude(replaced, kAllPassed).conclusion, "incomplete");
  EXPECT_EQ(exit_code(replaced, kAllPassed), kIncomplete);
  // A demanded case that is refused tells all the same.
  EXPECT_EQ(exit_code(smoke, {verdict_record(Outcome::pass),
                              verdict_record(Outcome::unsupported, "bf16")}),
            kNotConformant);
}

// The smoke tier has no case of some profiles in some formats: a kernel of those formats alone is
// none the worse for claiming them, if something of it was tried.
TEST(ConcludeTest, SmokeTierIsCompleteForANarrowKernelIfAProfileOfItsWasTried) {
  Header narrow = header();
  narrow.testees[0].profiles = {"forward-core", "sparse-masks"};
  narrow.testees[0].dtypes = {"bf16"};
  const std::vector<VerdictRecord> passed = {verdict_record(Outcome::pass, "bf16")};
  EXPECT_EQ(exit_code(narrow, passed), kIncomplete) << "of the standard tier";
  narrow.tier = "smoke";
  EXPECT_EQ(exit_code(narrow, passed), kConformant);
  EXPECT_EQ(exit_code(narrow, {verdict_record(Outcome::pass, "bf16", {"GRAD-1"})}), kIncomplete);
  narrow.profiles = {"forward-core", "sparse-masks"};
  EXPECT_EQ(exit_code(narrow, passed), kIncomplete) << "asked for by name";
}

class KnownFailuresTest : public testing::Test {
 protected:
  KnownFailuresTest() {
    header_.known = {{.cases = "a/*",
                      .testee = "fa2",
                      .outcome = Outcome::fail,
                      .reason = "bound",
                      .link = "https://example.org/1"}};
  }
  static VerdictRecord failed(const std::string& reason) {
    VerdictRecord v = verdict_record(Outcome::fail, "bf16");
    v.verdict.reason = reason;
    return v;
  }
  Header header_ = header();
};

TEST_F(KnownFailuresTest, WhatFailsAsIsKnownFailsNoRunAndMakesNoneConformant) {
  VerdictRecord passed = verdict_record(Outcome::pass);
  passed.case_id = "b/c";
  const Footer footer = conclude(header_, {passed, failed("bound")});
  EXPECT_EQ(footer.conclusion, kNoFailure);
  EXPECT_EQ(footer.exit_code, 0);
  EXPECT_EQ(footer.known, 1);
  EXPECT_FALSE(footer.profiles[1].met);
  header_.profiles = {kNoProfile};
  EXPECT_EQ(exit_code(header_, {passed, failed("bound")}), 0);
}

TEST_F(KnownFailuresTest, AnotherReasonOrOutcomeOrTesteeIsNotWhatIsKnown) {
  VerdictRecord passed = verdict_record(Outcome::pass);
  passed.case_id = "b/c";
  EXPECT_EQ(exit_code(header_, {passed, failed("nonfinite")}), kNotConformant);
  EXPECT_EQ(exit_code(header_, {passed, verdict_record(Outcome::crash)}), kNotConformant);
  header_.known[0].testee = "naive";
  EXPECT_EQ(exit_code(header_, {passed, failed("bound")}), kNotConformant);
}

TEST_F(KnownFailuresTest, WhatPassesThoughItIsKnownToFailIsAnError) {
  const Footer footer = conclude(header_, kAllPassed);
  EXPECT_EQ(footer.conclusion, "not conformant");
  EXPECT_EQ(footer.exit_code, kNotConformant);
  ASSERT_EQ(footer.known_amiss.size(), 2u);
  EXPECT_EQ(footer.known_amiss[0], "fa2 passes a/b, which is known to give FAIL (bound)");
}

TEST_F(KnownFailuresTest, WhatNeverRanIsAnErrorOfAWholeRunAlone) {
  header_.known[0].cases = "c/d";
  const Footer footer = conclude(header_, kAllPassed);
  EXPECT_EQ(footer.exit_code, kNotConformant);
  EXPECT_EQ(footer.known_amiss,
            std::vector<std::string>{"c/d with fa2 is known to give FAIL (bound), and never ran"});
  header_.profiles = {kNoProfile};
  header_.shard = "1/2";
  EXPECT_EQ(exit_code(header_, kAllPassed), 0);
}

TEST(ConcludeTest, DtypeWithoutAnyDemandedCaseDoesNotMeetAProfileAlone) {
  EXPECT_EQ(exit_code(header(), {verdict_record(Outcome::pass, "f64")}), kIncomplete);
}

TEST(ConcludeTest, TesteeThatClaimsNothingIsIncomplete) {
  Header claims_nothing = header();
  claims_nothing.testees[0].profiles = {};
  EXPECT_EQ(exit_code(claims_nothing, kAllPassed), kIncomplete);
}

TEST(ConcludeTest, ProfileAskedForIsDemandedThoughUndeclared) {
  Header asked = header();
  asked.testees[0].profiles = {};
  asked.profiles = {"forward-core"};
  EXPECT_EQ(exit_code(asked, kAllPassed), kConformant);
  EXPECT_EQ(exit_code(asked, {verdict_record(Outcome::pass),
                              verdict_record(Outcome::unsupported, "bf16")}),
            kNotConformant);
}

// ---- Profiles within limits ---------------------------------------------------------------------

// A testee with limits, which claims what it can within them. Every clause of forward-core that
// speaks of its features has enough cases, unless a test takes some away.
class WithinLimitsTest : public testing::Test {
 protected:
  WithinLimitsTest() {
    header_.testees[0].profiles = {"forward-core/limits"};
    header_.testees[0].features = {"lse", "causal", "strides"};
    header_.testees[0].dtypes = {"f32"};
    std::vector<std::string> clauses;
    for (const std::string_view clause : find_profile("forward-core")->clauses) {
      clauses.emplace_back(clause);
    }
    for (int n = 0; n < 3; ++n) verdicts_.push_back(passed("many/" + std::to_string(n), clauses));
  }

  static VerdictRecord passed(const std::string& id, std::vector<std::string> clauses) {
    VerdictRecord v = verdict_record(Outcome::pass, "f32", std::move(clauses));
    v.case_id = id;
    return v;
  }
  static VerdictRecord fitted() { return passed("a/b/s=1/fit=sq:128", {"MASK-1"}); }
  // Not asked.
  static VerdictRecord left_out(const std::string& reason, const std::string& message) {
    VerdictRecord v = verdict_record(Outcome::unsupported);
    v.case_id = "left/" + message;
    v.verdict.reason = reason;
    v.verdict.message = message;
    return v;
  }
  Footer footer(std::vector<VerdictRecord> more, const std::vector<std::string>& asked = {}) const {
    Header header = header_;
    header.profiles = asked;
    more.insert(more.end(), verdicts_.begin(), verdicts_.end());
    return conclude(header, more);
  }

  Header header_ = header();
  std::vector<VerdictRecord> verdicts_;
};

TEST_F(WithinLimitsTest, WhatIsAskedWholeIsMetUnderEitherName) {
  for (const char* name : {"forward-core", "forward-core/limits"}) {
    const Footer f = footer({}, {name});
    EXPECT_EQ(f.exit_code, kConformant) << name;
    EXPECT_FALSE(f.profiles[0].within_limits);
    EXPECT_EQ(f.profiles[0].asked(), 3);
  }
}

TEST_F(WithinLimitsTest, WhatIsFittedOrLeftOutIsMetWithinLimitsAloneAndOnlyIfThatIsAskedFor) {
  for (const VerdictRecord& v :
       {fitted(), left_out("limits", "batch 2: takes 1"), left_out("undeclared", "gqa"),
        left_out("undeclared", "value-dim, strides")}) {
    const Footer f = footer({v});
    EXPECT_EQ(f.exit_code, kConformant) << v.case_id;
    EXPECT_EQ(f.conclusion, "conformant");
    EXPECT_TRUE(f.profiles[0].met);
    EXPECT_TRUE(f.profiles[0].within_limits);
    EXPECT_EQ(f.profiles[0].demanded, 4);
    EXPECT_EQ(f.profiles[0].asked(), v.verdict.outcome == Outcome::pass ? 4 : 3);
    const Footer bare = footer({v}, {"forward-core"});
    EXPECT_EQ(bare.exit_code, kNotConformant) << v.case_id;
    EXPECT_FALSE(bare.profiles[0].met);
    EXPECT_TRUE(bare.profiles[0].complete);
  }
}

TEST_F(WithinLimitsTest, WhatNeedsAFeatureIsNotAskedAndIsCounted) {
  const Footer f = footer({left_out("undeclared", "value-dim, lse"), left_out("undeclared", "lse"),
                           left_out("undeclared", "gqa")});
  EXPECT_EQ(f.exit_code, kNotConformant);
  EXPECT_FALSE(f.profiles[0].met);
  EXPECT_EQ(f.profiles[0].needs,
            (std::map<std::string, Index>{{"gqa", 1}, {"lse", 2}, {"value-dim", 1}}));
}

TEST_F(WithinLimitsTest, WhatTheLimitsExcludeIsNamedBesideWhatIsMet) {
  for (VerdictRecord& v : verdicts_) {
    std::erase(v.verdict.clauses, "MASK-3");
    std::erase(v.verdict.clauses, "LAW-6");
  }
  const VerdictRecord limited = left_out("limits", "batch 2: takes 1");
  const Footer f = footer({limited});
  EXPECT_TRUE(f.profiles[0].met);
  EXPECT_EQ(f.profiles[0].thin, (std::map<std::string, Index>{{"LAW-6", 0}, {"MASK-3", 0}}));
  for (VerdictRecord& v : verdicts_) std::erase(v.verdict.clauses, "SCORE-1");
  const Footer nothing = footer({limited});
  EXPECT_FALSE(nothing.profiles[0].met) << "no form, and no law";
  EXPECT_EQ(nothing.profiles[0].thin, (std::map<std::string, Index>{{"SCORE-1", 0}}));
}

TEST_F(WithinLimitsTest, PromisesAndClausesOfAbsentFeaturesNeedNoThree) {
  for (VerdictRecord& v : verdicts_) {
    for (const char* clause : {"LAW-5", "LAW-9", "HEAD-1"}) std::erase(v.verdict.clauses, clause);
  }
  const Footer f = footer({left_out("limits", "batch 2: takes 1")});
  EXPECT_TRUE(f.profiles[0].met);
  EXPECT_TRUE(f.profiles[0].thin.empty());
}

TEST_F(WithinLimitsTest, WhoDeclaresOtherEmptyRowsMeetsNothingThatDemandsThem) {
  VerdictRecord honest = left_out("dialect", "rows that see no key hold what is declared");
  honest.verdict.clauses = {"EMPTY-1"};
  const Footer f = footer({honest});
  EXPECT_FALSE(f.profiles[0].met);
  EXPECT_EQ(f.profiles[0].needs.size(), 1u) << "what is missing is named";
  VerdictRecord lies = passed("lies", {"EMPTY-5"});
  lies.verdict.outcome = Outcome::fail;
  lies.verdict.reason = "nonfinite";
  const Footer g = footer({lies});
  EXPECT_FALSE(g.profiles[0].met);
  EXPECT_LT(g.profiles[0].passed, g.profiles[0].asked());
}

TEST_F(WithinLimitsTest, ASampleOfANarrowKernelHasNoFailure) {
  header_.tier = "smoke";
  header_.testees[0].profiles = {"forward-core"};
  const Footer f = footer({fitted()});
  EXPECT_EQ(f.exit_code, kConformant);
  EXPECT_EQ(f.conclusion, kNoFailure);
}

TEST_F(WithinLimitsTest, ASampleIsNoAnswerToWhoAsksForAProfileOfWhichAFeatureIsMissing) {
  header_.tier = "smoke";
  const VerdictRecord lacking = left_out("undeclared", "paged");
  EXPECT_EQ(footer({lacking}).exit_code, kConformant) << "nobody asked for it by its name";
  EXPECT_EQ(footer({lacking}, {"forward-core"}).exit_code, kNotConformant);
  EXPECT_EQ(footer({left_out("undeclared", "gqa")}, {"forward-core/limits"}).exit_code,
            kConformant);
  // None of its cases was tried at all.
  verdicts_ = {passed("of/another", {"PAGE-1"})};
  EXPECT_EQ(footer({left_out("limits", "batch 2: takes 1")}, {"forward-core"}).exit_code,
            kIncomplete);
}

TEST_F(WithinLimitsTest, AProfileThatNothingIsAskedForIsNamedAllTheSame) {
  header_.testees[0].profiles = {"forward-core", "double"};
  const Footer f = footer({});
  ASSERT_EQ(f.profiles.size(), 2u);
  EXPECT_EQ(f.profiles[1].profile, "double");
  EXPECT_EQ(f.profiles[1].demanded, 0);
  EXPECT_EQ(f.exit_code, kIncomplete);
}

TEST_F(WithinLimitsTest, FewerThanThreeCasesOfAClauseAreTooNarrowToSay) {
  std::erase(verdicts_.front().verdict.clauses, "MASK-3");
  EXPECT_EQ(footer({}).exit_code, kConformant) << "the whole suite has no more";
  const Footer f = footer({left_out("limits", "batch 2: takes 1")});
  EXPECT_EQ(f.exit_code, kNotConformant);
  EXPECT_FALSE(f.profiles[0].met);
  EXPECT_EQ(f.profiles[0].thin, (std::map<std::string, Index>{{"MASK-3", 2}}));
  // A case more, if it is another one.
  EXPECT_EQ(footer({left_out("limits", "batch 2: takes 1"), passed("c/d", {"MASK-3"})}).exit_code,
            kConformant);
  VerdictRecord alike = left_out("alike", "many/0");
  alike.verdict.clauses = {"MASK-3"};
  EXPECT_EQ(footer({left_out("limits", "batch 2: takes 1"), alike}).exit_code, kNotConformant);
  header_.tier = "smoke";
  EXPECT_EQ(footer({left_out("limits", "batch 2: takes 1")}).exit_code, kConformant)
      << "a sample, of which nobody says that it is wide enough";
}

TEST_F(WithinLimitsTest, ClausesOfFeaturesThatItLacksAreNotCountedToThree) {
  for (VerdictRecord& v : verdicts_) {
    for (const char* clause :
         {"HEAD-1", "SHAPE-1", "SHAPE-2", "FORMAT-3", "DET-1", "LAW-5", "SAFE-1"}) {
      std::erase(v.verdict.clauses, clause);
    }
  }
  EXPECT_EQ(footer({fitted()}).exit_code, kConformant);
  header_.testees[0].features.push_back("gqa");
  const Footer f = footer({fitted(), passed("groups", {"HEAD-1"})});
  EXPECT_EQ(f.exit_code, kNotConformant);
  EXPECT_EQ(f.profiles[0].thin, (std::map<std::string, Index>{{"HEAD-1", 1}}));
}

TEST_F(WithinLimitsTest, WhatFailsIsNotMetUnderEitherName) {
  VerdictRecord failed = fitted();
  failed.verdict.outcome = Outcome::fail;
  failed.verdict.reason = "bound";
  for (const char* name : {"forward-core", "forward-core/limits"}) {
    const Footer f = footer({failed}, {name});
    EXPECT_EQ(f.exit_code, kNotConformant);
    EXPECT_FALSE(f.profiles[0].met);
    EXPECT_EQ(f.profiles[0].passed, 3);
    EXPECT_EQ(f.profiles[0].asked(), 4);
  }
}

TEST_F(WithinLimitsTest, AFormThatIsAskedBesideItsCaseIsNoLimit) {
  const Footer f = footer({passed("a/b/s=1", {"MASK-1"}), fitted()}, {"forward-core"});
  EXPECT_EQ(f.exit_code, kConformant);
  EXPECT_FALSE(f.profiles[0].within_limits);
  EXPECT_TRUE(footer({passed("a/c/s=1", {"MASK-1"}), fitted()}).profiles[0].within_limits);
}

// However many forms of a case pass, it is one; and one that fails is a failure.
TEST_F(WithinLimitsTest, FormsBesidesACaseMayFailAndCountForNothingElse) {
  verdicts_.resize(1);
  std::vector<VerdictRecord> forms;
  for (const char* fit : {"d:64", "d:32", "d:16"}) {
    forms.push_back(passed(std::string("a/b/s=1/fit=") + fit, {"MASK-1"}));
  }
  const ProfileRecord all_pass = footer(forms).profiles[0];
  EXPECT_EQ(all_pass.thin.at("MASK-1"), 2);  // of which three are enough
  EXPECT_EQ(all_pass.demanded, 2);
  EXPECT_EQ(all_pass.passed, 2);
  forms[1].verdict.outcome = Outcome::unsupported;
  forms[1].verdict.reason = "limits";
  EXPECT_EQ(footer(forms).profiles[0].demanded, 2);
  forms[1].verdict.outcome = Outcome::fail;
  EXPECT_EQ(footer(forms).profiles[0].demanded, 3);
  EXPECT_EQ(footer(forms).profiles[0].passed, 2);
}

TEST_F(WithinLimitsTest, AnotherProfilesFeaturesThatWereLeftOutAreNoLimitOfThisOne) {
  const Footer f = footer({passed("a/b/s=1/fit=without:sink", {"MASK-1"})}, {"forward-core"});
  EXPECT_EQ(f.exit_code, kConformant);
  EXPECT_FALSE(f.profiles[0].within_limits);
}

TEST_F(WithinLimitsTest, LimitsAndDeclaredArithmeticGoTogether) {
  header_.testees[0].arithmetic = {{"f32", {{"products", {{"default", {{"operands", "tf32"}}}}}}}};
  EXPECT_EQ(footer({fitted()}).exit_code, kNotConformant);
  const std::string both = "forward-core+declared/limits";
  ASSERT_TRUE(find_profile(both));
  EXPECT_EQ(footer({fitted()}, {both}).exit_code, kConformant);
  EXPECT_EQ(footer({fitted()}, {"forward-core+declared"}).exit_code, kNotConformant);
}

TEST_F(WithinLimitsTest, FiltersAndShardsMeetNothing) {
  header_.shard = "1/2";
  const Footer f = footer({fitted()});
  EXPECT_EQ(f.exit_code, kIncomplete);
  EXPECT_FALSE(f.profiles[0].met || f.profiles[0].complete);
}

// ---- Dialects

TEST(ConcludeTest, LseInAnotherFormIsNeverPlainlyMet) {
  Header h = header();
  h.testees[0].dialect = {{"lse", {{"base", 2}}}};
  Footer footer = conclude(h, kAllPassed);
  EXPECT_EQ(footer.exit_code, kNotConformant);
  EXPECT_EQ(footer.profiles[0].with, std::vector<std::string>{"LSE in base 2"});
  h.testees[0].profiles = {"forward-core+declared"};
  footer = conclude(h, kAllPassed);
  EXPECT_EQ(footer.exit_code, kConformant);
  h.testees[0].dialect = {{"lse", {{"as", "maximum_and_sum"}}}};
  EXPECT_EQ(conclude(h, kAllPassed).profiles[0].with,
            std::vector<std::string>{"maximum and sum instead of LSE"});
}

TEST(ConcludeTest, EndsOfWindowsAreSaidOfTheProfileThatHasThem) {
  Header h = header();
  h.testees[0].dialect = {{"window", {{"left", "exclusive"}}}};
  EXPECT_TRUE(conclude(h, kAllPassed).profiles[0].met);
  h.testees[0].profiles = {"masks"};
  const std::vector<VerdictRecord> windows = {verdict_record(Outcome::pass, "f32", {"MASK-4"})};
  const Footer footer = conclude(h, windows);
  EXPECT_FALSE(footer.profiles[0].met);
  EXPECT_EQ(footer.profiles[0].with, std::vector<std::string>{"windows exclusive on the left"});
}

}  // namespace
}  // namespace attest
