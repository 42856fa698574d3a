// What a case is put to beside its two calls: threads, neighbours, dropout that is drawn.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

#include "cases/case.h"
#include "harness/process/in_process.h"
#include "spec/feature.h"
#include "spec/limits.h"
#include "tests/harness/examine_on_a_mock.h"
#include "tests/harness/plain_kernel.h"

namespace attest {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class CheckTest : public ExamineTest {
 protected:
  CheckTest() {
    test_case_.problem.batch = 3;
    description_.features = known_features();
    ON_CALL(mock_, forward).WillByDefault(plain::forward);
    ON_CALL(mock_, backward).WillByDefault(plain::backward);
  }
  void declare(bool threads, bool batch) {
    Arithmetic arithmetic = loosest(DType::f32);
    arithmetic.thread_invariant = threads;
    arithmetic.batch_invariant = batch;
    description_.arithmetic = {{DType::f32, arithmetic}};
  }
};

TEST_F(CheckTest, AnyNumberOfThreadsIsRightAndHasTheSameBitsWhereThatIsPromised) {
  test_case_.check = Check::threads;
  std::vector<int> threads;
  int faulty = 0;
  float factor = 1 + 0x1p-22f;
  ON_CALL(mock_, forward).WillByDefault([&](auto& p, auto& in, auto& out, auto& c) {
    threads.push_back(c.threads);
    plain::forward(p, in, out, c);
    if (c.threads == faulty) floats(out.o)[1] *= factor;
    return ATTEST_OK;
  });
  EXPECT_EQ(verdict().outcome, Outcome::pass);
  EXPECT_THAT(threads, ElementsAre(1, 1, 2, 3, 4, 7));
  faulty = 3;
  EXPECT_EQ(verdict().outcome, Outcome::pass);  // other bits, within their bound
  declare(true, false);
  const Verdict variant = verdict();
  EXPECT_EQ(variant.reason, "nondeterministic");
  EXPECT_EQ(variant.clauses.front(), "DET-3");
  EXPECT_THAT(variant.message, HasSubstr("1 threads and 3 differ: O[0,0,1,0]"));

  declare(false, false);
  factor = 2;
  const Verdict wrong = verdict();
  EXPECT_EQ(wrong.reason, "bound");
  EXPECT_EQ(wrong.clauses.front(), "DET-3");
  EXPECT_THAT(wrong.message, HasSubstr("with 3 threads: O[0,0,1,0]"));
  EXPECT_GT(wrong.tensors.at(TensorName::o).max_ratio, 1);
}

TEST_F(CheckTest, ModeIsAskedForInBothPlacementsAndWhatItGetsWrongBreaksItsClause) {
  test_case_.problem.backward = true;
  for (const auto& [check, mode, clause] :
       {std::tuple(Check::stream, ATTEST_CALL_STREAM, "DEV-1"),
        std::tuple(Check::two_streams, ATTEST_CALL_TWO_STREAMS, "DEV-2"),
        std::tuple(Check::graph, ATTEST_CALL_GRAPH, "DEV-3")}) {
    test_case_.check = check;
    std::vector<attest_call_mode> modes;
    float factor = 1;
    ON_CALL(mock_, forward).WillByDefault([&](auto& p, auto& in, auto& out, auto& c) {
      modes.push_back(c.mode);
      plain::forward(p, in, out, c);
      if (c.mode != ATTEST_CALL_ORDINARY) floats(out.o)[1] *= factor;
      return ATTEST_OK;
    });
    EXPECT_EQ(verdict().outcome, Outcome::pass);
    EXPECT_THAT(modes, ElementsAre(ATTEST_CALL_ORDINARY, ATTEST_CALL_ORDINARY, mode, mode));
    factor = 2;
    const Verdict wrong = verdict();
    EXPECT_EQ(wrong.reason, "bound");
    EXPECT_EQ(wrong.clauses.front(), clause);
    EXPECT_EQ(wrong.blamed, clause);
    EXPECT_THAT(wrong.message, HasSubstr(": O[0,0,1,0]"));
    description_.features = {"lse", "backward"};
    EXPECT_EQ(verdict().outcome, Outcome::unsupported);
    description_.features = known_features();
  }
}

KernelLimits limits(const char* text) {
  const std::vector<DType> formats = {DType::f32};
  const std::vector<std::string> features = known_features();
  return parse_limits(nlohmann::json::parse(text), "/limits", formats, features);
}

TEST_F(CheckTest, OtherShapesComeInAFreshWorkerBeforeTheCase) {
  test_case_.check = Check::new_shapes;
  std::erase(description_.features, "strides");
  std::vector<std::vector<Index>> shapes;
  ON_CALL(mock_, forward).WillByDefault([&](auto& p, auto& in, auto& out, auto& c) {
    shapes.push_back({p.query_heads, p.query_len, p.key_len});
    return plain::forward(p, in, out, c);
  });
  EXPECT_EQ(verdict().outcome, Outcome::pass);
  const std::vector<Index> own = {1, 3, 1};
  EXPECT_THAT(shapes,
              ElementsAre(own, own, std::vector<Index>{2, 6, 2}, std::vector<Index>{1, 6, 2},
                          std::vector<Index>{2, 3, 1}, std::vector<Index>{1, 2, 1}, own, own));
  // Of those that its limits let through.
  description_.limits = limits(R"({"query_len": [3, 6], "query_heads": 1})");
  shapes.clear();
  EXPECT_EQ(verdict().outcome, Outcome::pass);
  EXPECT_THAT(shapes, ElementsAre(own, own, std::vector<Index>{1, 6, 2}, own, own));
  description_.limits = limits(R"({"query_len": 3})");
  test_case_.problem.dropout = {.mode = Dropout::Mode::given, .probability = 0.5};
  const Verdict narrow = verdict();
  EXPECT_EQ(narrow.outcome, Outcome::unsupported);
  EXPECT_EQ(narrow.reason, "limits");
}

// Two calls that follow each other differ in the strides of one tensor; each of them is judged.
TEST_F(CheckTest, OtherStridesComeOneAfterTheOtherInAFreshWorker) {
  using Strides = std::vector<Index>;
  test_case_.check = Check::new_shapes;
  description_.limits = limits(R"({"query_len": 3, "query_heads": 1, "key_len": 1})");
  std::vector<std::vector<Strides>> calls;
  Strides first;    // of the tensor that a plan forgets
  int forgets = 4;  // none
  ON_CALL(mock_, forward).WillByDefault([&](auto& p, auto& in, auto& out, auto& c) {
    std::vector<Strides> call;
    for (const attest_tensor* each : {&in.q, &in.k, &in.v, &out.o}) {
      call.emplace_back(each->stride, each->stride + 4);
    }
    calls.push_back(call);
    plain::forward(p, in, out, c);
    if (forgets == 4) return ATTEST_OK;
    if (calls.size() == 3) first = call[forgets];  // of the fresh worker
    if (calls.size() >= 3 && call[forgets] != first) floats(out.o)[0] *= 2;
    return ATTEST_OK;
  });
  EXPECT_EQ(verdict().outcome, Outcome::pass);
  ASSERT_EQ(calls.size(), 2u + 6);
  EXPECT_EQ(calls[2], calls[7]);
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t tensor = 0; tensor < 4; ++tensor) {
      EXPECT_EQ(calls[i + 2][tensor] != calls[i + 3][tensor], tensor == i) << tensor;
    }
  }
  for (forgets = 0; forgets < 4; ++forgets) {
    calls.clear();
    const Verdict wrong = verdict();
    EXPECT_EQ(wrong.reason, "bound");
    EXPECT_EQ(wrong.blamed, "DEV-4");
    EXPECT_THAT(wrong.message, HasSubstr(fmt::format("after other strides of {}: O[0,0,0,0]",
                                                     std::array{"Q", "K", "V", "O"}[forgets])));
  }
  // Of those that it takes.
  std::erase(description_.features, "strides");
  forgets = 4;
  EXPECT_EQ(verdict().reason, "limits");
}

