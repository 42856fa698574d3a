#include "harness/fuzz/fuzz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "cases/entry.h"
#include "cases/generate.h"
#include "harness/fuzz/draws.h"
#include "harness/fuzz/random_sizes.h"
#include "harness/fuzz/shrink.h"
#include "harness/process/in_process.h"
#include "harness/process/tensors.h"
#include "spec/feature.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"
#include "spec/mask_kind.h"
#include "tests/harness/mock_plugin.h"
#include "tests/harness/plain_kernel.h"

namespace attest {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::NiceMock;

Description description(const std::vector<DType>& dtypes,
                        const std::vector<std::string>& features) {
  Description d = {.name = "mock",
                   .version = "1",
                   .vendor = "test",
                   .profiles = {},
                   .dtypes = dtypes,
                   .features = features,
                   .alignment = 4,
                   .arithmetic = {},
                   .declared_arithmetic = {}};
  for (const DType dtype : dtypes) d.arithmetic[dtype] = loosest(dtype);
  return d;
}

Description all_there_is() {
  Description d = description({kDTypes.begin(), kDTypes.end()}, known_features());
  d.schedule = ScheduleDeclaration();
  for (auto& [dtype, arithmetic] : d.arithmetic) {
    arithmetic.thread_invariant = arithmetic.batch_invariant = true;
    arithmetic.kv_splits = 1;
  }
  return d;
}

// ---- Problems by number -------------------------------------------------------------------------

const std::vector<CaseWithEntry>& suite() {
  static const std::vector<CaseWithEntry> kSuite = load_entries(ATTEST_CASES_DIR);
  return kSuite;
}

Draws draws(const Description& testee, std::uint64_t seed, bool finite = false) {
  return Draws({testee, testee.dtypes, finite}, suite(), seed);
}

// Of those that are drawn afresh, unless a suite is given.
json random_entry_of(const Description& testee, std::uint64_t seed, std::uint64_t number) {
  return Draws({testee, testee.dtypes}, {}, seed).draw(number).entry;
}

TEST(DrawsTest, EveryProblemIsACaseOfWhatIsDeclaredAndItsEntryStandsAlone) {
  for (const Description& testee :
       {all_there_is(), description({DType::f32}, {}),
        description({DType::bf16, DType::f16}, {"backward", "lse", "causal", "strides", "bias"}),
        description({DType::f32}, {"window", "mask-or", "paged", "zero-sizes", "dropout"})}) {
    const Draws of_testee = draws(testee, 5);
    for (std::uint64_t number = 0; number < 150; ++number) {
      const Drawn drawn = of_testee.draw(number);
      SCOPED_TRACE(json_text(drawn.entry));
      const Case alone = read_entry(drawn.entry, kFuzzStem);
      ASSERT_EQ(undeclared(alone.problem, testee), "");
      ASSERT_LE(work_of(alone.problem), kMostWorkOfLarge);
      EXPECT_EQ(to_string(alone.problem), to_string(drawn.prepared.problem()));
      if (number % 8 == 0) {
        EXPECT_EQ(generate(alone).v.data.size(), drawn.prepared.inputs().v.data.size());
      }
    }
  }
}

TEST(DrawsTest, ProblemsLieWithinTheLimitsOfTheTesteeAndAreManyKinds) {
  Description testee = description({DType::f16}, {"causal", "lse", "bias", "backward"});
  testee.limits = parse_limits(
      parse_json(
          R"({"head_dim": [64, 128], "query_len": {"multiple": 16}, "key_len": {"min": 32}})"),
      "/limits", testee.dtypes, testee.features);
  const Draws of_testee = draws(testee, 7);
  std::set<std::string> kinds;
  int excluded = 0;
  for (std::uint64_t number = 0; number < 100; ++number) {
    const Drawn drawn = of_testee.draw(number);
    const Case alone = read_entry(drawn.entry, kFuzzStem);
    EXPECT_EQ(to_string(alone.problem), to_string(drawn.prepared.problem()));
    excluded += exclusion(alone.problem, testee).has_value();
    kinds.insert(to_string(alone.problem));
  }
  EXPECT_EQ(excluded, 0);
  EXPECT_GT(kinds.size(), 50u);
}

TEST(DrawsTest, OfATesteesOwnDispatchEveryInstanceIsDrawnFor) {
  Description testee = all_there_is();
  EXPECT_EQ(draws(testee, 7).aim_of(3), nullptr);
  testee.dispatch = parse_dispatches(parse_json(R"([{"name": "b", "passes": "backward", "points":
                      [{"of": "head_dim", "up_to": [100, 128]}, {"of": "key_len", "multiple_of": 64},
                       {"of": "mask", "values": ["causal", "other"]}]}])"),
                                     "/dispatch");
  const Draws of_testee = draws(testee, 7);
  std::map<DispatchClasses, int> drawn;
  int aimed = 0, missed = 0;
  for (std::uint64_t number = 0; number < 100; ++number) {
    const Aim* const aim = of_testee.aim_of(number);
    if (!aim) continue;
    const Problem& p = of_testee.draw(number).prepared.problem();
    ++aimed;
    missed += testee.dispatch[0].instance_of(p) != aim->instance;
    ++drawn[aim->instance];
  }
  EXPECT_GE(aimed, 60);
  EXPECT_LE(aimed, 90);
  EXPECT_LE(missed, 4) << "those are drawn without it after a while";
  EXPECT_EQ(drawn.size(), 8u);
}

