// Narrow kernels that are right conform: of the standard tier they are asked enough of each clause
// that speaks of them. Which laws have variants within the limits only a run tells.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/run/asking.h"
#include "harness/run/conclude.h"

namespace attest {
namespace {

using nlohmann::json;

const std::vector<Case>& standard_tier() {
  static const std::vector<Case> kCases = [] {
    std::vector<Case> cases = load_cases(ATTEST_CASES_DIR);
    std::erase_if(cases, [](const Case& c) {
      return c.tier > Tier::standard || c.problem.dtype == DType::f64;
    });
    return cases;
  }();
  return kCases;
}

const std::vector<std::string> kFormats = {"f32", "bf16", "f16"};

struct Kernel {
  const char* limits;
  std::vector<std::string> features = {"lse", "causal", "strides"};
  std::vector<std::string> profiles = {"forward-core/limits"};
};
void PrintTo(const Kernel& kernel, std::ostream* out) { *out << kernel.limits; }

const Kernel kKernels[] = {
    // Of masks:
    {R"({"masks": ["full", "causal top_left"]})"},
    {R"({"masks": ["full", "causal bottom_right"]})"},
    {R"({"masks": ["causal"]})"},
    {R"({"masks": ["causal top_left"]})"},
    {R"({"masks": ["causal bottom_right"]})"},
    {R"({"masks": ["causal"], "square": true})"},
    {R"({"never": [{"masks": ["full"]}]})"},
    {R"({"masks": ["causal", "window causal"]})", {"lse", "causal", "window", "strides"}},
    // Of sizes:
    {R"({"head_dim": 64, "square": true, "query_len": {"multiple": 64}})"},
    {R"({"head_dim": 128, "square": true, "query_len": {"multiple": 128}, "masks": ["causal"]})"},
    {R"({"head_dim": [64, 128], "batch": 1})"},
    {R"({"query_heads": 8, "key_heads": 8, "head_dim": 64})"},
    {R"({"keys_at_least_queries": true, "key_len": {"multiple": 128}})"},
    {R"({"head_dim": 256})", {"causal"}},
    {R"({"head_dim": [64, 128], "batch": {"max": 2}, "layouts": ["bshd"]})", {"causal", "strides"}},
    {R"({"query_len": 1})", {"lse", "causal", "gqa", "lengths", "strides"}},
    // Both passes:
    {R"({"square": true, "head_dim": [64, 128], "masks": ["causal"]})",
     {"lse", "causal", "backward", "strides"},
     {"forward-core/limits", "training-core/limits"}},
    {R"({"square": true, "head_dim": 64, "query_len": {"multiple": 128}, "masks": ["full"]})",
     {"lse", "causal", "backward", "gqa", "strides"},
     {"forward-core/limits", "training-core/limits"}},
    {R"({"head_dim": {"max": 128}, "masks": ["full", "causal top_left"], "mask_offset": 0})",
     {"lse", "causal", "backward", "dlse", "strides"},
     {"forward-core/limits", "training-core/limits"}},
};

Testee testee_of(const Kernel& kernel) {
  Testee testee;
  testee.name = kernel.limits;
  testee.description = parse_description({{"name", "narrow"},
                                          {"version", "1"},
                                          {"vendor", "v"},
                                          {"profiles", kernel.profiles},
                                          {"dtypes", kFormats},
                                          {"features", kernel.features},
                                          {"limits", json::parse(kernel.limits)}});
  return testee;
}

const Asking& asking() {
  static const Asking kAsking = [] {
    std::vector<Testee> testees;
    for (const Kernel& kernel : kKernels) testees.push_back(testee_of(kernel));
    return Asking(standard_tier(), testees, ATTEST_CASES_DIR);
  }();
  return kAsking;
}

// As if all that it is asked passed.
Footer conclude_of(const Kernel& kernel) {
  Header header;
  header.tier = "standard";
  header.cases = {.digest = {}, .bundled = true, .selected = 1, .complete = 1};
  header.testees = {{.name = kernel.limits,
                     .isolation = "other-user",
                     .profiles = kernel.profiles,
                     .features = kernel.features,
                     .dtypes = kFormats,
                     .limits = json::parse(kernel.limits)}};
  std::vector<VerdictRecord> verdicts;
  for (const Case& c : standard_tier()) {
    VerdictRecord verdict{.case_id = c.id,
                          .testee = kernel.limits,
                          .dtype = std::string(name(c.problem.dtype)),
                          .verdict = {}};
    const Asking::Instead* const instead = asking().instead(kernel.limits, c.id);
    if (instead && !instead->fitted) {
      verdict.verdict = instead->verdict;
    } else {
      const Case& asked = instead ? *instead->fitted : c;
      verdict.case_id = asked.id;
      verdict.verdict.outcome = Outcome::pass;
      verdict.verdict.clauses = asked.clauses;
    }
    verdicts.push_back(std::move(verdict));
  }
  return conclude(header, verdicts);
}

class NarrowKernelsTest : public testing::TestWithParam<Kernel> {};

TEST_P(NarrowKernelsTest, ConformIfAllThatTheyAreAskedPasses) {
  const Footer footer = conclude_of(GetParam());
  EXPECT_FALSE(footer.profiles.empty());
  for (const ProfileRecord& profile : footer.profiles) {
    EXPECT_TRUE(profile.met) << fmt::format("{}, {}: {} cases asked, too few of {}; needs {}",
                                            profile.profile, profile.dtype, profile.asked(),
                                            profile.thin, profile.needs);
  }
}

INSTANTIATE_TEST_SUITE_P(All, NarrowKernelsTest, testing::ValuesIn(kKernels));

}  // namespace
}  // namespace attest
