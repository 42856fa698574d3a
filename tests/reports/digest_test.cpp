#include "reports/digest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reports/standing.h"
#include "tests/reports/samples.h"

namespace attest {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::StartsWith;

VerdictRecord verdict(Outcome outcome, std::vector<std::string> clauses, double ratio = 0.5,
                      const std::string& dtype = "f32") {
  VerdictRecord record{.case_id = "mask/a", .testee = "naive", .dtype = dtype, .verdict = {}};
  record.verdict.outcome = outcome;
  record.verdict.clauses = std::move(clauses);
  record.verdict.tensors[TensorName::o] = {.max_ratio = ratio, .compared = 1};
  return record;
}

TEST(DigestTest, CountsEveryVerdictOfEveryTestee) {
  const Record record = realistic_record();
  const Digest d = digest(record);
  EXPECT_EQ(total(d.counts), static_cast<Index>(record.verdicts.size()));
  EXPECT_EQ(total(d.testees.at(0).counts) + total(d.testees.at(1).counts), total(d.counts));
  EXPECT_EQ(failures_in(d.counts), 5);
  EXPECT_EQ(count_of(d.counts, Outcome::fail), 3);
  EXPECT_EQ(count_of(d.counts, Outcome::crash), 1);
  EXPECT_EQ(count_of(d.counts, Outcome::timeout), 1);
  EXPECT_EQ(count_of(d.counts, Outcome::warn), 1);
  EXPECT_EQ(count_of(d.counts, Outcome::unsupported), 10);
  EXPECT_EQ(d.failures.size(), 5u);
}

TEST(DigestTest, SlopesAreGroupedByFeatureAndTensorAndTheWorstIsKept) {
  const auto with_slope = [](double apart, std::vector<std::string> features) {
    VerdictRecord record = verdict(Outcome::pass, {"LAW-16"});
    record.verdict.slopes = {
        {.tensor = TensorName::dq, .analytic = 1 + apart, .difference = 1, .allowed = 0.5}};
    record.verdict.features = std::move(features);
    return record;
  };
  const Record record =
      record_of({with_slope(0.125, {"backward", "sink", "sink"}),
                 with_slope(0.25, {"backward", "sink", "causal"}), with_slope(0, {"backward"})},
                "conformant");
  const Digest d = digest(record);
  const auto& slopes = d.testees.at(0).slopes;
  ASSERT_EQ(slopes.size(), 3u);
  EXPECT_EQ(slopes.at({"sink", TensorName::dq}).count, 2);
  EXPECT_EQ(slopes.at({"sink", TensorName::dq}).worst, 0.5);
  EXPECT_EQ(slopes.at({"sink", TensorName::dq}).verdict, &record.verdicts[1]);
  EXPECT_EQ(slopes.at({"causal", TensorName::dq}).count, 1);
  EXPECT_EQ(slopes.at({"plain", TensorName::dq}).worst, 0);
}

TEST(DigestTest, BlamesOnlyTheClauseNamedFirst) {
  const Record record = record_of(
      {verdict(Outcome::fail, {"MASK-3", "GRAD-1", "MASK-3"}), verdict(Outcome::pass, {"GRAD-1"})},
      "not conformant");
  const Digest d = digest(record);
  const auto& clauses = d.testees.at(0).clauses;
  EXPECT_EQ(clauses.at("MASK-3").broken, 1);
  EXPECT_EQ(total(clauses.at("MASK-3").counts), 1);
  EXPECT_THAT(clauses.at("MASK-3").failures, ElementsAre(0u));
  EXPECT_EQ(clauses.at("GRAD-1").broken, 0);
  EXPECT_EQ(failures_in(clauses.at("GRAD-1").counts), 1);
  EXPECT_EQ(total(clauses.at("GRAD-1").counts), 2);
}

TEST(DigestTest, WhatMissesARecommendationIsNoRatioToWhatIsRequired) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Record record =
      record_of({verdict(Outcome::warn, {"HIDE-3"}, kInfinity), verdict(Outcome::warn, {}, 0.75),
                 verdict(Outcome::pass, {"MASK-3"}, 0.5)},
                "conformant");
  EXPECT_EQ(digest(record).testees.at(0).worst_of(TensorName::o)->evidence->max_ratio, 0.75);
}

TEST(DigestTest, WarningsNameOnlyTheFirstClause) {
  const Record record = record_of({verdict(Outcome::warn, {"HIDE-3", "MASK-3"})}, "conformant");
  const auto clauses = digest(record).testees.at(0).clauses;
  EXPECT_EQ(clauses.at("HIDE-3").missed, 1);
  EXPECT_EQ(clauses.at("HIDE-3").broken, 0);
  EXPECT_EQ(clauses.at("MASK-3").missed, 0);
}

