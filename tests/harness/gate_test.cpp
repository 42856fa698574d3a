// The parts of the gate (harness/gate), each by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>

#include "harness/gate/armed.h"
#include "harness/gate/interval.h"
#include "harness/gate/ranking.h"
#include "harness/gate/stale.h"
#include "harness/gate/thread_count.h"
#include "harness/gate/timed.h"
#include "harness/gate/two_workers.h"
#include "harness/process/arena.h"
#include "harness/process/elements.h"
#include "spec/dtype.h"

namespace attest {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(IntervalTest, LiesBetweenTheOrderStatisticsThatAFairCoinSays) {
  // Of 20, fewer than 6 heads have a probability of 0.0207.
  std::vector<double> twenty(20);
  std::iota(twenty.rbegin(), twenty.rend(), 1);
  const Interval interval = interval_of(twenty);
  EXPECT_EQ(interval.median, 10.5);
  EXPECT_EQ(interval.least, 6);
  EXPECT_EQ(interval.most, 15);
  EXPECT_NEAR(interval.level, 0.9586, 1e-4);
}

TEST(IntervalTest, OfFewMeasurementsIsAllOfThemAndSaysHowSureThatIs) {
  EXPECT_EQ(interval_of({3}).level, 0);
  const Interval interval = interval_of({4, 1, 3, 2, 9});
  EXPECT_EQ(interval.median, 3);
  EXPECT_EQ(interval.least, 1);
  EXPECT_EQ(interval.most, 9);
  EXPECT_EQ(interval.level, 1 - 2.0 / 32);
}

// Answers, and writes nothing.
class Idle : public Executor {
 public:
  Reply execute(nlohmann::json) override { return {.body = {{"status", "ok"}}}; }
  Arena& arena(std::size_t bytes) override {
    if (!arena_) arena_ = std::make_unique<Arena>(bytes);
    return *arena_;
  }

 private:
  std::unique_ptr<Arena> arena_;
};

// What two outputs hold after calls of which nothing is written, one for each number.
std::vector<std::uint64_t> held(std::uint64_t seed, int calls) {
  Idle idle;
  Stale stale(idle, seed);
  std::vector<std::uint64_t> bits;
  for (int n = 0; n < calls; ++n) {
    Exchange exchange(stale.arena(1 << 20), Placement::end_flush, 16);
    exchange.add_output("o", DType::f32, {1, 1, 2, 4}, {});
    exchange.seal();
    stale.execute({{"op", "forward"}, {"call", n}, {"tensors", exchange.to_json()}});
    EXPECT_FALSE(exchange.damage());
    bits.push_back(exchange.read("o").front());
  }
  return bits;
}

TEST(StaleTest, OutputsHoldPoisonBeforeSomeCallsAndNumbersBeforeOthers) {
  const auto bits = held(1, 40);
  const auto numbers = std::count_if(bits.begin(), bits.end(), [](std::uint64_t each) {
    return std::isfinite(decode(DType::f32, each));
  });
  EXPECT_GT(numbers, 10);
  EXPECT_LT(numbers, 30);
  EXPECT_EQ(held(1, 40), bits);
  EXPECT_NE(held(2, 40), bits);
}

// What the inputs hold that each request finds.
class Reader : public Idle {
 public:
  explicit Reader(bool arms) : arms_(arms) {}

  Reply execute(nlohmann::json request) override {
    if (request["op"] == "describe") return {.body = {{"status", "ok"}, {"arms", arms_}}};
    ops.push_back(request["op"]);
    found.push_back(static_cast<int>(arena_of_last()[kPlace]));
    return {.body = {{"status", "ok"}, {"armed", true}}};
  }

  static constexpr std::size_t kPlace = 5;
  std::byte* arena_of_last() { return arena(0).inputs(); }
  std::vector<std::string> ops;
  std::vector<int> found;

