#include "harness/examine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "harness/in_process.h"
#include "tests/harness/mock_plugin.h"

namespace attest {
namespace {

using testing::_;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Invoke;
using testing::NiceMock;
using testing::Return;

float* floats(const attest_tensor& tensor) { return static_cast<float*>(tensor.data); }

// Three queries and one key: attention is the value itself, and LSE the score.
attest_status right_forward(const attest_problem& p, const attest_inputs& in,
                            const attest_outputs& out, const attest_context&) {
  for (Index i = 0; i < p.query_len; ++i) {
    floats(out.o)[i] = floats(in.v)[0];
    floats(out.lse)[i] = static_cast<float>(p.scale) * floats(in.q)[i] * floats(in.k)[0];
  }
  return ATTEST_OK;
}

// P = 1 whatever the scores are, so that dQ = dK = 0 and dV = sum of dO.
attest_status right_backward(const attest_problem& p, const attest_inputs& in,
                             const attest_outputs& out, const attest_context&) {
  floats(out.dk)[0] = floats(out.dv)[0] = 0;
  for (Index i = 0; i < p.query_len; ++i) {
    floats(out.dq)[i] = 0;
    floats(out.dv)[0] += floats(in.d_o)[i];
  }
  return ATTEST_OK;
}

class ExamineTest : public testing::Test {
 protected:
  ExamineTest() {
    test_case_.id = "test/examine/dtype=f32/data=normal/s=1";
    test_case_.clauses = {"MASK-1", "LSE-1"};
    test_case_.data = "normal";
    test_case_.problem = {.dtype = DType::f32, .query_len = 3, .scale = 0.5};
    description_ = {.name = "mock",
                    .version = "1",
                    .vendor = "test",
                    .profiles = {},
                    .dtypes = {DType::f32},
                    .features = {"lse"},
                    .alignment = 4,
                    .arithmetic = {},
                    .declared_arithmetic = {}};
    ON_CALL(mock_, forward).WillByDefault(Invoke(right_forward));
    ON_CALL(mock_, backward).WillByDefault(Invoke(right_backward));
  }

  Verdict verdict() {
    PreparedCase prepared(test_case_, 1);
    return examine(prepared, description_, "mock", executor_, 1).verdict;
  }