TEST(DigestTest, NothingIsBrokenByWhatWasNotJudged) {
  for (const Outcome outcome : {Outcome::not_run, Outcome::inconclusive, Outcome::harness_error}) {
    const Record record = record_of({verdict(outcome, {"MASK-3"})}, "incomplete");
    const ClauseDigest clause = digest(record).testees.at(0).clauses.at("MASK-3");
    EXPECT_EQ(clause.broken, 0) << name(outcome);
    EXPECT_EQ(clause.failures.size(), 1u) << name(outcome);
  }
}

TEST(DigestTest, KeepsTheWorstRatioOfEachDtype) {
  const Record record =
      record_of({verdict(Outcome::pass, {}, 0.2), verdict(Outcome::pass, {}, 0.7),
                 verdict(Outcome::pass, {}, 0.4), verdict(Outcome::pass, {}, 0.9, "bf16")},
                "conformant");
  const Digest d = digest(record);
  const TesteeDigest& testee = d.testees.at(0);
  EXPECT_EQ(testee.worst.at({TensorName::o, "f32"}).evidence->max_ratio, 0.7);
  EXPECT_EQ(testee.worst.at({TensorName::o, "f32"}).verdict, &record.verdicts[1]);
  EXPECT_EQ(testee.worst_of(TensorName::o)->evidence->max_ratio, 0.9);
  EXPECT_EQ(testee.worst_of(TensorName::dq), nullptr);
}

TEST(DigestTest, NanIsTheWorstRatioWhereverItStands) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (const auto& [first, second] : {std::pair{nan, inf}, std::pair{inf, nan}}) {
    const Record record =
        record_of({verdict(Outcome::fail, {}, first), verdict(Outcome::fail, {}, second)}, "");
    EXPECT_TRUE(
        std::isnan(digest(record).testees.at(0).worst_of(TensorName::o)->evidence->max_ratio));
  }
}

TEST(DigestTest, OrdersTensorsAsAttentionDoesAndClausesAsTheStandard) {
  VerdictRecord v = verdict(Outcome::pass, {"LSE-1", "FORMAT-5", "OWN-1", "SHAPE-1"});
  for (const TensorName tensor : kReturnedTensors) {
    v.verdict.tensors[tensor] = {.max_ratio = 0.1, .compared = 1};
  }
  const Record record = record_of({v}, "conformant");
  const Digest d = digest(record);
  EXPECT_THAT(d.tensors, ElementsAreArray(kReturnedTensors));
  EXPECT_THAT(d.clauses, ElementsAre("SHAPE-1", "LSE-1", "FORMAT-5", "OWN-1"));
}

TEST(DigestTest, TensorsWithoutElementsAreNotCompared) {
  VerdictRecord v = verdict(Outcome::pass, {});
  v.verdict.tensors[TensorName::o] = {};
  const Record record = record_of({v}, "conformant");
  EXPECT_TRUE(digest(record).tensors.empty());
}

TEST(DigestTest, ListsWhatWasNotRunLast) {
  const Record record = record_of(
      {verdict(Outcome::not_run, {}), verdict(Outcome::crash, {}), verdict(Outcome::fail, {})},
      "incomplete");
  const Digest d = digest(record);
  EXPECT_THAT(d.failures,
              ElementsAre(&record.verdicts[1], &record.verdicts[2], &record.verdicts[0]));
}

TEST(DigestTest, KnowsTesteesThatOnlyVerdictsName) {
  VerdictRecord v = verdict(Outcome::pass, {});
  v.testee = "stranger";
  const Record record = record_of({v}, "conformant");
  const Digest d = digest(record);
  ASSERT_EQ(d.testees.size(), 2u);
  EXPECT_EQ(d.testees[1].about.name, "stranger");
  EXPECT_EQ(total(d.testees[1].counts), 1);
}