// Sizes that come to a gap of gigabytes between rows would take all addresses there are.
TEST(DrawsTest, NoTensorReachesFarInMemory) {
  std::vector<CaseWithEntry> far;
  for (const CaseWithEntry& each : suite()) {
    if (json_text(each.entry).find("gap=1500000000") != std::string::npos) far.push_back(each);
  }
  ASSERT_GT(far.size(), 10u);
  const Description testee = all_there_is();
  const Draws of_far({testee, testee.dtypes}, far, 3);
  for (std::uint64_t number = 0; number < 400; ++number) {
    const Drawn drawn = of_far.draw(number);
    EXPECT_LT(arena_bytes(drawn.prepared.problem()), std::size_t(1) << 30)
        << json_text(drawn.entry);
  }
}

TEST(DrawsTest, DependOnSeedAndNumberAlone) {
  const Description testee = all_there_is();
  const Draws one = draws(testee, 1), same = draws(testee, 1), other = draws(testee, 2);
  std::set<json> problems;
  for (std::uint64_t number = 0; number < 40; ++number) {
    const json entry = one.draw(number).entry;
    EXPECT_EQ(entry, same.draw(number).entry);
    problems.insert(entry.at("problem"));
    problems.insert(other.draw(number).entry.at("problem"));
  }
  EXPECT_GT(problems.size(), 75u);  // a few are the smallest there is
}

// As q of the class "ascending" is in f16 where the scale is 0.01 and there are few keys.
TEST(DrawsTest, WhatHasNoFiniteNumbersOfItsClassIsDrawnAgain) {
  const json refused = {{"name", "a"},
                        {"clauses", {"SOFTMAX-1"}},
                        {"because", "b"},
                        {"bits", "c"},
                        {"dtypes", {"f16"}},
                        {"data", {"ascending"}},
                        {"problem", {{"head_dim", 2}, {"scale", 0.001}}}};
  EXPECT_THROW(PreparedCase(read_entry(refused, kFuzzStem), 1), InputError);
  // A suite of nothing else: what is made of it is often no problem.
  const std::vector<CaseWithEntry> only = {{read_entry(refused, kFuzzStem), refused}};
  const Description testee = description({DType::f16}, {"lse"});
  const Draws of_it({testee, testee.dtypes}, only, 3);
  ASSERT_EQ(of_it.pool_size(), 1u);
  int again = 0;
  for (std::uint64_t number = 0; number < 400; ++number) again += of_it.draw(number).refused;
  EXPECT_GT(again, 3);
}