  Case test_case_;
  Description description_;
  NiceMock<MockPlugin> mock_;
  InProcessExecutor executor_{mock_.plugin()};
};

TEST_F(ExamineTest, RightKernelPassesWithEvidenceForEachTensor) {
  const Verdict v = verdict();
  EXPECT_EQ(v.outcome, Outcome::pass) << v.message;
  EXPECT_EQ(v.tensors.at("O").compared, 3);
  EXPECT_LE(v.tensors.at("LSE").max_ratio, 1);
}

TEST_F(ExamineTest, BackwardIsJudgedToo) {
  test_case_.problem.backward = true;
  EXPECT_CALL(mock_, backward).Times(2);
  const Verdict v = verdict();
  EXPECT_EQ(v.outcome, Outcome::pass) << v.message;
  EXPECT_EQ(v.tensors.size(), 5u);
}

TEST_F(ExamineTest, EveryCaseIsRunFlushWithBothGuards) {
  std::vector<std::uintptr_t> ends;
  EXPECT_CALL(mock_, forward).Times(2).WillRepeatedly([&](auto& p, auto& in, auto& out, auto& c) {
    ends.push_back((reinterpret_cast<std::uintptr_t>(out.o.data) + out.o.capacity_bytes) % 4096);
    return right_forward(p, in, out, c);
  });
  verdict();
  EXPECT_THAT(ends, ElementsAre(0, 12));
}

TEST_F(ExamineTest, WrongValueFailsByItsBoundWithTheWorstElement) {
  EXPECT_CALL(mock_, forward).WillRepeatedly([](auto& p, auto& in, auto& out, auto& c) {
    right_forward(p, in, out, c);
    floats(out.o)[2] *= 1.001f;
    return ATTEST_OK;
  });
  const Verdict v = verdict();
  EXPECT_EQ(v.outcome, Outcome::fail);
  EXPECT_EQ(v.reason, "bound");
  EXPECT_THAT(v.tensors.at("O").worst, ElementsAre(0, 0, 2, 0));
  EXPECT_GT(v.tensors.at("O").max_ratio, 1);
  EXPECT_THAT(v.message, HasSubstr("O[0,0,2,0]"));
}

TEST_F(ExamineTest, WrongLseFailsThoughOIsRight) {
  EXPECT_CALL(mock_, forward).WillRepeatedly([](auto& p, auto& in, auto& out, auto& c) {
    right_forward(p, in, out, c);
    floats(out.lse)[0] += 0.01f;
    return ATTEST_OK;
  });
  EXPECT_THAT(verdict().message, HasSubstr("LSE[0,0,0,0]"));
}

TEST_F(ExamineTest, WrongInOnePlacementOnlyFails) {
  EXPECT_CALL(mock_, forward)
      .Times(2)
      .WillOnce(Invoke(right_forward))
      .WillOnce([](auto& p, auto& in, auto& out, auto& c) {
        right_forward(p, in, out, c);
        floats(out.o)[0] += 1;
        return ATTEST_OK;
      });
  EXPECT_EQ(verdict().reason, "bound");
}

TEST_F(ExamineTest, NanIsNonfinite) {
  EXPECT_CALL(mock_, forward).WillRepeatedly([](auto& p, auto& in, auto& out, auto& c) {
    right_forward(p, in, out, c);
    floats(out.o)[1] = std::nanf("");
    return ATTEST_OK;
  });
  EXPECT_EQ(verdict().reason, "nonfinite");
}

TEST_F(ExamineTest, UnwrittenElementIsTold) {
  EXPECT_CALL(mock_, forward).WillRepeatedly([](auto& p, auto& in, auto& out, auto& c) {
    const float before = floats(out.o)[1];
    right_forward(p, in, out, c);
    std::memcpy(floats(out.o) + 1, &before, sizeof before);
    return ATTEST_OK;
  });
  const Verdict v = verdict();
  EXPECT_EQ(v.reason, "unwritten");
  EXPECT_EQ(v.clauses.front(), "SAFE-3");
  EXPECT_THAT(v.message, HasSubstr("O[0,0,1,0]"));
}

TEST_F(ExamineTest, WriteBesideAnOutputIsTold) {
  EXPECT_CALL(mock_, forward).WillRepeatedly([](auto& p, auto& in, auto& out, auto& c) {
    right_forward(p, in, out, c);
    static_cast<std::byte*>(out.o.data)[-1] ^= std::byte{1};
    return ATTEST_OK;
  });
  const Verdict v = verdict();
  EXPECT_EQ(v.reason, "guard");
  EXPECT_EQ(v.clauses.front(), "SAFE-1");
}

TEST_F(ExamineTest, ChangedInputIsTold) {
  EXPECT_CALL(mock_, forward).WillRepeatedly([](auto& p, auto& in, auto& out, auto& c) {
    right_forward(p, in, out, c);
    floats(in.k)[0] += 1;
    return ATTEST_OK;
  });
  const Verdict v = verdict();
  EXPECT_EQ(v.reason, "input_mutated");
  EXPECT_EQ(v.clauses.front(), "SAFE-2");
}

TEST_F(ExamineTest, OtherBitsInAnEqualCallFailOnlyWhereDeterminismIsDeclared) {
  int calls = 0;
  ON_CALL(mock_, forward).WillByDefault([&](auto& p, auto& in, auto& out, auto& c) {
    right_forward(p, in, out, c);
    floats(out.lse)[0] = std::nextafter(floats(out.lse)[0], calls++ % 2 ? 1e30f : -1e30f);
    if (calls > 2) floats(out.lse)[0] = std::nextafter(floats(out.lse)[0], 1e30f);
    return ATTEST_OK;
  });
  EXPECT_EQ(verdict().outcome, Outcome::pass);
  calls = 0;
  Arithmetic arithmetic = loosest(DType::f32);
  arithmetic.deterministic = true;
  description_.arithmetic = {{DType::f32, arithmetic}};
  const Verdict v = verdict();
  EXPECT_EQ(v.reason, "nondeterministic");
  EXPECT_EQ(v.clauses.front(), "DET-1");
}

TEST_F(ExamineTest, RefusalOfTheUndeclaredIsUnsupportedWithItsReason) {
  test_case_.problem.mask = Mask::causal(Anchor::top_left);
  EXPECT_CALL(mock_, supports).WillOnce(Return("no causal masks here"));
  EXPECT_CALL(mock_, forward).Times(0);
  const Verdict v = verdict();
  EXPECT_EQ(v.outcome, Outcome::unsupported);
  EXPECT_EQ(v.message, "no causal masks here");
}

TEST_F(ExamineTest, RefusalOfTheDeclaredIsWrong) {
  EXPECT_CALL(mock_, supports).WillOnce(Return("too tired"));
  const Verdict v = verdict();
  EXPECT_EQ(v.reason, "wrong_refusal");
  EXPECT_EQ(v.clauses.front(), "CALL-1");
}

TEST_F(ExamineTest, RefusalWithoutAReasonIsWrong) {
  test_case_.problem.mask = Mask::causal(Anchor::top_left);
  EXPECT_CALL(mock_, supports).WillOnce(Return(""));
  EXPECT_THAT(verdict().message, HasSubstr("without a reason"));
}

TEST_F(ExamineTest, BadStatusIsAWrongRefusal) {
  EXPECT_CALL(mock_, forward).WillOnce([](auto&, auto&, auto&, const attest_context& context) {
    std::snprintf(context.message, context.message_bytes, "out of registers");
    return ATTEST_ERROR;
  });
  const Verdict v = verdict();
  EXPECT_EQ(v.reason, "wrong_refusal");
  EXPECT_THAT(v.message, HasSubstr("out of registers"));
}

TEST_F(ExamineTest, WorkspaceIsAsLargeAsAskedForAlignedAndNotZero) {
  mock_.workspace_bytes = 1000;
  EXPECT_CALL(mock_, forward)
      .Times(2)
      .WillRepeatedly([](auto& p, auto& in, auto& out, const attest_context& c) {
        EXPECT_EQ(c.workspace_bytes, 1000u);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(c.workspace) % 512, 0u);
        EXPECT_TRUE(std::isnan(*static_cast<float*>(c.workspace)));
        return right_forward(p, in, out, c);
      });
  EXPECT_EQ(verdict().outcome, Outcome::pass);
}

TEST_F(ExamineTest, TesteeWithoutLseIsJudgedOnOAloneAndProvesNothingAboutLse) {
  description_.features = {};
  EXPECT_CALL(mock_, forward).WillRepeatedly([](auto& p, auto& in, auto& out, auto&) {
    EXPECT_EQ(out.lse.data, nullptr);
    for (Index i = 0; i < p.query_len; ++i) floats(out.o)[i] = floats(in.v)[0];
    return ATTEST_OK;
  });
  const Verdict v = verdict();
  EXPECT_EQ(v.outcome, Outcome::pass) << v.message;
  EXPECT_THAT(v.clauses, ElementsAre("MASK-1"));
  EXPECT_EQ(v.tensors.count("LSE"), 0u);
  test_case_.clauses = {"LSE-1"};
  EXPECT_EQ(verdict().outcome, Outcome::unsupported);
}

TEST_F(ExamineTest, BackwardGetsWhatForwardReturned) {
  test_case_.problem.backward = true;
  EXPECT_CALL(mock_, backward).Times(2).WillRepeatedly([](auto& p, auto& in, auto& out, auto& c) {
    EXPECT_EQ(floats(in.o)[0], floats(in.v)[0]);
    EXPECT_EQ(floats(in.lse)[1], 0.5f * floats(in.q)[1] * floats(in.k)[0]);
    return right_backward(p, in, out, c);
  });
  EXPECT_EQ(verdict().outcome, Outcome::pass);
}

// ---- What happens to a process, through a mock of the border ----------------------------------

class MockExecutor : public Executor {
 public:
  MOCK_METHOD(Reply, execute, (nlohmann::json request), (override));
  MOCK_METHOD(Arena&, arena, (std::size_t bytes), (override));
};

struct Ending {
  Reply::Kind kind;
  Outcome outcome;
  const char* reason;
};

class EndingTest : public ExamineTest, public testing::WithParamInterface<Ending> {};

TEST_P(EndingTest, OfAWorkerBecomesItsOutcome) {
  Arena arena(1 << 20);
  MockExecutor executor;
  ON_CALL(executor, arena).WillByDefault(testing::ReturnRef(arena));
  EXPECT_CALL(executor, arena).Times(testing::AnyNumber());
  EXPECT_CALL(executor, execute)
      .WillOnce(Return(Reply{.body = {{"status", "ok"}}}))
      .WillOnce(
          Return(Reply{.kind = GetParam().kind, .message = "the story", .captured = "last words"}));
  PreparedCase prepared(test_case_, 1);
  const Verdict v = examine(prepared, description_, "mock", executor, 1).verdict;
  EXPECT_EQ(v.outcome, GetParam().outcome);
  EXPECT_EQ(v.reason, GetParam().reason);
  EXPECT_THAT(v.message, HasSubstr("forward: the story"));
  EXPECT_EQ(v.captured, "last words");
}

INSTANTIATE_TEST_SUITE_P(
    AllKinds, EndingTest,
    testing::Values(Ending{Reply::Kind::crashed, Outcome::crash, ""},
                    Ending{Reply::Kind::timed_out, Outcome::timeout, ""},
                    Ending{Reply::Kind::protocol_error, Outcome::protocol_error, ""},
                    Ending{Reply::Kind::out_of_memory, Outcome::fail, "memory"}));

}  // namespace
}  // namespace attest
