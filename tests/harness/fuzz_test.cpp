#include "harness/fuzz/fuzz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "cases/entry.h"
#include "cases/generate.h"
#include "harness/fuzz/random_entry.h"
#include "harness/fuzz/shrink.h"
#include "harness/in_process.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"
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
  }
  return d;
}

// ---- Random entries -----------------------------------------------------------------------------

TEST(RandomEntryTest, IsAWellFormedCaseOfWhatIsDeclared) {
  for (const Description& testee :
       {all_there_is(), description({DType::f32}, {}),
        description({DType::bf16, DType::f16}, {"backward", "lse", "causal", "strides", "bias"}),
        description({DType::f32}, {"window", "mask-or", "paged", "zero-sizes", "dropout"})}) {
    for (std::uint64_t number = 0; number < 120; ++number) {
      const json entry = random_entry(testee, testee.dtypes, 5, number);
      SCOPED_TRACE(json_text(entry));
      try {
        const Case c = read_entry(entry, kFuzzStem);
        ASSERT_EQ(undeclared(c.problem, testee), "");
        if (number % 4 == 0) generate(c);
      } catch (const InputError& error) {
        FAIL() << error.what();
      }
    }
  }
}

TEST(RandomEntryTest, DependsOnSeedAndNumberAlone) {
  const Description testee = all_there_is();
  const auto entry = [&](std::uint64_t seed, std::uint64_t number) {
    return random_entry(testee, testee.dtypes, seed, number);
  };
  EXPECT_EQ(entry(1, 17), entry(1, 17));
  for (const auto& other : {entry(2, 17), entry(1, 18), entry(17, 1)}) {
    EXPECT_NE(entry(1, 17).at("problem"), other.at("problem"));
  }
}

TEST(RandomEntryTest, EveryFeatureClassOfDataAndEdgeComesUp) {
  const Description testee = all_there_is();
  std::set<std::string> data, settings;
  std::map<std::string, int> seen;
  for (std::uint64_t number = 0; number < 1000; ++number) {
    const json entry = random_entry(testee, testee.dtypes, 1, number);
    data.insert(entry.at("data")[0]);
    settings.insert(entry.value("hidden", "") + entry.value("check", ""));
    const Case c = read_entry(entry, kFuzzStem);
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
    seen["hidden by a bias"] += !c.extras.bias_allows.allowed.empty();
  }
  EXPECT_EQ(data.size(), input_classes().size());
  for (const char* setting : {"huge", "nan", "nan_rows", "nan_masked", "nan_query", "nan_key",
                              "nan_value", "nan_gradient", "threads", "neighbours", "schedule"}) {
    EXPECT_TRUE(settings.contains(setting)) << setting;
  }
  seen.erase("lse");   // no problem asks for it
  seen.erase("long");  // nor does a search among small ones
  for (const auto& [what, times] : seen) EXPECT_GE(times, 5) << what;
}

// ---- Shrinking ----------------------------------------------------------------------------------

TEST(ShrinkTest, LeavesNothingOfAProblemWhoseFaultIsInAll) {
  const Description testee = all_there_is();
  for (std::uint64_t number = 0; number < 10; ++number) {
    const json entry = random_entry(testee, testee.dtypes, 3, number);
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

TEST(ShrinkTest, AsksNoMoreThanItMay) {
  int asked = 0;
  const auto never = [&](const json&) { return ++asked < 0; };
  const Description testee = all_there_is();
  const json entry = random_entry(testee, testee.dtypes, 3, 4);
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
    const FuzzOptions options = {.seed = seed, .count = count, .run = {.jobs = jobs}};
    return fuzz(
        testee_, options, [&](const Testee&) { return std::make_unique<Kernel>(wrong); },
        [](const Verdict&) {}, [] { return false; });
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

TEST_F(FuzzTest, FindsNothingInAKernelThatIsRight) {
  const FuzzResult result = search([](const attest_problem&) { return false; }, 30);
  EXPECT_FALSE(result.found) << result.found->entry << result.found->verdict.message;
  Index tried = 0;
  for (const auto& [outcome, count] : result.tried) tried += count;
  EXPECT_EQ(tried, 30);
  EXPECT_GT(result.tried.at("PASS"), 20);
}

TEST_F(FuzzTest, FindsAFaultAndMakesItSmall) {
  const FuzzResult result =
      search([](const attest_problem& p) { return p.query_len % 4 == 3 && p.key_heads == 2; }, 500);
  ASSERT_TRUE(result.found);
  const json& entry = result.found->entry;
  EXPECT_EQ(entry.at("problem"), json({{"query_heads", 2}, {"key_heads", 2}, {"query_len", 3}}));
  EXPECT_EQ(result.found->verdict.outcome, Outcome::fail);
  EXPECT_EQ(result.found->verdict.reason, "bound");
  EXPECT_THAT(entry.at("name").get<std::string>(), HasSubstr("mock_wrong_seed1_number"));
  EXPECT_THAT(entry.at("because").get<std::string>(), HasSubstr("O[0,0,0,0]"));
}

TEST_F(FuzzTest, FindsTheSameForAnyNumberOfJobs) {
  const auto wrong = [](const attest_problem& p) { return p.key_len % 7 == 5; };
  const FuzzResult one = search(wrong, 200, 1), three = search(wrong, 200, 3);
  ASSERT_TRUE(one.found && three.found);
  EXPECT_EQ(one.found->entry, three.found->entry);
  EXPECT_EQ(one.tried, three.tried);
  EXPECT_NE(search(wrong, 200, 1, 2).found->entry, one.found->entry);
}

TEST_F(FuzzTest, KeepsWhatDoesNotFailAgainAsItIs) {
  static int calls;
  calls = 0;
  const FuzzResult result = search(
      [](const attest_problem&) { return ++calls >= 20 && calls < 24; },  // whichever of them count
      50);
  ASSERT_TRUE(result.found);
  EXPECT_EQ(result.found->verdict.outcome, Outcome::fail);
  EXPECT_THAT(result.found->entry.at("because").get<std::string>(), HasSubstr("not again"));
}

TEST_F(FuzzTest, EndsAtOnceWhenInterrupted) {
  int tried = 0;
  const FuzzResult result = fuzz(
      testee_, {.seconds = 100},
      [&](const Testee&) {
        return std::make_unique<Kernel>([](const attest_problem&) { return false; });
      },
      [&](const Verdict&) { ++tried; }, [&] { return tried == 7; });
  EXPECT_EQ(tried, 7);
}

}  // namespace
}  // namespace attest