// Nor would a verdict on them: it was INCONCLUSIVE.
TEST(DrawsTest, NumbersOfWhichNoBoundSaysAnythingAreLeftOut) {
  Description testee = all_there_is();
  const auto equal_huge = [&] {
    const Draws of_testee = draws(testee, 1);
    int times = 0;
    for (std::uint64_t number = 0; number < 1500; ++number) {
      times += of_testee.draw(number).entry.at("data")[0] == "equal_huge";
    }
    return times;
  };
  EXPECT_GT(equal_huge(), 3);
  for (auto& [dtype, arithmetic] : testee.arithmetic) arithmetic.kv_splits = 0;
  EXPECT_EQ(equal_huge(), 0);
}

TEST(DrawsTest, FiniteLeavesOutHiddenNan) {
  const Description testee = all_there_is();
  const Draws finite = draws(testee, 4, true);
  std::set<std::string> hidden;
  for (std::uint64_t number = 0; number < 400; ++number) {
    const Drawn drawn = finite.draw(number);
    hidden.insert(drawn.entry.value("hidden", "plain"));
    const Inputs& in = drawn.prepared.inputs();
    for (const Values* values : {&in.q, &in.k, &in.v, &in.d_o, &in.d_lse}) {
      ASSERT_TRUE(std::all_of(values->data.begin(), values->data.end(), [](double x) {
        return std::isfinite(x);
      })) << drawn.entry;
    }
  }
  EXPECT_EQ(hidden, (std::set<std::string>{"plain", "huge"}));
}

// What faults of real kernels needed, and what a search among small problems seldom has.
void count_triggers(const Problem& p, std::map<std::string, int>& seen) {
  const std::string mask = to_string(p.mask);
  const bool full = p.mask.kind == Mask::Kind::full;
  seen["D of 96 and more"] += p.head_dim >= 96;
  seen["64 heads and more"] += p.query_heads >= 64;
  seen["several tiles of 4 batch elements"] += p.batch >= 4 && p.key_len > 64;
  const Index group = p.key_heads > 0 ? p.query_heads / p.key_heads : 0;
  seen["groups of 3, 5 or 7"] += group == 3 || group == 5 || group == 7;
  seen["a softcap without a mask over part of a tile"] +=
      p.softcap > 0 && full && p.key_len > 64 && p.key_len % 64 != 0;
  seen["a few queries of a long cache"] += p.query_len <= 8 && p.key_len > 300;
  seen["half a tile of 128 left"] += p.key_len % 128 == 64;
  seen["a backward pass of D of 96 and more"] += p.backward && p.head_dim >= 96;
  if (p.mask.kind != Mask::Kind::all_of) return;
  const auto has_part = [&](const auto& is) {
    return std::any_of(p.mask.parts.begin(), p.mask.parts.end(), is);
  };
  seen["a table for all queries beside a diagonal"] +=
      has_part([](const Mask& m) { return m.kind == Mask::Kind::band; }) &&
      has_part([](const Mask& m) { return m.kind == Mask::Kind::dense && m.table->shape[2] == 1; });
}

void add_kinds(const Mask& mask, std::set<Mask::Kind>& seen) {
  seen.insert(mask.kind);
  for (const Mask& part : mask.parts) add_kinds(part, seen);
}

// Without the cases of the suite, which have them all.
TEST(DrawsTest, EveryKindOfMaskIsDrawnAfresh) {
  const Description testee = all_there_is();
  const Draws fresh({testee, testee.dtypes}, {}, 1);
  std::set<Mask::Kind> seen;
  for (std::uint64_t number = 0; number < 400; ++number) {
    add_kinds(fresh.draw(number).prepared.problem().mask, seen);
  }
  for (const MaskKind& each : mask_kinds()) EXPECT_TRUE(seen.contains(each.kind)) << each.word;
}

