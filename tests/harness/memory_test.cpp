#include "harness/judge/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {
namespace {

using testing::HasSubstr;

constexpr double kMib = 1 << 20;

// What is broken if a pass takes that many MiB at once, twice and four times the lengths, more or
// less by that share; "?" if that can't be told.
std::string memory_clause(MemoryDeclaration declared, std::vector<double> mib, double workspace = 0,
                          double doubt = 0) {
  std::vector<MemoryTaken> taken;
  Index times = 1;
  for (const double m : mib) {
    taken.push_back({*lengthened({.query_len = 10, .key_len = 20}, times),
                     times,
                     {.workspace_bytes = workspace,
                      .peak_bytes = BytesTaken{.least = (1 - doubt) * m * kMib,
                                               .most = (1 + doubt) * m * kMib}}});
    times *= 2;
  }
  const auto finding = memory_defect(declared, "forward", taken, 2);
  if (!finding) return "";
  if (finding->outcome == Outcome::inconclusive) return "?";
  EXPECT_EQ(finding->reason, "memory");
  return finding->clause;
}

MemoryDeclaration roomy(Growth growth) { return {.growth = growth, .own = {.fixed = 1e12}}; }

TEST(MemoryTest, GrowthIsJudgedByItsClass) {
  EXPECT_EQ(memory_clause(roomy(Growth::constant), {50, 51, 50}), "");
  EXPECT_EQ(memory_clause(roomy(Growth::constant), {50, 60, 70}), "MEM-2");
  EXPECT_EQ(memory_clause(roomy(Growth::linear), {50, 100, 200}), "");
  EXPECT_EQ(memory_clause(roomy(Growth::linear), {10, 40, 160}), "MEM-2");
  EXPECT_EQ(memory_clause(roomy(Growth::linear), {50, 50, 110}), "MEM-2");
  EXPECT_EQ(memory_clause(roomy(Growth::quadratic), {10, 40, 160}), "");
  EXPECT_EQ(memory_clause(roomy(Growth::quadratic), {10, 80, 640}), "MEM-2");
  EXPECT_EQ(memory_clause(roomy(Growth::constant), {0, 0, 8}), "");  // slack
}

TEST(MemoryTest, WorkspaceAndWhatIsTakenBesideItAreBounded) {
  MemoryDeclaration declared = {.workspace = {.fixed = 100}};
  EXPECT_EQ(memory_clause(declared, {1}, 100), "");
  EXPECT_EQ(memory_clause(declared, {1}, 101), "MEM-1");
  EXPECT_EQ(memory_clause(declared, {9}, 100), "MEM-1");
  declared.own.fixed = kMib;
  EXPECT_EQ(memory_clause(declared, {9}, 100), "");
}

TEST(MemoryTest, WhatIsKnownRoughlyFailsOrPassesForCertainOrNotAtAll) {
  const auto growth = [](const std::vector<double>& mib, double doubt) {
    return memory_clause(roomy(Growth::constant), mib, 0, doubt);
  };
  EXPECT_EQ(growth({10, 10, 12}, 0.2), "");
  EXPECT_EQ(growth({10, 20, 40}, 0.2), "MEM-2");
  EXPECT_EQ(growth({10, 20, 22}, 0.2), "?");
  const MemoryDeclaration declared = {.own = {.fixed = 100 * kMib}};
  EXPECT_EQ(memory_clause(declared, {80}, 0, 0.2), "");
  EXPECT_EQ(memory_clause(declared, {100}, 0, 0.2), "?");
  EXPECT_EQ(memory_clause(declared, {140}, 0, 0.2), "MEM-1");
  EXPECT_EQ(memory_clause(declared, {80, 100, 140}, 0, 0.2), "MEM-1") << "whatever is unknown else";
}

// MiB of its own memory that a program uses at once, twice and four times the lengths; of what it
// had nothing rises.
std::string old_memory_clause(std::vector<double> mib, double doubt = 0) {
  std::vector<MemoryTaken> taken;
  Index times = 1;
  for (const double m : mib) {
    taken.push_back({*lengthened({.query_len = 10, .key_len = 20}, times),
                     times,
                     {.peak_bytes = BytesTaken(),
                      .touched_bytes = BytesTaken{.least = (1 - doubt) * m * kMib,
                                                  .most = (1 + doubt) * m * kMib}}});
    times *= 2;
  }
  count_old_memory(taken);
  const auto finding = memory_defect({.growth = Growth::linear}, "forward", taken, 2);
  if (!finding) return "";
  return finding->outcome == Outcome::inconclusive ? "?" : finding->clause;
}

TEST(MemoryTest, WhatAProgramUsesOfItsOldMemoryIsTheCallsWhereItGrows) {
  EXPECT_EQ(old_memory_clause({50, 50, 50}), "") << "an interpreter's";
  EXPECT_EQ(old_memory_clause({50, 52, 57}), "") << "slack";
  EXPECT_EQ(old_memory_clause({50, 62, 110}), "MEM-1") << "12 at least, 60 at most";
  EXPECT_EQ(old_memory_clause({50, 50, 110}), "?") << "garbage collected, or scores";
  EXPECT_EQ(old_memory_clause({50, 110, 110}), "?") << "likewise";
  EXPECT_EQ(old_memory_clause({50, 110, 50}), "?");
  EXPECT_EQ(old_memory_clause({50, 53, 65}), "?") << "15 at most, 3 at least";
  EXPECT_EQ(old_memory_clause({50, 62, 110}, 0.1), "?") << "when it is known roughly";
}

TEST(MemoryTest, EveryTermOfADeclarationCounts) {
  const Problem p = {.batch = 2,
                     .query_heads = 4,
                     .key_heads = 2,
                     .query_len = 5,
                     .key_len = 7,
                     .head_dim = 16,
                     .value_dim = 8};
  const auto bytes = [&](const ByteCount& count) { return count.bytes(p, 3); };
  EXPECT_EQ(bytes({.fixed = 9}), 9);
  EXPECT_EQ(bytes({.per_thread = 1}), 3);
  EXPECT_EQ(bytes({.per_thread_channel = 1}), 3 * 16);
  EXPECT_EQ(bytes({.per_thread_query = 1}), 3 * 2 * 5);
  EXPECT_EQ(bytes({.per_thread_query_channel = 1}), 3 * 2 * 5 * 16);
  EXPECT_EQ(bytes({.per_thread_key = 1}), 3 * 7);
  EXPECT_EQ(bytes({.per_thread_key_channel = 1}), 3 * 7 * 16);
  EXPECT_EQ(bytes({.per_thread_pair = 1}), 3 * 5 * 7);
  EXPECT_EQ(bytes({.per_query = 1}), 2 * 4 * 5);
  EXPECT_EQ(bytes({.per_query_channel = 1}), 2 * 4 * 5 * 16);
  EXPECT_EQ(bytes({.per_key = 1}), 2 * 4 * 7);
  EXPECT_EQ(bytes({.per_key_channel = 1}), 2 * 4 * 7 * 16);
  EXPECT_EQ(bytes({.per_pair = 1}), 2 * 4 * 5 * 7);
}

TEST(MemoryTest, AllThatHasALengthIsLengthened) {
  Problem p = {.batch = 2, .query_len = 3, .key_len = 5};
  p.query_lens = {1, 3};
  p.key_lens = {0, 5};
  p.bias_shape = Shape{1, 1, 1, 5};
  p.mask = Mask::causal(Anchor::bottom_right);
  const auto longer = lengthened(p, 4);
  ASSERT_TRUE(longer);
  EXPECT_FALSE(defect_of(*longer));
  EXPECT_EQ(longer->query_len, 12);
  EXPECT_EQ(longer->query_lens, (std::vector<Index>{4, 12}));
  EXPECT_EQ(longer->key_lens, (std::vector<Index>{0, 20}));
  EXPECT_EQ(*longer->bias_shape, (Shape{1, 1, 1, 20}));
  p.mask = Mask::all_of({Mask::dense({.shape = {1, 1, 1, 1}, .allowed = {1}})});
  EXPECT_FALSE(lengthened(p, 2));
}

TEST(MemoryTest, DeclarationIsReadStrictly) {
  nlohmann::json text = {{"name", "k"},         {"version", "1"},
                         {"vendor", "v"},       {"profiles", nlohmann::json::array()},
                         {"dtypes", {"f32"}},   {"features", nlohmann::json::array()},
                         {"schedule", nullptr}, {"memory", nullptr}};
  const auto with = [&](const char* schedule, const char* memory) {
    text["schedule"] = parse_json(schedule);
    text["memory"] = parse_json(memory);
    return parse_description(text);
  };
  const Description d = with(R"({"masks_partial_only": true, "imbalance": 1.5})",
                             R"({"growth": "quadratic", "own": {"fixed": 1, "per_pair": 2},
                                 "workspace": {"per_thread_key": 3}})");
  EXPECT_TRUE(d.schedule->masks_partial_only);
  EXPECT_EQ(d.schedule->imbalance, 1.5);
  EXPECT_EQ(d.memory->growth, Growth::quadratic);
  EXPECT_EQ(d.memory->own.fixed, 1);
  EXPECT_EQ(d.memory->own.per_pair, 2);
  EXPECT_EQ(d.memory->workspace.per_thread_key, 3);
  EXPECT_FALSE(with("{}", R"({"growth": "constant"})").schedule->imbalance);
  const char* good = R"({"growth": "constant"})";
  EXPECT_THROW(with(R"({"imbalance": 0.9})", good), std::exception);
  EXPECT_THROW(with(R"({"imbalanc": 2})", good), std::exception);
  EXPECT_THROW(with("{}", "{}"), std::exception);
  EXPECT_THROW(with("{}", R"({"growth": "cubic"})"), std::exception);
  EXPECT_THROW(with("{}", R"({"growth": "linear", "own": {"fixed": -1}})"), std::exception);
  EXPECT_THROW(with("{}", R"({"growth": "linear", "own": {"per_page": 1}})"), std::exception);
}