 private:
  bool arms_;
};

nlohmann::json call_with_an_input() {
  const nlohmann::json q = {{"memory", "input"}, {"region_offset", 0}, {"region_bytes", 4096}};
  return {{"op", "forward"}, {"problem", nlohmann::json::object()}, {"tensors", {{"q", q}}}};
}

Reader asked_through_armed(bool arms) {
  Reader reader(arms);
  Armed armed(reader);
  armed.load();
  armed.arena(1 << 20).inputs()[Reader::kPlace] = std::byte(7);
  EXPECT_TRUE(armed.execute(call_with_an_input()).ok());
  return reader;
}

TEST(ArmedTest, TheInputsAreNotThereBeforeTheWordThatTheCallBegins) {
  const Reader reader = asked_through_armed(true);
  EXPECT_THAT(reader.ops, ElementsAre("forward", "go"));
  EXPECT_THAT(reader.found, ElementsAre(0, 7));
}

TEST(ArmedTest, AWorkerThatCannotBeToldBeforehandIsAskedAsEver) {
  const Reader reader = asked_through_armed(false);
  EXPECT_THAT(reader.ops, ElementsAre("forward"));
  EXPECT_THAT(reader.found, ElementsAre(7));
}

PassTime of(double clock, std::optional<double> computed) {
  return {.clock = clock, .computed = computed};
}

TEST(RoundTest, DrawsDropoutAnewAndTheSameRoundTheSame) {
  const TimedProblem timed = {
      "drops",
      {{"problem", {{"dropout", {{"mode", "generated"}, {"probability", 0.5}, {"seed", 7}}}}}},
      {"normal"}};
  const auto seed_of = [&](std::uint64_t round) {
    return entry_of_round(timed, 1, round)["problem"]["dropout"]["seed"];
  };
  EXPECT_NE(seed_of(1), seed_of(2));
  EXPECT_EQ(seed_of(2), seed_of(2));
  EXPECT_FALSE(
      entry_of_round({"plain", {{"name", "plain"}}, {"normal"}}, 1, 1).contains("problem"));
}

TEST(ThreadCountTest, IsOfEachProblemByItself) {
  ThreadCount count(1);
  for (int call = 0; call < 10; ++call) {
    count.add("long forward", of(1, 1));
    count.add("short forward", of(0.02, 0.04));
  }
  EXPECT_THAT(count.not_believed(),
              ElementsAre("short forward: its calls compute on 2.0 threads, where --threads grants "
                          "1: their times are no measure"));
  EXPECT_THAT(count.too_short(), IsEmpty());
}

TEST(ThreadCountTest, SeesThreadsThatWaitForAProcessorInSeveralCalls) {
  ThreadCount count(1);
  count.add("crowded", of(1, 1));
  for (const double running : {3.5, 4.0, 1.0}) count.add_running(running);
  EXPECT_THAT(count.not_believed(), IsEmpty());
  count.add_running(2);
  EXPECT_THAT(count.not_believed(), ElementsAre(HasSubstr("on up to 4.0 threads")));
}

TEST(ThreadCountTest, BelievesWhatARuntimeHasBesideAndATickOfChildren) {
  ThreadCount count(2);
  count.add("beside", of(1, 2.05));
  count.add("a tick", of(0.01, 0.04));
  EXPECT_THAT(count.not_believed(), IsEmpty());
}

// In half of the calls a fifth of the work lies with another thread: the median is a fifth less.
TEST(ThreadCountTest, SeesThreadsInSoManyCallsThatTheyMoveTheMedian) {
  ThreadCount count(1);
  for (int call = 0; call < 20; ++call) count.add("often", of(call % 2 ? 0.01 : 0.008, 0.01));
  for (int call = 0; call < 20; ++call) count.add("seldom", of(call % 10 ? 0.01 : 0.008, 0.01));
  EXPECT_THAT(
      count.not_believed(),
      ElementsAre("often: 10 of its 20 calls compute on more threads than --threads grants, "
                  "which is 1: their times are no measure"));
}

TEST(ThreadCountTest, NamesWhatIsTooShortToTell) {
  ThreadCount count(1);
  for (int call = 0; call < 1000; ++call) count.add("short calls", of(0.0005, 0.0005));
  count.add("few calls", of(0.02, 0.02));
  count.add("long", of(0.2, 0.2));
  EXPECT_THAT(count.too_short(), ElementsAre("few calls", "short calls"));
}

TEST(ThreadCountTest, DoesNotBelieveWhatCannotBeCounted) {
  ThreadCount count(1);
  count.add("known", of(1, 1));
  count.add("unknown", of(1, std::nullopt));
  EXPECT_THAT(count.not_believed(), ElementsAre(HasSubstr("cannot be told")));
}

// Of one that conforms, timed in problems of those names, so many times as fast in each round.
GateResult timed(const std::vector<std::pair<std::string, std::vector<double>>>& ratios) {
  GateResult result;
  result.whole = true;
  for (const auto& [problem, each] : ratios) {
    result.speeds.push_back({.problem = problem,
                             .shape = problem,
                             .pass = "forward",
                             .calls = each.size(),
                             .ratio = interval_of(each),
                             .ratios = each,
                             .memory = BytesTaken{1, 2}});
  }
  return result;
}

std::vector<std::size_t> order_of(const Ranking& ranking) {
  std::vector<std::size_t> order;
  for (const Ranked& each : ranking.kernels) order.push_back(each.kernel);
  return order;
}

TEST(RankingTest, APlaceIsSharedWhereTheIntervalsDoNotTellKernelsApart) {
  const GateResult slow = timed({{"a", {1, 1.1, 1.1, 1.1, 1.2}}}),
                   near = timed({{"a", {2, 2.1, 2.1, 2.1, 2.2}}}),
                   fast = timed({{"a", {2.1, 2.2, 2.2, 2.2, 2.3}}});
  GateResult wrong = timed({{"a", {9, 9, 9, 9, 9}}});
  wrong.faults = 1;
  const Ranking ranking = ranking_of({nullptr, &wrong, &slow, &near, &fast});
  EXPECT_THAT(order_of(ranking), ElementsAre(4, 3, 2, 1, 0));
  EXPECT_EQ(ranking.kernels[0].place, 1);
  EXPECT_EQ(ranking.kernels[1].place, 1);
  EXPECT_EQ(ranking.kernels[2].place, 3);
  EXPECT_EQ(ranking.kernels[3].place, std::nullopt);
  EXPECT_EQ(ranking.kernels[3].speed, std::nullopt);
}

TEST(RankingTest, FewCallsTellNothingApart) {
  const GateResult slow = timed({{"a", {1, 1, 1, 1}}}), fast = timed({{"a", {2, 2, 2, 2}}});
  const Ranking ranking = ranking_of({&slow, &fast});
  EXPECT_THAT(order_of(ranking), ElementsAre(1, 0));
  EXPECT_EQ(ranking.kernels[1].place, 1);
}

TEST(RankingTest, ComparesWhatAllWereTimedInThatConform) {
  const GateResult both = timed({{"a", {1, 1, 1}}, {"b", {100, 100, 100}}}),
                   one = timed({{"a", {2, 2, 2}}});
  GateResult wrong = timed({});
  wrong.faults = 1;
  const Ranking ranking = ranking_of({&both, &one, &wrong});
  EXPECT_THAT(ranking.compared, ElementsAre(Compared{"a", "a", "forward"}));
  EXPECT_THAT(order_of(ranking), ElementsAre(1, 0, 2));
}

TEST(RankingTest, ASpeedIsTheGeometricMeanCallByCall) {
  const GateResult two = timed({{"a", {1, 4, 16}}, {"b", {4, 1, 1, 9}}});
  const auto mean = mean_ratio(two.speeds);
  ASSERT_TRUE(mean);
  EXPECT_DOUBLE_EQ(mean->median, 2);  // of 2, 2, 4
  EXPECT_DOUBLE_EQ(mean->most, 4);
  EXPECT_EQ(mean_ratio({}), std::nullopt);
}

Description with_limits(const nlohmann::json& limits) {
  return parse_description({{"name", "it"},
                            {"version", "1"},
                            {"vendor", "us"},
                            {"profiles", nlohmann::json::array()},
                            {"dtypes", {"f32", "bf16", "f16"}},
                            {"features", {"lse", "causal"}},
                            {"limits", limits}});
}

std::vector<std::string> names_of(const std::vector<TimedProblem>& problems) {
  std::vector<std::string> names;
  for (const TimedProblem& each : problems) names.push_back(each.name);
  return names;
}

TEST(TimedTest, UsualProblemsAreOfTwoFormatsAndWhatIsDeclared) {
  EXPECT_THAT(names_of(usual_problems(with_limits(nlohmann::json::object()), 1)),
              ElementsAre("prefill bf16", "prefill f16", "causal bf16", "causal f16", "decode bf16",
                          "decode f16"));
}

TEST(TimedTest, UsualProblemsHaveSizesOfTheSeed) {
  std::set<nlohmann::json> problems;
  for (const std::uint64_t seed : {1, 1, 2, 3}) {
    const auto all = usual_problems(with_limits(nlohmann::json::object()), seed);
    problems.insert(all.front().entry["problem"]);
  }
  EXPECT_THAT(problems, SizeIs(3));
}

TEST(TimedTest, RoundsThatAreNotTimedHaveInputsOfOtherClasses) {
  const TimedProblem problem = {.name = "small",
                                .entry = nlohmann::json::object(),
                                .data = {"normal"},
                                .untimed = {"high", "low"}};
  std::map<std::string, int> seen;
  for (std::uint64_t round = 0; round < 100; ++round) {
    ++seen[entry_of_round(problem, 1, round)["data"][0]];
  }
  EXPECT_GT(seen["normal"], 40);
  EXPECT_LT(seen["normal"], 80);
  EXPECT_GT(seen["high"], 5);
  EXPECT_GT(seen["low"], 5);
  EXPECT_EQ(entry_of_round(problem, 1, 1)["data"][0], "normal");
}

// Says by which of two it was asked.
class Named : public Idle {
 public:
  explicit Named(const char* name) : name_(name) {}
  Reply execute(nlohmann::json) override { return {.body = {{"status", name_}}}; }