TEST(DrawsTest, EveryFeatureClassOfDataEdgeAndLawComesUp) {
  const Description testee = all_there_is();
  const Draws all = draws(testee, 1);
  EXPECT_GT(all.pool_size(), 500u);
  std::set<std::string> data, settings, laws;
  std::map<std::string, int> seen;
  for (std::uint64_t number = 0; number < 1500; ++number) {
    const Drawn drawn = all.draw(number);
    const json& entry = drawn.entry;
    data.insert(entry.at("data")[0]);
    settings.insert(entry.value("hidden", ""));
    settings.insert(entry.value("check", ""));
    for (const json& law : entry.value("laws", json::array())) laws.insert(law);
    const Case& c = drawn.prepared.test_case();
    const Problem& p = c.problem;
    for (const std::string& feature : known_features()) {
      std::vector<std::string> others = known_features();
      std::erase(others, feature);
      seen[feature] += !undeclared(p, description(testee.dtypes, others)).empty();
    }
    seen["unequal lengths"] += p.query_len != p.key_len;
    seen["more queries than keys"] += p.query_len > p.key_len;
    seen["a tile's edge"] += p.key_len % 16 <= 1 || p.key_len % 16 == 15;
    seen["a short window"] += to_string(p.mask).find("window -3..") != std::string::npos;
    seen["an empty sequence"] += std::count(p.key_lens.begin(), p.key_lens.end(), 0) > 0;
    seen["masks within masks"] += p.mask.parts.size() > 1;
    seen["costly"] += work_of(p) > kMostWork;
    seen["hidden by a bias"] += !c.extras.bias_allows.allowed.empty();
    count_triggers(p, seen);
  }
  EXPECT_EQ(data.size(), input_classes().size());
  for (const char* setting :
       {"huge", "nan", "nan_rows", "nan_masked", "nan_query", "nan_key", "nan_value",
        "nan_gradient", "threads", "neighbours", "schedule", "stream", "two_streams", "graph"}) {
    EXPECT_TRUE(settings.contains(setting)) << setting;
  }
  EXPECT_GE(laws.size(), 20u);
  for (const Feature& feature : features()) {
    if (is_of_testee(feature)) seen.erase(std::string(feature.name));  // no problem asks for it
  }
  seen.erase("long");  // nor does a search among small ones
  for (const auto& [what, times] : seen) EXPECT_GE(times, 5) << what;
}

TEST(DrawsTest, InLargeProblemsSizesMeetBeyondWhereKernelsChangeHands) {
  const Description testee = all_there_is();
  std::map<std::string, int> seen;
  for (int number = 0; number < 4000; ++number) {
    Dice dice(std::to_string(number));
    json made = large_entry({testee, testee.dtypes}, dice);
    for (const char* field : {"name", "bits", "because"}) made[field] = "large";
    Problem p;
    try {
      p = read_entry(made, kFuzzStem).problem;
    } catch (const InputError&) {
      continue;
    }
    const bool several = p.query_heads > 1, grouped = p.query_heads > p.key_heads;
    const bool wide = p.head_dim >= 96, tiles = p.query_len > 64 && p.key_len > 64;
    const bool packed = !p.query_lens.empty() && p.packed;
    seen["a backward pass of 64 heads"] += p.backward && p.query_heads >= 64;
    seen["more than 1024 keys of several heads"] += several && p.key_len > 1024;
    seen["more than 4096 keys of several heads"] += several && p.key_len > 4096;
    seen["more than 1024 keys of groups"] += grouped && p.key_len > 1024;
    seen["more than 1024 keys of wide heads"] += wide && p.key_len > 1024;
    seen["more than 1024 keys in pages"] += p.paging.page_size > 0 && p.key_len > 1024;
    seen["tiles of queries and keys of wide heads"] += wide && tiles;
    seen["a backward pass of tiles of wide heads"] += p.backward && wide && tiles;
    seen["tiles of several heads in a fifth element"] += several && tiles && p.batch > 4;
    seen["long packed sequences of D 64 and more"] +=
        packed && p.head_dim >= 64 && p.query_len > 128;
  }
  for (const auto& [what, times] : seen) EXPECT_GE(times, 8) << what;
}

// ---- Shrinking ----------------------------------------------------------------------------------