// Calls the mock, and says of a measured call how many threads it had.
class MeasuringExecutor : public InProcessExecutor {
 public:
  using Running = std::function<std::optional<double>(int threads)>;
  MeasuringExecutor(const attest_plugin& plugin, Running running,
                    std::optional<double> wall_seconds = {})
      : InProcessExecutor(plugin), running_(std::move(running)), wall_seconds_(wall_seconds) {}
  Reply measure(nlohmann::json request) override {
    const int threads = request.at("threads");
    Reply reply = execute(std::move(request));
    reply.running_threads = running_(threads);
    reply.wall_seconds = wall_seconds_;
    return reply;
  }

 private:
  Running running_;
  std::optional<double> wall_seconds_;
};

class ThreadsTest : public CheckTest {
 protected:
  ThreadsTest() {
    test_case_.check = Check::threads;
    test_case_.clauses = {"CALL-2", "DET-3"};
    description_.threads = true;
  }
  Verdict verdict_if(const MeasuringExecutor::Running& running,
                     std::optional<double> wall_seconds = {}) {
    MeasuringExecutor executor(mock_.plugin(), running, wall_seconds);
    PreparedCase prepared(test_case_, 1);
    return examine(prepared, description_, "mock", executor, 1).verdict;
  }
};

TEST_F(ThreadsTest, MoreThanACallMayUseFailsOnceThreeCallsHaveThem) {
  const Verdict v = verdict_if([](int) { return 64; });
  EXPECT_EQ(v.outcome, Outcome::fail);
  EXPECT_EQ(v.reason, "threads");
  EXPECT_EQ(v.clauses.front(), "CALL-2");
  EXPECT_EQ(v.message, "64.0 threads ran in a call that may use 1, in the mean over it");
  EXPECT_EQ(verdict_if([](int) { return 2; }).reason, "threads");
  int call = 0;
  EXPECT_EQ(verdict_if([&](int threads) { return ++call <= 2 ? 64 : threads; }).outcome,
            Outcome::pass);
}