TEST(MemoryTest, DeclarationDoesNotContradictItself) {
  using enum Growth;
  EXPECT_EQ((ByteCount{.fixed = 1, .per_thread = 1, .per_thread_channel = 1}).growth(), constant);
  EXPECT_EQ((ByteCount{.per_thread_query = 1}).growth(), linear);
  EXPECT_EQ((ByteCount{.per_thread_query_channel = 1}).growth(), linear);
  EXPECT_EQ((ByteCount{.per_thread_key = 1}).growth(), linear);
  EXPECT_EQ((ByteCount{.per_thread_key_channel = 1}).growth(), linear);
  EXPECT_EQ((ByteCount{.per_query = 1}).growth(), linear);
  EXPECT_EQ((ByteCount{.per_query_channel = 1}).growth(), linear);
  EXPECT_EQ((ByteCount{.per_key = 1}).growth(), linear);
  EXPECT_EQ((ByteCount{.per_key_channel = 1}).growth(), linear);
  EXPECT_EQ((ByteCount{.per_thread_pair = 1}).growth(), quadratic);
  EXPECT_EQ((ByteCount{.per_pair = 1}).growth(), quadratic);
  const auto read = [](const char* memory) {
    return parse_description({{"name", "k"},
                              {"version", "1"},
                              {"vendor", "v"},
                              {"profiles", nlohmann::json::array()},
                              {"dtypes", {"f32"}},
                              {"features", nlohmann::json::array()},
                              {"memory", parse_json(memory)}});
  };
  EXPECT_NO_THROW(read(R"({"growth": "linear", "own": {"per_key": 1}})"));
  EXPECT_THROW(read(R"({"growth": "constant", "own": {"per_key": 1}})"), InputError);
  EXPECT_NO_THROW(read(R"({"growth": "quadratic", "workspace": {"per_thread_pair": 1}})"));
  EXPECT_THROW(read(R"({"growth": "linear", "workspace": {"per_thread_pair": 1}})"), InputError);
}

}  // namespace
}  // namespace attest