TEST(ShrinkTest, LeavesNothingOfAProblemWhoseFaultIsInAll) {
  const Description testee = all_there_is();
  for (std::uint64_t number = 0; number < 10; ++number) {
    const json entry = random_entry_of(testee, 3, number);
    SCOPED_TRACE(json_text(entry));
    const json small = shrink(entry, 3000, [](const json& candidate) {
      try {
        const Problem p = read_entry(candidate, kFuzzStem).problem;
        return element_count(p.lse_shape()) > 0 || p.query_len == 0 || p.batch == 0 ||
               p.query_heads == 0;
      } catch (const InputError&) {
        return false;
      }
    });
    EXPECT_EQ(small.at("dtypes"), json::array({"f32"}));
    EXPECT_EQ(small.at("data"), json::array({"normal"}));
    EXPECT_FALSE(small.contains("hidden") || small.contains("check"));
    const Problem p = read_entry(small, kFuzzStem).problem;
    EXPECT_LE(p.batch * p.query_heads * p.query_len * p.key_len * p.head_dim * p.value_dim, 1);
    EXPECT_LE(small.at("problem").size(), 1u) << small;
  }
}

TEST(ShrinkTest, KeepsWhatTheFaultNeedsAndNothingElse) {
  // A window of 3 where Sq % 32 is 15, in a packed batch, of the second element.
  const json entry = {
      {"name", "a"},
      {"clauses", {"SOFTMAX-1"}},
      {"because", "b"},
      {"dtypes", {"f16"}},
      {"data", {"huge"}},
      {"hidden", "huge"},
      {"bits", "c"},
      {"problem",
       {{"batch", 3},
        {"query_heads", 6},
        {"key_heads", 2},
        {"head_dim", 65},
        {"packed", true},
        {"query_lens", {7, 111, 80}},
        {"key_lens", {5, 129, 1}},
        {"sink", true},
        {"backward", true},
        {"d_lse", true},
        {"layouts", {{"q", "bshd gap=3"}, {"dq", "sbhd"}}},
        {"mask",
         {{"any_of",
           {"prefix 3", {{"all_of", {"window -3..0 bottom_right offset=2", "causal"}}}}}}}}}};
  int asked = 0;
  const json small = shrink(entry, 3000, [&](const json& candidate) {
    ++asked;
    try {
      const Problem p = read_entry(candidate, kFuzzStem).problem;
      return p.query_len % 32 == 15 && to_string(p.mask).find("window -3..0") != std::string::npos;
    } catch (const InputError&) {
      return false;
    }
  });
  EXPECT_EQ(small.at("problem"), json({{"query_len", 15}, {"mask", "window -3..0"}}));
  EXPECT_LT(asked, 300);
}

TEST(ShrinkTest, SizesThatAKernelTakesOnlyAlikeBecomeSmallTogether) {
  const json entry = {
      {"name", "a"},
      {"clauses", {"SOFTMAX-1"}},
      {"because", "b"},
      {"dtypes", {"f32"}},
      {"data", {"normal"}},
      {"bits", "c"},
      {"problem", {{"query_len", 100}, {"key_len", 100}, {"head_dim", 40}, {"value_dim", 40}}}};
  const json small = shrink(entry, 3000, [&](const json& candidate) {
    const Problem p = read_entry(candidate, kFuzzStem).problem;
    return p.query_len == p.key_len && p.query_len > 16 && p.head_dim == p.value_dim &&
           p.head_dim > 7;
  });
  const Problem p = read_entry(small, kFuzzStem).problem;
  EXPECT_EQ(p.query_len, 17);
  EXPECT_EQ(p.head_dim, 8);
}

TEST(ShrinkTest, AsksNoMoreThanItMay) {
  int asked = 0;
  const auto never = [&](const json&) { return ++asked < 0; };
  const Description testee = all_there_is();
  const json entry = random_entry_of(testee, 3, 4);
  EXPECT_EQ(shrink(entry, 5, never), entry);
  EXPECT_EQ(asked, 5);
}

// ---- The search ---------------------------------------------------------------------------------