TEST_F(ThreadsTest, ThreadsOfARuntimeThatHardlyRunDoNotCount) {
  EXPECT_EQ(verdict_if([](int threads) { return threads + 0.4; }).outcome, Outcome::pass);
}

TEST_F(ThreadsTest, CallsThatAreTooShortToTellAreRepeatedAtGreaterLengths) {
  std::vector<Index> lengths;
  ON_CALL(mock_, forward).WillByDefault([&](auto& p, auto& in, auto& out, auto& c) {
    lengths.push_back(p.key_len);
    return plain::forward(p, in, out, c), ATTEST_OK;
  });
  const Index length = test_case_.problem.key_len;
  const auto measured_from = [&](Index least) {
    return [&, least](int threads) -> std::optional<double> {
      if (lengths.back() < least) return std::nullopt;
      return threads == 1 ? 2 : threads;
    };
  };
  EXPECT_EQ(verdict_if(measured_from(4 * length)).reason, "threads");
  EXPECT_THAT(lengths, ElementsAre(length, length, length,  // judged twice, then too short
                                   2 * length, 4 * length, 4 * length, 4 * length));
  const Verdict never = verdict_if(measured_from(128 * length));
  EXPECT_EQ(never.outcome, Outcome::inconclusive);
  EXPECT_THAT(never.message, HasSubstr("end too soon"));
}

TEST_F(ThreadsTest, LengthsGrowByTheTimeThatCallsTookWhateverProcessorTheyTookItOn) {
  std::vector<Index> lengths;
  ON_CALL(mock_, forward).WillByDefault([&](auto& p, auto& in, auto& out, auto& c) {
    lengths.push_back(p.key_len);
    return plain::forward(p, in, out, c), ATTEST_OK;
  });
  const Index length = test_case_.problem.key_len;
  const auto after_a_call_of = [&](double seconds) {
    lengths.clear();
    verdict_if([](int) { return std::nullopt; }, seconds);
    return lengths.at(3) / length;  // judged twice, then too short
  };
  EXPECT_EQ(after_a_call_of(0.09), 2);  // close to what tells: no further than it must
  EXPECT_EQ(after_a_call_of(0.01), 4);
  EXPECT_EQ(after_a_call_of(1e-6), 8);
}

TEST_F(ThreadsTest, NobodyIsAskedWhoDoesNotDeclareThem) {
  description_.threads = false;
  const Verdict v = verdict_if([](int) { return 64; });
  EXPECT_EQ(v.outcome, Outcome::unsupported);
  EXPECT_EQ(v.message, "does not declare threads");
  EXPECT_THAT(v.clauses, testing::IsEmpty());
}

TEST_F(CheckTest, NeighboursAreTakenAwayFromThoseWhoPromiseTheSameBits) {
  test_case_.check = Check::neighbours;
  EXPECT_EQ(verdict().message, "does not declare batch_invariant");
  declare(false, true);
  std::vector<Index> batches;
  Index faulty = 0;
  ON_CALL(mock_, forward).WillByDefault([&](auto& p, auto& in, auto& out, auto& c) {
    batches.push_back(p.batch);
    plain::forward(p, in, out, c);
    if (p.batch == faulty) floats(out.lse)[2] = std::nextafter(floats(out.lse)[2], 1e30f);
    return ATTEST_OK;
  });
  EXPECT_EQ(verdict().outcome, Outcome::pass);
  EXPECT_THAT(batches, ElementsAre(3, 3, 1, 1, 1));
  faulty = 1;
  const Verdict v = verdict();
  EXPECT_EQ(v.reason, "nondeterministic");
  EXPECT_EQ(v.clauses.front(), "DET-2");
  EXPECT_THAT(v.message, HasSubstr("batch element 0 alone"));
}