TEST(DigestTest, TellsTheConclusionInOneSentence) {
  const auto sentence = [](const Record& record) { return digest(record).sentence; };
  EXPECT_EQ(sentence(conformant_record()),
            "Conformant: naive, fa2 meet every profile declared; 319 of 330 verdicts passed, 1 "
            "passed with a warning, 10 unsupported.");
  EXPECT_EQ(sentence(realistic_record()), "Not conformant: fa2 does not pass 5 of 165 cases.");
  EXPECT_EQ(sentence(empty_record()), "Incomplete: no case was run.");
  EXPECT_EQ(sentence(record_of({verdict(Outcome::not_run, {}), verdict(Outcome::pass, {})},
                               "incomplete")),
            "Incomplete: 1 case not run; 1 of 2 verdicts passed, 1 did not pass.");
  EXPECT_EQ(sentence(record_of({verdict(Outcome::unsupported, {})}, "not conformant")),
            "Not conformant: no case failed, but not every profile declared is met.");
}

TEST(DigestTest, WhatHasNoFailureSaysInHowManyCasesAndWhyThatIsNotMore) {
  EXPECT_EQ(digest(smoke_record()).sentence,
            "No failure in 165 of 10403 cases (the smoke tier, fa2 could have written the record); "
            "319 of 330 verdicts passed, 1 passed with a warning, 10 unsupported.");
  EXPECT_EQ(digest(known_record()).sentence,
            "No failure in 165 of 165 cases (with failures that were known); 314 of 330 verdicts "
            "passed, 1 passed with a warning, 10 unsupported, 5 failed as was known.");
  Record filtered = conformant_record();
  filtered.header.filters = {"mask/**"};
  filtered.header.cases.bundled = false;
  filtered.footer->conclusion = "incomplete";
  filtered.footer->exit_code = 3;
  EXPECT_THAT(digest(filtered).sentence,
              StartsWith("Incomplete: no failure in 0 of 165 cases (cases that are not the suite's "
                         "own, those that --cases names), but no profile was judged in full;"));
}

TEST(DigestTest, NothingIsConcludedFromARecordWithDefects) {
  Record record = conformant_record();
  record.defects = {"verdicts are doubled: a of naive", "its digest differs"};
  const Digest d = digest(record);
  EXPECT_EQ(d.state, State::inconsistent);
  EXPECT_EQ(d.conclusion, "incomplete");
  EXPECT_EQ(d.exit_code, 3);
  EXPECT_EQ(d.sentence,
            "Inconsistent record: verdicts are doubled: a of naive; its digest differs; nothing is "
            "concluded.");
}

TEST(DigestTest, NothingIsConcludedFromATruncatedRecord) {
  Record record = conformant_record();
  record.footer.reset();
  const Digest d = digest(record);
  EXPECT_EQ(d.state, State::truncated);
  EXPECT_EQ(d.conclusion, "incomplete");
  EXPECT_EQ(d.exit_code, 3);
  EXPECT_THAT(d.sentence, StartsWith("Truncated: the run did not end"));
}

TEST(DigestTest, NothingIsConcludedWhenVerdictsAreMissingFromTheRecord) {
  Record record = conformant_record();
  record.verdicts.pop_back();
  const Digest d = digest(record);
  EXPECT_EQ(d.state, State::inconsistent);
  EXPECT_EQ(d.conclusion, "incomplete");
  EXPECT_EQ(d.exit_code, 3);
  EXPECT_THAT(d.sentence, HasSubstr("its footer counts 330 verdicts, it holds 329"));
}

TEST(DigestTest, NothingIsConcludedWhenAnOutcomeWasChangedBehindTheFooter) {
  Record record = realistic_record();
  for (VerdictRecord& v : record.verdicts) {
    if (v.verdict.outcome == Outcome::crash) v.verdict.outcome = Outcome::pass;
  }
  EXPECT_EQ(digest(record).state, State::inconsistent);
}

TEST(DigestTest, ARunThatWasStoppedIsNeverConformant) {
  Record record = conformant_record();
  record.footer->complete = false;
  const Digest d = digest(record);
  EXPECT_EQ(d.state, State::incomplete);
  EXPECT_EQ(d.conclusion, "incomplete");
  EXPECT_EQ(d.exit_code, 3);
  EXPECT_THAT(d.sentence, StartsWith("Incomplete: the run did not do all it should"));
}

TEST(DigestTest, ProfilesSayHowTheyStand) {
  ProfileRecord p{.testee = "naive", .profile = "masks", .dtype = "f32"};
  EXPECT_EQ(standing_text(p), "no case");
  p.demanded = 13;
  p.passed = 12;
  EXPECT_EQ(standing_text(p), "incomplete: 12 of 13");
  p.complete = true;
  EXPECT_EQ(standing_text(p), "not met: 12 of 13");
  p.met = true;
  EXPECT_EQ(standing_text(p), "met");
}