// The plain kernel, with a fault where `wrong` says so.
class FuzzTest : public testing::Test {
 protected:
  FuzzTest() {
    testee_ = {.name = "mock/Wrong",
               .spec = "./mock.so",
               .kernel = "mock",
               .command = {},
               .description = description({DType::f32}, {"lse", "backward", "causal", "window",
                                                         "gqa", "dlse", "lengths", "mask-and"})};
  }

  using Wrong = bool (*)(const attest_problem&);
  FuzzResult search(Wrong wrong, std::uint64_t count, int jobs = 1, std::uint64_t seed = 1) {
    return search(wrong, {.seed = seed, .count = count, .run = {.jobs = jobs}});
  }
  FuzzResult search(Wrong wrong, const FuzzOptions& options) {
    return fuzz(
        testee_, suite(), options, [&](const Testee&) { return std::make_unique<Kernel>(wrong); },
        [](const VerdictRecord&) {}, [] { return false; });
  }

  // Each job's own: GoogleMock counts, and must not be shared.
  class Kernel : public Executor {
   public:
    explicit Kernel(Wrong wrong) : executor_(mock_.plugin()) {
      ON_CALL(mock_, forward).WillByDefault([wrong](auto& p, auto& in, auto& out, auto& context) {
        plain::forward(p, in, out, context);
        if (wrong(p) && out.o.capacity_bytes > 0) *static_cast<float*>(out.o.data) += 1;
        return ATTEST_OK;
      });
      ON_CALL(mock_, backward).WillByDefault(plain::backward);
    }
    Reply execute(json request) override { return executor_.execute(std::move(request)); }
    Arena& arena(std::size_t bytes) override { return executor_.arena(bytes); }

   private:
    NiceMock<MockPlugin> mock_;
    InProcessExecutor executor_;
  };

  Testee testee_;
};

Index tried(const FuzzResult& result) {
  Index problems = 0;
  for (const auto& [outcome, count] : result.record.tried) problems += count;
  return problems;
}

json entries(const FuzzResult& result) {
  json all = json::array();
  for (const Find& find : result.found) all.push_back(find.entry);
  return all;
}

bool right(const attest_problem&) { return false; }

TEST_F(FuzzTest, FindsNothingInAKernelThatIsRight) {
  const FuzzResult result = search(right, 60);
  EXPECT_TRUE(result.found.empty()) << entries(result) << result.found[0].verdict.message;
  EXPECT_EQ(tried(result), 60);
  EXPECT_EQ(result.record.next, 60u);
  EXPECT_GT(result.record.tried.at("PASS"), 50);
}

TEST_F(FuzzTest, FindsAFaultAndMakesItSmall) {
  const FuzzResult result =
      search([](const attest_problem& p) { return p.query_len % 4 == 3 && p.key_heads == 2; }, 500);
  ASSERT_EQ(result.found.size(), 1u);
  const json& entry = result.found[0].entry;
  EXPECT_EQ(entry.at("problem"), json({{"query_heads", 2}, {"key_heads", 2}, {"query_len", 3}}));
  EXPECT_EQ(result.found[0].verdict.outcome, Outcome::fail);
  EXPECT_EQ(result.found[0].verdict.reason, "bound");
  EXPECT_THAT(entry.at("name").get<std::string>(), HasSubstr("mock_wrong_seed1_number"));
  EXPECT_THAT(entry.at("because").get<std::string>(), HasSubstr("O[0,0,0,0]"));
}

TEST_F(FuzzTest, FindsTheSameForAnyNumberOfJobs) {
  const auto wrong = [](const attest_problem& p) { return p.key_len % 7 == 5; };
  const FuzzResult one = search(wrong, 200, 1), three = search(wrong, 200, 3);
  ASSERT_EQ(one.found.size(), 1u);
  EXPECT_EQ(entries(one), entries(three));
  EXPECT_EQ(one.record.tried, three.record.tried);
  EXPECT_EQ(one.record.next, three.record.next);
  EXPECT_NE(entries(search(wrong, 200, 1, 2)), entries(one));
}

