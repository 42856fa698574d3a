#include "harness/run/examine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "cases/case.h"
#include "harness/process/in_process.h"
#include "spec/feature.h"
#include "spec/pattern.h"
#include "tests/harness/examine_on_a_mock.h"
#include "tests/harness/plain_kernel.h"

namespace attest {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Invoke;
using testing::NiceMock;
using testing::Return;

TEST_F(ExamineTest, OfAnExcerptOnlyItsGroupsAreCompared) {
  test_case_.problem.query_len = 100;  // 13 groups of 8
  test_case_.excerpt = 4;
  const std::vector<Index> groups = excerpt_of(test_case_)->query_groups[0];
  ASSERT_EQ(groups.size(), 4u);
  EXPECT_EQ(groups.front(), 0);
  EXPECT_EQ(groups.back(), 12);
  EXPECT_EQ(excerpt_of(test_case_)->key_groups[0], std::vector<Index>{0});
  for (Index group = 0; group < 13; ++group) {
    EXPECT_CALL(mock_, forward)
        .WillRepeatedly(
            Invoke([&](const auto& p, const auto& in, const auto& out, const auto& context) {
              right_forward(p, in, out, context);
              floats(out.o)[8 * group] += 1;
              return ATTEST_OK;
            }));
    const bool compared = std::find(groups.begin(), groups.end(), group) != groups.end();
    EXPECT_EQ(verdict().outcome, compared ? Outcome::fail : Outcome::pass) << group;
  }
}

TEST_F(ExamineTest, RightKernelPassesWithEvidenceForEachTensor) {
  const Verdict v = verdict();
  EXPECT_EQ(v.outcome, Outcome::pass) << v.message;
  EXPECT_EQ(v.tensors.at(TensorName::o).compared, 3);
  EXPECT_LE(v.tensors.at(TensorName::lse).max_ratio, 1);
}

TEST_F(ExamineTest, BackwardIsJudgedToo) {
  test_case_.problem.backward = true;
  description_.features = {"lse", "backward"};
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
  EXPECT_THAT(v.tensors.at(TensorName::o).worst, ElementsAre(0, 0, 2, 0));
  EXPECT_GT(v.tensors.at(TensorName::o).max_ratio, 1);
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
  test_case_.clauses = {"HIDE-3"};  // and it is no lesser matter in a case about a recommendation
  const Verdict v = verdict();
  EXPECT_EQ(v.outcome, Outcome::fail);
  EXPECT_EQ(v.reason, "nondeterministic");
  EXPECT_EQ(v.clauses.front(), "DET-1");
}

TEST_F(ExamineTest, WhatIsNotDeclaredIsNotAsked) {
  test_case_.problem.mask = Mask::causal(Anchor::top_left);
  EXPECT_CALL(mock_, supports).Times(0);
  EXPECT_CALL(mock_, forward).Times(0);
  const Verdict v = verdict();
  EXPECT_EQ(v.outcome, Outcome::unsupported);
  EXPECT_EQ(v.reason, "undeclared");
  EXPECT_EQ(v.message, "causal");
  EXPECT_FALSE(v.clauses.empty());
}

TEST_F(ExamineTest, WhatIsTooLongAloneIsDemandedByNoProfile) {
  test_case_.problem.key_len = kLong + 1;
  EXPECT_CALL(mock_, supports).Times(0);
  const Verdict v = verdict();
  EXPECT_EQ(v.outcome, Outcome::unsupported);
  EXPECT_TRUE(v.clauses.empty());
}

TEST_F(ExamineTest, RefusalOfTheDeclaredIsWrong) {
  EXPECT_CALL(mock_, supports).WillOnce(Return("too tired"));
  const Verdict v = verdict();
  EXPECT_EQ(v.reason, "wrong_refusal");
  EXPECT_EQ(v.clauses.front(), "CALL-1");
}

TEST_F(ExamineTest, RefusalWithoutAReasonIsWrong) {
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

TEST_F(ExamineTest, WorkspaceEndsWhereItEndsAndBeginsWhereItBegins) {
  mock_.workspace_bytes = 100;
  for (const int beyond : {-1, 100}) {
    EXPECT_CALL(mock_, forward).WillOnce([&](auto& p, auto& in, auto& out, const auto& c) {
      static_cast<char*>(c.workspace)[beyond] = 1;
      return right_forward(p, in, out, c);
    });
    const Verdict v = verdict();
    EXPECT_EQ(v.reason, "guard");
    EXPECT_THAT(v.message, HasSubstr(beyond < 0 ? "1 bytes before the start of its workspace"
                                                : "1 bytes behind the end of its workspace"));
    testing::Mock::VerifyAndClearExpectations(&mock_);
  }
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
  EXPECT_EQ(v.tensors.count(TensorName::lse), 0u);
  test_case_.clauses = {"LSE-1"};
  EXPECT_EQ(verdict().outcome, Outcome::unsupported);
}

TEST_F(ExamineTest, BackwardGetsWhatForwardReturned) {
  test_case_.problem.backward = true;
  description_.features = {"lse", "backward"};
  EXPECT_CALL(mock_, backward).Times(2).WillRepeatedly([](auto& p, auto& in, auto& out, auto& c) {
    EXPECT_EQ(floats(in.o)[0], floats(in.v)[0]);
    EXPECT_EQ(floats(in.lse)[1], 0.5f * floats(in.q)[1] * floats(in.k)[0]);
    return right_backward(p, in, out, c);
  });
  EXPECT_EQ(verdict().outcome, Outcome::pass);
}

// ---- What is less than a failure
// -----------------------------------------------------------------

TEST_F(ExamineTest, MissedRecommendationIsAWarningAndWhateverElseIsWrongFailsStill) {
  test_case_.clauses = {"HIDE-3", "MASK-1"};
  float fault = 1;
  bool strays = false;
  ON_CALL(mock_, forward).WillByDefault([&](auto& p, auto& in, auto& out, auto& c) {
    right_forward(p, in, out, c);
    floats(out.o)[1] += fault;
    if (strays) static_cast<std::byte*>(out.o.data)[-1] ^= std::byte{1};
    return ATTEST_OK;
  });
  Verdict v = verdict();
  EXPECT_EQ(v.outcome, Outcome::warn);
  EXPECT_EQ(v.reason, "bound");
  EXPECT_EQ(v.clauses.front(), "HIDE-3");
  EXPECT_GT(v.tensors.at(TensorName::o).max_ratio, 1);
  fault = std::nanf("");
  v = verdict();
  EXPECT_EQ(v.outcome, Outcome::warn);
  EXPECT_EQ(v.reason, "nonfinite");
  strays = true;
  EXPECT_EQ(verdict().outcome, Outcome::fail);
  strays = false;
  test_case_.clauses = {"MASK-1", "HIDE-3"};
  EXPECT_EQ(verdict().outcome, Outcome::fail);
}

TEST_F(ExamineTest, WindowsAreToldInTheTesteesNumbers) {
  description_.features = known_features();
  description_.dialect.window = {.left_exclusive = true, .unbounded = -1};
  test_case_.problem.mask = Mask::window(5, kUnbounded, Anchor::top_left);
  std::int64_t left = 0, right = 0;
  ON_CALL(mock_, forward).WillByDefault([&](auto& p, auto& in, auto& out, auto& c) {
    left = p.mask[0].left;
    right = p.mask[0].right;
    return right_forward(p, in, out, c);
  });
  EXPECT_EQ(verdict().outcome, Outcome::pass) << verdict().message;
  EXPECT_EQ(left, 6);
  EXPECT_EQ(right, -1);
  description_.dialect.window = {.centred = true};
  const Verdict v = verdict();
  EXPECT_EQ(v.outcome, Outcome::unsupported);
  EXPECT_EQ(v.reason, "limits");
  EXPECT_THAT(v.message, HasSubstr("cannot be said in windows said by their width"));
}

// ---- What a testee cannot see before it is called
// -----------------------------------------------

// A kernel for dense BHSD alone, which cannot see in `supports` how tensors lie.
class DenseOnlyTest : public ExamineTest {
 protected:
  DenseOnlyTest() {
    description_.features = known_features();
    for (const char* feature : {"strides", "expanded", "transposed"}) {
      std::erase(description_.features, feature);
    }
    ON_CALL(mock_, forward).WillByDefault([](auto& p, auto& in, auto& out, auto& c) {
      const bool dense = is_dense(in.q) && is_dense(in.k) && is_dense(in.v) && is_dense(out.o);
      return dense ? plain::forward(p, in, out, c) : ATTEST_ERROR;
    });
    ON_CALL(mock_, backward).WillByDefault([](auto& p, auto& in, auto& out, auto& c) {
      const bool dense = is_dense(in.q) && is_dense(in.k) && is_dense(in.v) && is_dense(in.o) &&
                         is_dense(in.d_o) && is_dense(out.dq) && is_dense(out.dk) &&
                         is_dense(out.dv) && (!p.has_bias || is_dense(in.bias));
      return dense ? plain::backward(p, in, out, c) : ATTEST_ERROR;
    });
  }

  static bool is_dense(const attest_tensor& t) {
    std::int64_t step = 1;
    for (int axis = 3; axis >= 0; --axis) {
      if (t.shape[axis] > 1 && t.stride[axis] != step) return false;
      step *= t.shape[axis];
    }
    return true;
  }
};

TEST_F(DenseOnlyTest, IsNeverAskedForOtherLayouts) {
  test_case_.problem.layouts.k = Layout::parse("bshd gap=3");
  EXPECT_CALL(mock_, supports).Times(0);
  EXPECT_CALL(mock_, forward).Times(0);
  Verdict v = verdict();
  EXPECT_EQ(v.outcome, Outcome::unsupported);
  EXPECT_EQ(v.message, "strides");
  EXPECT_FALSE(v.clauses.empty());  // profiles demand what they demand
  description_.features.push_back("strides");
  test_case_.problem.layouts.k = Layout::parse("bhds");
  EXPECT_EQ(verdict().message, "transposed");
  test_case_.problem.layouts.k = Layout::parse("bhsd expand=h");
  EXPECT_EQ(verdict().message, "expanded");
}

TEST_F(DenseOnlyTest, FailsNoCaseOfLayouts) {
  std::map<Outcome, Index> outcomes;
  for (const Case& c : load_cases(ATTEST_CASES_DIR)) {
    if (c.problem.dtype != DType::f32 || !matches(c.id, "layout/**")) continue;
    test_case_ = c;
    const Verdict v = verdict();
    EXPECT_FALSE(is_fault(v.outcome)) << c.id << ": " << v.message;
    ++outcomes[v.outcome];
  }
  EXPECT_GT(outcomes[Outcome::pass], 0);
  EXPECT_GT(outcomes[Outcome::unsupported], 30);
}

// Without LSE nobody knows what a sink takes of a row: what rests on that is not asked.
TEST_F(ExamineTest, NoLawIsInconclusiveForWhoHasSinksButNoLse) {
  description_.features = known_features();
  std::erase(description_.features, "lse");
  ON_CALL(mock_, forward).WillByDefault(plain::forward);
  ON_CALL(mock_, backward).WillByDefault(plain::backward);
  std::map<Outcome, Index> outcomes;
  for (const Case& c : load_cases(ATTEST_CASES_DIR)) {
    if (c.problem.dtype != DType::f32 || !c.problem.sink || !matches(c.id, "laws/**")) continue;
    if (c.excerpt > 0) continue;
    test_case_ = c;
    const Verdict v = verdict();
    EXPECT_TRUE(v.outcome == Outcome::pass || v.outcome == Outcome::unsupported)
        << c.id << ": " << v.message;
    // No profile demands what is not promised.
    EXPECT_EQ(v.clauses.empty(), v.outcome == Outcome::unsupported) << c.id << ": " << v.message;
    ++outcomes[v.outcome];
  }
  EXPECT_GT(outcomes[Outcome::pass], 3);
  EXPECT_GT(outcomes[Outcome::unsupported], 3);
}

// ---- What happens to a process, through a mock of the border ----------------------------------

class MockExecutor : public Executor {
 public:
  MOCK_METHOD(Reply, execute, (nlohmann::json request), (override));
  MOCK_METHOD(Arena&, arena, (std::size_t bytes), (override));
  MOCK_METHOD(Reply, settle, (), (override));
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
  EXPECT_CALL(executor, settle).WillOnce(Return(Reply{.body = {{"status", "ok"}}}));
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

TEST_F(ExamineTest, SecondReplyAfterTheLastCallIsThisCasesOwn) {
  Arena arena(1 << 20);
  NiceMock<MockExecutor> executor;
  ON_CALL(executor, arena).WillByDefault(testing::ReturnRef(arena));
  ON_CALL(executor, execute)
      .WillByDefault(Return(Reply{.body = {{"status", "refused"}, {"message", "no causal"}}}));
  ON_CALL(executor, settle)
      .WillByDefault(Return(Reply{.kind = Reply::Kind::protocol_error, .message = "twice"}));
  test_case_.problem.mask = Mask::causal(Anchor::top_left);
  PreparedCase prepared(test_case_, 1);
  const Verdict v = examine(prepared, description_, "mock", executor, 1).verdict;
  EXPECT_EQ(v.outcome, Outcome::protocol_error);
  EXPECT_THAT(v.message, HasSubstr("afterwards: twice"));
}

}  // namespace
}  // namespace attest