TEST(DigestTest, ProfilesSayWithWhatArithmeticTheyAreMet) {
  ProfileRecord p{.testee = "naive",
                  .profile = "masks+declared",
                  .dtype = "bf16",
                  .met = true,
                  .complete = true,
                  .demanded = 13,
                  .passed = 13,
                  .with = {"exp of 736 units", "P truncated to bf16"}};
  EXPECT_EQ(standing_text(p), "met, with exp of 736 units, P truncated to bf16");
  EXPECT_FALSE(met_only_with(p));
  p.met = p.complete = false;
  EXPECT_EQ(standing_text(p), "no failure in 13, with exp of 736 units, P truncated to bf16");
  p.complete = true;
  p.profile = "masks";
  EXPECT_EQ(standing_text(p), "not met: only with exp of 736 units, P truncated to bf16");
  EXPECT_TRUE(met_only_with(p));
  p.passed = 12;
  EXPECT_EQ(standing_text(p), "not met: 12 of 13");
  EXPECT_FALSE(met_only_with(p));
  p.complete = false;
  EXPECT_EQ(standing_text(p), "incomplete: 12 of 13");
}

TEST(DigestTest, ProfilesSayThatTheyAreMetWithinLimits) {
  ProfileRecord p{.testee = "naive",
                  .profile = "masks/limits",
                  .dtype = "bf16",
                  .met = true,
                  .complete = true,
                  .demanded = 13,
                  .left_out = 3,
                  .passed = 10,
                  .within_limits = true};
  EXPECT_EQ(standing_text(p), "met within limits");
  EXPECT_EQ(is_met(p), Met::otherwise);
  p.with = {"exp of 736 units"};
  EXPECT_EQ(proviso_text(p), "within limits, with exp of 736 units");
  EXPECT_EQ(standing_text(p), "met within limits, with exp of 736 units");
  p.thin = {{"LAW-6", 0}, {"MASK-3", 0}};
  EXPECT_EQ(standing_text(p),
            "met within limits, which have nothing of LAW-6, MASK-3, with exp of 736 units");
  p.thin = {};
  p.met = false;
  EXPECT_EQ(standing_text(p), "not met: only within limits, with exp of 736 units");
  EXPECT_TRUE(met_only_with(p)) << "the limits were taken, the arithmetic was not";
  p.profile = "masks+declared";
  EXPECT_EQ(standing_text(p), "not met: only within limits, with exp of 736 units");
  EXPECT_FALSE(met_only_with(p)) << "the arithmetic was taken, the limits were not";
  p.with = {};
  EXPECT_EQ(standing_text(p), "not met: only within limits");
  EXPECT_EQ(is_met(p), Met::no);
}

TEST(DigestTest, ProfilesWithoutACaseSayWhatIsMissing) {
  ProfileRecord p{.testee = "naive", .profile = "double", .dtype = "f32"};
  EXPECT_EQ(is_met(p), Met::unknown);
  p.needs = {{"f64", 42}, {"the profile forward-core", 1}};
  EXPECT_EQ(standing_text(p),
            "not asked: 42 cases need f64, 1 case needs the profile forward-core");
  EXPECT_EQ(is_met(p), Met::unknown);
  ProfileRecord many = p;
  for (const char* feature : {"alibi", "bias", "sink", "softcap", "window"}) {
    many.needs[feature] = std::ssize(many.needs);
  }
  EXPECT_EQ(standing_text(many),
            "not asked: 42 cases need f64, 6 cases need window, 5 cases need softcap, 4 cases need "
            "sink, 3 cases need bias, others need 2 more");
  Record record = conformant_record();
  record.footer->profiles = {p};
  record.footer->conclusion = "incomplete";
  record.footer->exit_code = 3;
  EXPECT_THAT(digest(record).sentence,
              HasSubstr("but no profile was judged in full (double of naive is not asked: 42 cases "
                        "need f64, 1 case needs the profile forward-core); "));
}

TEST(DigestTest, TheSentenceSaysWithWhatArithmeticProfilesAreMet) {
  EXPECT_EQ(digest(declared_record(true)).sentence,
            "Conformant: naive, fa2 meet every profile declared (fa2 meets forward-core+declared "
            "with exp of 736 units in bf16); 319 of 330 verdicts passed, 1 passed with a warning, "
            "10 unsupported.");
  EXPECT_EQ(digest(declared_record(false)).sentence,
            "Not conformant: no case failed, but fa2 meets forward-core only with exp of 736 units "
            "in bf16; a profile takes that if it is claimed, or asked for, with \"+declared\" "
            "behind its name.");
}

}  // namespace
}  // namespace attest