TEST_F(FuzzTest, GoesOnUntilThereAreSoManyCausesWhateverTheNumberOfJobs) {
  // Three faults, the second of them behind the first, whose problems are many.
  const auto wrong = [](const attest_problem& p) {
    return (p.query_len % 4 == 3 && p.key_heads == 2) || (p.batch == 3 && p.query_len > 3) ||
           (p.mask_count > 0 && p.key_len == 5);
  };
  const FuzzResult one = search(wrong, {.count = 600, .finds = 3, .run = {.jobs = 1}});
  const FuzzResult three = search(wrong, {.count = 600, .finds = 3, .run = {.jobs = 3}});
  ASSERT_EQ(one.found.size(), 3u) << entries(one);
  EXPECT_EQ(entries(one), entries(three));
  EXPECT_EQ(one.record.tried, three.record.tried);
  EXPECT_LT(one.record.next, 600u);
  std::set<std::string> names;
  for (const Find& find : one.found) names.insert(find.entry.at("name"));
  EXPECT_EQ(names.size(), 3u);
}

TEST_F(FuzzTest, OneCauseIsOneFindHoweverManyProblemsFail) {
  const FuzzResult result =
      search([](const attest_problem& p) { return p.batch > 0; }, {.count = 120, .finds = 5});
  EXPECT_EQ(result.found.size(), 1u) << entries(result);
  EXPECT_EQ(tried(result), 120);
  EXPECT_GT(result.record.tried.at("FAIL"), 80);
}

TEST_F(FuzzTest, GoesOnWhereAnEarlierSearchEnded) {
  const auto wrong = [](const attest_problem& p) { return p.key_len % 7 == 5; };
  const FuzzResult whole = search(wrong, {.count = 90, .finds = 100});
  FuzzResult parts = search(wrong, {.count = 40, .finds = 100});
  ASSERT_EQ(parts.record.next, 40u);
  const FuzzResult rest = search(wrong, {.first = 40, .count = 50, .finds = 100});
  EXPECT_EQ(rest.record.next, 90u);
  for (const auto& [outcome, count] : rest.record.tried) parts.record.tried[outcome] += count;
  EXPECT_EQ(parts.record.tried, whole.record.tried);
}

TEST_F(FuzzTest, KeepsWhatDoesNotFailAgainAsItIs) {
  static int calls;
  calls = 0;
  const FuzzResult result = search(
      [](const attest_problem&) { return ++calls >= 20 && calls < 24; },  // whichever of them count
      50);
  ASSERT_EQ(result.found.size(), 1u);
  EXPECT_EQ(result.found[0].verdict.outcome, Outcome::fail);
  EXPECT_THAT(result.found[0].entry.at("because").get<std::string>(), HasSubstr("not again"));
}

TEST_F(FuzzTest, MakesAFindSmallOnlyWhileThereIsTime) {
  const auto wrong = [](const attest_problem& p) { return p.query_len > 2; };
  const FuzzResult found = search(wrong, {.count = 200});
  ASSERT_EQ(found.found.size(), 1u);
  Find large = found.found[0];
  large.entry["problem"] = {{"query_len", 40}, {"key_len", 30}, {"head_dim", 16}};
  for (const int looks : {0, 6}) {
    int left = looks;
    const Find small = shrunk(
        large, "a test", testee_, {},
        [&](const Testee&) { return std::make_unique<Kernel>(wrong); },
        [&] { return left-- <= 0; });
    EXPECT_THAT(small.entry.at("because").get<std::string>(),
                HasSubstr(looks ? "not as small as it gets" : "not tried again"));
    EXPECT_EQ(small.entry.at("problem") == large.entry.at("problem"), looks == 0);
    EXPECT_NE(small.entry.at("problem"), json({{"query_len", 3}})) << "there was time for that";
  }
}

TEST_F(FuzzTest, EndsAtOnceWhenInterrupted) {
  int tried = 0;
  const FuzzResult result = fuzz(
      testee_, suite(), {.seconds = 100},
      [&](const Testee&) {
        return std::make_unique<Kernel>([](const attest_problem&) { return false; });
      },
      [&](const VerdictRecord&) { ++tried; }, [&] { return tried == 7; });
  EXPECT_EQ(tried, 7);
}

}  // namespace
}  // namespace attest