TEST_F(CheckTest, NeighboursAreTakenAwayFromGradientsToo) {
  test_case_.check = Check::neighbours;
  test_case_.problem.backward = true;
  declare(false, true);
  EXPECT_EQ(verdict().outcome, Outcome::pass);
  ON_CALL(mock_, backward).WillByDefault([](auto& p, auto& in, auto& out, auto& c) {
    plain::backward(p, in, out, c);
    if (p.batch == 1) floats(out.dv)[0] = std::nextafter(floats(out.dv)[0], 1e30f);
    return ATTEST_OK;
  });
  EXPECT_EQ(verdict().clauses.front(), "DET-2");
}

// ---- Dropout that the testee draws
// ---------------------------------------------------------------

class DrawTest : public CheckTest {
 protected:
  DrawTest() {
    test_case_.problem.query_len = test_case_.problem.key_len = 40;
    test_case_.problem.dropout = {
        .mode = Dropout::Mode::generated, .probability = 0.25, .seed = 11};
  }
  // A kernel that is handed another problem than it was given.
  void misled(const std::function<void(attest_problem&, int)>& mislead) {
    ON_CALL(mock_, forward)
        .WillByDefault([=, call = 0](auto& p, auto& in, auto& out, auto& c) mutable {
          attest_problem other = p;
          mislead(other, call++);
          return plain::forward(other, in, out, c);
        });
  }
};

TEST_F(DrawTest, WhatIsDrawnWithMoreThreadsIsJudgedForItself) {
  test_case_.check = Check::threads;
  int wrong = 0;
  ON_CALL(mock_, forward).WillByDefault([&](auto& p, auto& in, auto& out, auto& c) {
    attest_problem other = p;
    other.dropout_seed += static_cast<std::uint64_t>(c.threads);
    plain::forward(other, in, out, c);
    if (c.threads == wrong) floats(out.o)[1] += 1;
    return ATTEST_OK;
  });
  EXPECT_EQ(verdict().outcome, Outcome::pass);
  wrong = 2;
  EXPECT_THAT(verdict().message, HasSubstr("with 2 threads: O[0,0,1,0]"));
}

TEST_F(DrawTest, MaskThatIsReturnedIsTheOneToJudgeBy) {
  EXPECT_EQ(verdict().outcome, Outcome::pass);
  // What it says it dropped is not what it dropped.
  ON_CALL(mock_, forward).WillByDefault([](auto& p, auto& in, auto& out, auto& c) {
    plain::forward(p, in, out, c);
    plain::set_bit(out.keep, 0, 0, 5, 7, !plain::bit(out.keep, 0, 0, 5, 7));
    return ATTEST_OK;
  });
  EXPECT_EQ(verdict().reason, "bound");
}

TEST_F(DrawTest, EqualCallsDrawEqualMasks) {
  misled([](attest_problem& p, int call) { p.dropout_offset += static_cast<std::uint64_t>(call); });
  const Verdict v = verdict();
  EXPECT_EQ(v.reason, "nondeterministic");
  EXPECT_EQ(v.clauses.front(), "DROP-3");
}

TEST_F(DrawTest, AnotherSeedDrawsAnotherMask) {
  misled([](attest_problem& p, int) { p.dropout_seed = 1; });
  const Verdict v = verdict();
  EXPECT_EQ(v.reason, "property:seed");
  EXPECT_EQ(v.clauses.front(), "DROP-3");
}

TEST_F(DrawTest, AsMuchIsKeptAsIsAskedFor) {
  misled([](attest_problem& p, int) { p.dropout_probability = 0.3; });
  const Verdict v = verdict();
  EXPECT_EQ(v.reason, "statistical");
  EXPECT_EQ(v.clauses.front(), "DROP-3");
  // How coarse its rates are may be declared.
  misled([](attest_problem& p, int) { p.dropout_probability = 0.28; });
  description_.keep_quantum = 0;
  test_case_.problem.batch = 8;
  EXPECT_EQ(verdict().reason, "statistical");
  description_.keep_quantum = 0.03;
  EXPECT_EQ(verdict().reason, "bound");  // it scales by 1/(1-p) of another p
}

TEST_F(DrawTest, EveryByteOfTheMaskIsWritten) {
  ON_CALL(mock_, forward).WillByDefault([](auto& p, auto& in, auto& out, auto& c) {
    // The second byte of the second row.
    auto& byte = static_cast<std::uint8_t*>(out.keep.data)[plain::offset(out.keep, 0, 0, 1, 8) / 8];
    const std::uint8_t before = byte;
    plain::forward(p, in, out, c);
    byte = before;
    return ATTEST_OK;
  });
  const Verdict v = verdict();
  EXPECT_EQ(v.reason, "unwritten");
  EXPECT_THAT(v.message, HasSubstr("keep[0,0,1,8]"));
}

}  // namespace
}  // namespace attest