 private:
  const char* name_;
};

TEST(TwoWorkersTest, ABackwardCallThatIsTimedMeetsTheOtherOneAndNoneIsKnownByThat) {
  Named first("first"), second("second");
  TwoWorkers workers(first, second);
  std::map<std::string, int> timed, judged;
  for (int n = 0; n < 100; ++n) {
    for (const bool is_timed : {true, false}) {
      workers.draw(std::to_string(n), is_timed);
      const auto forward = workers.execute({}).body["status"].get<std::string>();
      const auto backward = workers.of_backward().execute({}).body["status"].get<std::string>();
      ++(is_timed ? timed : judged)[forward + " " + backward];
    }
  }
  EXPECT_EQ(timed.size(), 2u);
  EXPECT_GT(timed["first second"], 20);
  EXPECT_GT(timed["second first"], 20);
  EXPECT_EQ(judged.size(), 4u);
  for (const auto& [who, count] : judged) EXPECT_GT(count, 10) << who;
}

TEST(TimedTest, UsualProblemsAreFittedToLimits) {
  for (const TimedProblem& each : usual_problems(with_limits({{"head_dim", {48}}}), 1)) {
    EXPECT_EQ(each.entry["problem"]["head_dim"], 48) << each.name;
  }
}

TEST(TimedTest, UsualProblemsAreNoOthersOnceTheyAreFitted) {
  // Of as many rows as keys, decoding would be a prefill; of one head dimension, two are the same.
  EXPECT_THAT(
      names_of(usual_problems(
          with_limits({{"square", true}, {"masks", {"causal top_left"}}, {"head_dim", {64}}}), 1)),
      ElementsAre("prefill bf16", "prefill f16"));
}

TEST(TimedTest, EachRoundHasOtherNumbersAndTheSameOnceMore) {
  const auto problem = usual_problems(with_limits(nlohmann::json::object()), 1).front();
  EXPECT_EQ(entry_of_round(problem, 7, 1), entry_of_round(problem, 7, 1));
  EXPECT_NE(entry_of_round(problem, 7, 1)["bits"], entry_of_round(problem, 7, 2)["bits"]);
  EXPECT_NE(entry_of_round(problem, 7, 1)["bits"], entry_of_round(problem, 8, 1)["bits"]);
  EXPECT_NE(entry_of_round(problem, 7, 1)["name"], entry_of_round(problem, 7, 2)["name"]);
}

TEST(TimedTest, NoTimeIsTooShortThatAMachineCouldReach) {
  Problem problem = {.dtype = DType::f32,
                     .batch = 1,
                     .query_heads = 8,
                     .key_heads = 8,
                     .query_len = 1024,
                     .key_len = 1024,
                     .head_dim = 64,
                     .value_dim = 64};
  const double all = least_seconds(problem, false, false);
  // 2.1e9 operations on no more than a thousand cores of 384e9 a second.
  EXPECT_GT(all, 2.1e9 / 384e9 / 1024);
  EXPECT_LT(all, 2.2e9 / 384e9);
  EXPECT_EQ(least_seconds(problem, true, false), 2 * all);
  EXPECT_LT(least_seconds(problem, false, true), all);
  problem.mask = Mask::causal(Anchor::top_left);
  EXPECT_EQ(least_seconds(problem, false, false), all / 2);
  problem.mask = Mask::window(16, 0, Anchor::top_left);
  EXPECT_EQ(least_seconds(problem, false, false), 0);
}

}  // namespace
}  // namespace attest
