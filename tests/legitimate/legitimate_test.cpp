// That the legitimate kernels are many, different and honest, and that none of them fails a sample
// of the suite; all of the suite is what `attest selfcheck --legitimate` tries. Kernels that are
// not what they declare do fail it.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "cases/entry.h"
#include "harness/process/testee.h"
#include "harness/run/run.h"
#include "harness/selfcheck/selfcheck.h"
#include "spec/description.h"
#include "spec/json_text.h"
#include "tests/legitimate/plugin.h"
#include "tests/legitimate/styles.h"

namespace attest {
namespace {

TEST(LegitimateTest, KernelsAreManyAndAllDifferent) {
  std::set<std::string> names, ways;
  for (const bounds::Style& style : legitimate::legitimate_styles()) {
    names.insert(legitimate::name_of(style));
    ways.insert(bounds::describe(style));
  }
  EXPECT_GE(names.size(), 80u);
  EXPECT_EQ(names.size(), legitimate::legitimate_styles().size());
  EXPECT_EQ(ways.size(), names.size());
}

TEST(LegitimateTest, TheySpanBlocksOrdersAndSplits) {
  std::set<Index> blocks, splits;
  std::set<bounds::Order> orders;
  for (const bounds::Style& style : legitimate::legitimate_styles()) {
    blocks.insert(style.block);
    splits.insert(style.splits);
    orders.insert(style.order);
  }
  for (Index block = 1; block <= 256; block *= 2) EXPECT_TRUE(blocks.contains(block)) << block;
  EXPECT_EQ(*splits.rbegin(), 16);
  EXPECT_EQ(orders.size(), 9u);
}

// What the plug-in says in words is what the simulation says in numbers.
TEST(LegitimateTest, DeclarationsAreThoseOfTheSimulation) {
  for (const bounds::Style& style : legitimate::legitimate_styles()) {
    for (const DType dtype : kDTypes) {
      const auto json = parse_json(legitimate::arithmetic_json(style, dtype));
      Arithmetic said = parse_arithmetic(json, dtype, "");
      EXPECT_TRUE(said.deterministic && said.thread_invariant && said.batch_invariant);
      said.deterministic = said.thread_invariant = said.batch_invariant = false;
      Arithmetic meant = bounds::declared(legitimate::in_format(style, dtype), dtype);
      meant.lse = {};  // declared of all formats at once, beside their arithmetic
      if (style.order == bounds::Order::wide && dtype == DType::f64) {
        // 80 bits have no name among the formats.
        for (Product* product :
             {&meant.qk, &meant.pv, &meant.dp, &meant.dv, &meant.dq, &meant.dk}) {
          product->accumulator_roundoff = unit_roundoff(DType::f64);
        }
      }
      EXPECT_EQ(said, meant) << style.name << " " << name(dtype);
    }
  }
}

// The verdicts on all kernels of a plug-in, on a few cases.
Trust trust_in(const std::string& plugin, const std::vector<Case>& cases) {
  const Installation installation = {.worker = WORKER, .plugins = {}, .cases = {}};
  const auto testees = find_testees({plugin}, installation, {}, {});
  Header header;
  for (const Testee& testee : testees) header.testees.push_back({.name = testee.name});
  std::ostringstream out;
  const Record record = run(
      cases, testees, header, {.jobs = 2},
      [](const Testee& t) { return std::make_unique<WorkerExecutor>(worker_options(t, {}, {})); },
      out, [](const VerdictRecord&) {}, [] { return false; });
  return trust_of(record, cases.size());
}

// Cheap ones, of all formats and all features.
std::vector<Case> sampled_cases(std::size_t count) {
  std::vector<Case> cases;
  for (Case& c : load_cases(CASES)) {
    if (c.tier <= Tier::standard && c.check != Check::memory) cases.push_back(std::move(c));
  }
  cases = by_worth(std::move(cases));
  cases.resize(cases.size() * 2 / 3);
  return sample(cases, count);
}

std::string story(const Trust& trust) {
  std::string text;
  for (const VerdictRecord& each : trust.failed) {
    text += each.testee + " " + each.case_id + ": " + each.verdict.message + "\n";
  }
  return text;
}

TEST(LegitimateTest, NoneFailsASample) {
  const Trust trust = trust_in(LEGITIMATE, sampled_cases(24));
  EXPECT_GE(trust.kernels, 40u);
  EXPECT_TRUE(trust.failed.empty()) << story(trust);
  EXPECT_GT(trust.counts.at("PASS"), 20 * static_cast<Index>(trust.kernels));
}

// Found by fuzz: sums of products that are stored in f16 lose digits where they are tiny, and four
// times as many of them do not.
TEST(LegitimateTest, TinyScoresThatAreStoredBreakNoLaw) {
  const nlohmann::json problem = {
      {"batch", 2}, {"query_heads", 3}, {"key_heads", 3}, {"query_len", 21}};
  const Case found = read_entry({{"name", "tiny"},
                                 {"clauses", {"SOFTMAX-1"}},
                                 {"because", "One score of thousands is tiny."},
                                 {"problem", problem},
                                 {"dtypes", {"f16"}},
                                 {"data", {"normal"}},
                                 {"laws", {"rescaled_query"}},
                                 {"bits", "fuzz/seed=720025/number=6363"}},
                                "found");
  const Trust trust = trust_in(LEGITIMATE, {found});
  EXPECT_TRUE(trust.failed.empty()) << story(trust);
  EXPECT_GT(trust.counts.at("PASS"), 0) << "whoever stores no scores is asked";
}

// Found by fuzz: LSE is near 0 where it is the logarithm of a sum near 1, of which roundings are
// not small beside it.
TEST(LegitimateTest, SinksThatChangeNothingBreakNoLaw) {
  const Case found =
      read_entry({{"name", "negligible"},
                  {"clauses", {"SOFTMAX-1"}},
                  {"because", "A sink's share is below the last digit of a sum of weights."},
                  {"problem", {{"backward", true}, {"d_lse", true}, {"sink", "negligible"}}},
                  {"dtypes", {"f32"}},
                  {"data", {"tiny"}},
                  {"laws", {"directions"}},
                  {"bits", "fuzz/seed=730061/number=12388"}},
                 "found");
  const Trust trust = trust_in(LEGITIMATE, {found});
  EXPECT_TRUE(trust.failed.empty()) << story(trust);
  EXPECT_GT(trust.counts.at("PASS"), 0);
}

// An element of Q that is rounded errs alike for all keys: nothing of that is random.
TEST(LegitimateTest, RoundedOperandsAreWithinWhatStatisticsAllow) {
  std::vector<Case> cases;
  for (Case& c : load_cases(CASES)) {
    if (c.statistical && c.problem.dtype == DType::f32) cases.push_back(std::move(c));
  }
  ASSERT_FALSE(cases.empty());
  for (const char* kernel : {"operands_of_8_digits", "operands_of_11_digits_in_qk_and_dp"}) {
    const Trust trust = trust_in(std::string(LEGITIMATE) + ":legitimate/" + kernel, cases);
    EXPECT_TRUE(trust.failed.empty()) << story(trust);
    EXPECT_GT(trust.counts.at("PASS"), 0);
  }
}

TEST(LegitimateTest, KernelsThatAreNotWhatTheyDeclareFail) {
  std::set<std::string> failed;
  for (const VerdictRecord& each : trust_in(FAULTY, sampled_cases(400)).failed) {
    failed.insert(each.testee);
  }
  EXPECT_EQ(failed.size(), bounds::faulty_styles().size());
}

}  // namespace
}  // namespace attest
