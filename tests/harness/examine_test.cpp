#include "harness/run/examine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "cases/case.h"
#include "harness/process/in_process.h"
#include "spec/clause.h"
#include "spec/pattern.h"
#include "tests/harness/mock_plugin.h"
#include "tests/harness/on_a_mock.h"
#include "tests/harness/plain_kernel.h"

namespace attest {
namespace {

using testing::_;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Invoke;
using testing::NiceMock;
using testing::Return;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

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

class ExamineTest : public testing::Test, protected OnAMock {
 protected:
  ExamineTest()
      : OnAMock({"lse"}, "test/examine/dtype=f32/data=normal/s=1", {"MASK-1", "LSE-1"},
                {.dtype = DType::f32, .query_len = 3, .scale = 0.5}) {
    ON_CALL(mock_, forward).WillByDefault(Invoke(right_forward));
    ON_CALL(mock_, backward).WillByDefault(Invoke(right_backward));
  }
};

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

// Multiplies what is hidden by 0 instead of leaving it out: 0 times NaN is NaN (HIDE-3, FINITE-2).
class LeakTest : public ExamineTest {
 protected:
  LeakTest() {
    description_.features = known_features();
    ON_CALL(mock_, forward).WillByDefault([this](auto& p, auto& in, auto& out, auto& c) {
      plain::forward(p, in, out, c);
      for (Index n = 0; n < Index(out.o.capacity_bytes / sizeof(float)); ++n) spoil(p, in, out, n);
      return ATTEST_OK;
    });
    ON_CALL(mock_, backward).WillByDefault(plain::backward);
  }

  // Also in rows that nothing hidden could reach.
  std::function<void(const attest_problem&, const attest_inputs&, const attest_outputs&, Index)>
      spoil = [](const auto&, const auto&, const auto&, Index) {};

  static void scale_o(const attest_problem&, const attest_inputs&, const attest_outputs& out,
                      Index n) {
    floats(out.o)[n] *= 1.01f;
  }
};

TEST_F(LeakTest, IsAWarningAndWhateverFiniteNumbersShowFails) {
  test_case_.clauses = {"HIDE-3", "MASK-2"};
  test_case_.problem.key_len = 5;  // the last two are seen by nobody
  test_case_.problem.mask = Mask::causal(Anchor::top_left);
  test_case_.hidden = Hidden::nan_masked;
  Verdict v = verdict();
  EXPECT_EQ(v.outcome, Outcome::warn) << v.message;
  EXPECT_EQ(v.reason, "nonfinite");
  EXPECT_EQ(v.clauses.front(), "HIDE-3");
  spoil = scale_o;
  v = verdict();
  EXPECT_EQ(v.outcome, Outcome::fail);
  EXPECT_EQ(v.reason, "bound");
  EXPECT_THAT(v.clauses, ElementsAre("MASK-2", "HIDE-3"));
  EXPECT_THAT(v.message, HasSubstr("with finite numbers"));
  // A weight that only huge numbers show (HIDE-1).
  spoil = [](const auto&, const auto& in, const auto& out, Index n) {
    floats(out.o)[n] += 1e-30f * floats(in.v)[4];
  };
  EXPECT_EQ(verdict().outcome, Outcome::fail);
  // A crash there is no lesser matter than here.
  spoil = [](const auto&, const auto& in, const auto& out, Index) {
    if (std::isfinite(floats(in.v)[4])) static_cast<std::byte*>(out.o.data)[-1] ^= std::byte{1};
  };
  EXPECT_EQ(verdict().reason, "guard");
}

TEST_F(LeakTest, IsAWarningInEveryCaseOfTheSuiteAndAWrongKernelFailsThere) {
  const std::vector<Case> all = load_cases(ATTEST_CASES_DIR);
  Index cases = 0, warnings = 0;
  for (const Case& c : all) {
    if (c.problem.dtype != DType::f32 || !is_recommended(c.clauses.front())) continue;
    if (c.hidden == Hidden::plain) continue;
    test_case_ = c;
    spoil = [](const auto&, const auto&, const auto&, Index) {};
    Verdict v = verdict();
    EXPECT_TRUE(conforms(v.outcome)) << c.id << ": " << v.message;
    warnings += v.outcome == Outcome::warn;
    spoil = scale_o;
    v = verdict();
    EXPECT_EQ(v.outcome, Outcome::fail) << c.id << ": " << v.message;
    EXPECT_FALSE(is_recommended(v.clauses.front())) << c.id;
    ++cases;
  }
  EXPECT_GT(cases, 20);
  EXPECT_GT(warnings, 10);
}

// dK and dV are sums over queries, and 0 times NaN enters them; nothing of the kind makes O, LSE,
// dQ, or dSink of another head.
TEST_F(LeakTest, OfNanInAQueryIsAWarningInSumsOverQueriesAlone) {
  test_case_.clauses = {"FINITE-3", "FINITE-1"};
  test_case_.problem = {.query_heads = 2,
                        .key_heads = 2,
                        .query_len = 3,
                        .key_len = 4,  // nobody sees the last
                        .mask = Mask::causal(Anchor::top_left),
                        .sink = true,
                        .backward = true};
  test_case_.hidden = Hidden::nan_query;
  std::string wrong, also;
  ON_CALL(mock_, backward).WillByDefault([&](auto& p, auto& in, auto& out, auto& c) {
    plain::backward(p, in, out, c);
    const bool finite =
        std::all_of(floats(in.q), floats(in.q) + 6, [](float x) { return std::isfinite(x); });
    for (const std::string& tensor : {wrong, also}) {
      if (finite) break;
      if (tensor == "dK") floats(out.dk)[3] = std::nanf("");
      if (tensor == "dQ") floats(out.dq)[3] = std::nanf("");  // of the other head
      if (tensor == "dSink") plain::element<float>(out.dsink, 0, 1, 0, 0) = std::nanf("");
    }
    return ATTEST_OK;
  });
  EXPECT_EQ(verdict().outcome, Outcome::pass);
  wrong = "dK";
  Verdict v = verdict();
  EXPECT_EQ(v.outcome, Outcome::warn) << v.message;
  EXPECT_EQ(v.clauses.front(), "FINITE-3");
  for (const char* tensor : {"dQ", "dSink"}) {
    also = tensor;
    v = verdict();
    EXPECT_EQ(v.outcome, Outcome::fail) << tensor;
    EXPECT_EQ(v.clauses.front(), "FINITE-1") << tensor;
    EXPECT_THAT(v.message, HasSubstr(tensor));
  }
}

// A kernel that hides keys by adding -inf: NaN of a query stays NaN in a row that sees no key.
TEST_F(LeakTest, WhatARowOfNanHoldsIsNotSpecifiedThoughItSeesNoKey) {
  test_case_.clauses = {"FINITE-1", "MASK-3"};
  test_case_.problem.batch = 4;
  test_case_.problem.query_len = 9;  // eight rows see no key, and most of the NaN lies there
  test_case_.problem.mask = Mask::causal(Anchor::bottom_right);
  test_case_.hidden = Hidden::nan_query;
  bool also_beside = false;
  spoil = [&](const auto&, const auto& in, const auto& out, Index n) {
    const bool bad = !std::isfinite(floats(in.q)[n]);
    if (bad) floats(out.o)[n] = floats(out.lse)[n] = std::nanf("");
    if (bad && also_beside) floats(out.o)[n > 0 ? n - 1 : 1] = std::nanf("");
  };
  const Verdict v = verdict();
  EXPECT_EQ(v.outcome, Outcome::pass) << v.message;
  also_beside = true;
  EXPECT_EQ(verdict().outcome, Outcome::fail);
}

class PaddedTest : public ExamineTest {
 protected:
  PaddedTest() {
    test_case_.problem.query_lens = {2};
    description_.features = known_features();
    ON_CALL(mock_, forward).WillByDefault([this](auto& p, auto& in, auto& out, auto& c) {
      const float o = floats(out.o)[row_], lse = floats(out.lse)[row_];
      plain::forward(p, in, out, c);
      std::memcpy(&floats(out.o)[row_], &o, sizeof o);
      std::memcpy(&floats(out.lse)[row_], &lse, sizeof lse);
      return ATTEST_OK;
    });
  }
  std::size_t row_ = 2;  // that the kernel leaves as it was
};

TEST_F(PaddedTest, RowsBeyondALengthMayBeLeftUnwrittenIfThatIsDeclared) {
  EXPECT_EQ(verdict().reason, "unwritten");
  description_.leaves_padding_unwritten = true;
  const Verdict v = verdict();
  EXPECT_EQ(v.outcome, Outcome::pass) << v.message;
  EXPECT_EQ(v.tensors.at(TensorName::o).compared, 2);
  row_ = 1;
  EXPECT_EQ(verdict().reason, "unwritten");
}

TEST_F(PaddedTest, CaseThatIsAllPaddingJudgesNothing) {
  description_.leaves_padding_unwritten = true;
  test_case_.problem.query_lens = {0};
  EXPECT_EQ(verdict().outcome, Outcome::inconclusive);
}

class BeyondCapsTest : public ExamineTest {
 protected:
  BeyondCapsTest() {
    description_.beyond_caps = {{DType::f32, "adds in f16"}};
    description_.arithmetic[DType::f32] = loosest(DType::f32);
    description_.arithmetic[DType::f32].deterministic = true;
  }
  // A kernel whose results are `fault_` times what they should be, and more of what it does wrong.
  void faulty(const std::function<void(const attest_outputs&, int call)>& more) {
    ON_CALL(mock_, forward).WillByDefault([=, this](auto& p, auto& in, auto& out, auto& c) {
      plain::forward(p, in, out, c);
      for (Index i = 0; i < p.query_len; ++i) floats(out.o)[i] *= 3;
      more(out, calls_++);
      return ATTEST_OK;
    });
  }
  int calls_ = 0;
};

TEST_F(BeyondCapsTest, NoNumberIsComparedAndNothingPasses) {
  faulty([](auto&, int) {});
  const Verdict v = verdict();
  EXPECT_EQ(v.outcome, Outcome::unsupported) << v.message;
  EXPECT_EQ(v.reason, "beyond_caps");
  EXPECT_TRUE(v.tensors.empty());
  EXPECT_EQ(v.clauses, test_case_.clauses) << "demanded, and not passed";
  test_case_.statistical = true;
  EXPECT_EQ(verdict().outcome, Outcome::unsupported);
  test_case_.statistical = false;
  test_case_.check = Check::threads;
  EXPECT_EQ(verdict().outcome, Outcome::unsupported);
  description_.beyond_caps = {{DType::bf16, "adds in f16"}};
  EXPECT_EQ(verdict().reason, "bound") << "of another format that is said";
}

TEST_F(BeyondCapsTest, WhatNeedsNoBoundIsJudgedAllTheSame) {
  faulty([](auto& out, int) { static_cast<std::byte*>(out.o.data)[-1] ^= std::byte{1}; });
  EXPECT_EQ(verdict().reason, "guard");
  faulty([](auto& out, int call) { floats(out.o)[0] += static_cast<float>(call); });
  EXPECT_EQ(verdict().reason, "nondeterministic");
  ON_CALL(mock_, forward).WillByDefault(Return(ATTEST_OK));
  EXPECT_EQ(verdict().reason, "unwritten");
  ON_CALL(mock_, supports).WillByDefault(Return("not today"));
  EXPECT_EQ(verdict().reason, "wrong_refusal");
}

TEST_F(BeyondCapsTest, HiddenKeysAreHiddenBitForBit) {
  description_.features = known_features();
  test_case_.problem = {.dtype = DType::f32, .query_len = 4, .key_len = 4, .scale = 0.5};
  test_case_.problem.mask = Mask::causal(Anchor::bottom_right);
  test_case_.laws = {"hidden_keys", "ones"};
  faulty([](auto&, int) {});
  const Verdict v = verdict();
  EXPECT_EQ(v.reason, "beyond_caps") << v.message;
  // A key that no row sees, or a later one, weighs in.
  bool leaks = true;
  ON_CALL(mock_, forward).WillByDefault([&](auto& p, auto& in, auto& out, auto& c) {
    plain::forward(p, in, out, c);
    if (leaks) floats(out.o)[1] += 1e-6f * floats(in.v)[3];
    return ATTEST_OK;
  });
  EXPECT_EQ(verdict().reason, "property:hidden_keys");
  // Of a kernel that is not deterministic there is nothing to say without a bound.
  description_.arithmetic[DType::f32].deterministic = false;
  EXPECT_EQ(verdict().reason, "beyond_caps");
}

class DialectTest : public ExamineTest {
 protected:
  DialectTest() {
    test_case_.problem.mask = Mask::causal(Anchor::bottom_right);  // rows 0 and 1 see no key
    description_.features = known_features();
    description_.dialect.empty_o = {.differs = true};  // in words
    ON_CALL(mock_, forward).WillByDefault([this](auto& p, auto& in, auto& out, auto& c) {
      plain::forward(p, in, out, c);
      floats(out.o)[0] = floats(out.o)[1] = std::nanf("");
      floats(out.o)[2] *= fault_;
      return ATTEST_OK;
    });
  }
  float fault_ = 1;
};

TEST_F(DialectTest, OfEmptyRowsIsSaidWhereAllElseIsRight) {
  const Verdict v = verdict();
  EXPECT_EQ(v.outcome, Outcome::unsupported) << v.message;
  EXPECT_EQ(v.reason, "dialect");
  EXPECT_THAT(v.message, HasSubstr("rows that see no key"));
  EXPECT_EQ(v.tensors.at(TensorName::o).compared, 1);
  EXPECT_EQ(v.tensors.at(TensorName::lse).compared, 3);
}

TEST_F(DialectTest, ExcusesNoOtherRowAndNoOtherTensor) {
  fault_ = 1.5f;
  EXPECT_EQ(verdict().reason, "bound");
  fault_ = 1;
  description_.dialect.empty_o = {};
  description_.dialect.empty_lse = {.differs = true};
  EXPECT_EQ(verdict().reason, "nonfinite");
}

TEST_F(DialectTest, IsNoMatterWhereEveryRowSeesAKey) {
  test_case_.problem.mask = Mask::full();
  fault_ = 1;
  ON_CALL(mock_, forward).WillByDefault(plain::forward);
  EXPECT_EQ(verdict().outcome, Outcome::pass);
}

TEST_F(DialectTest, WhoDeclaresANumberIsHeldToIt) {
  description_.dialect.empty_o = {};
  description_.dialect.empty_lse = {.differs = true, .value = kInfinity};
  float held = kInfinity;
  ON_CALL(mock_, forward).WillByDefault([&held](auto& p, auto& in, auto& out, auto& c) {
    plain::forward(p, in, out, c);
    floats(out.lse)[0] = floats(out.lse)[1] = held;
    return ATTEST_OK;
  });
  const Verdict right = verdict();
  EXPECT_EQ(right.reason, "dialect") << right.message;
  EXPECT_EQ(right.tensors.at(TensorName::lse).compared, 3);
  for (const float wrong : {0.0f, -kInfinity, std::nanf("")}) {
    held = wrong;
    const Verdict v = verdict();
    EXPECT_EQ(v.outcome, Outcome::fail) << wrong;
    EXPECT_EQ(v.clauses.front(), "EMPTY-5");
    EXPECT_THAT(v.message, HasSubstr("by the testee's own declaration"));
  }
}

// Three queries and one key, the LSE in a form of its own.
class LseFormTest : public ExamineTest {
 protected:
  void declare(const LseForm& form) {
    description_.dialect.lse = form;
    description_.arithmetic[DType::f32].lse = form;
  }
  float factor_ = 1;
};

TEST_F(LseFormTest, LseInBaseTwoIsJudgedInBaseEAndGivenBackAsItWas) {
  declare({.base_2 = true});
  ON_CALL(mock_, forward).WillByDefault([this](auto& p, auto& in, auto& out, auto& c) {
    right_forward(p, in, out, c);
    for (Index i = 0; i < 3; ++i) floats(out.lse)[i] *= 1.44269504f * factor_;
    return ATTEST_OK;
  });
  test_case_.problem.backward = true;
  description_.features = known_features();
  std::vector<float> given(3), wanted(3);
  ON_CALL(mock_, backward).WillByDefault([&](auto& p, auto& in, auto& out, auto& c) {
    std::copy_n(floats(in.lse), 3, given.begin());
    for (Index i = 0; i < 3; ++i) {
      wanted[std::size_t(i)] = 0.5f * floats(in.q)[i] * floats(in.k)[0] * 1.44269504f;
    }
    return right_backward(p, in, out, c);
  });
  const Verdict v = verdict();
  EXPECT_EQ(v.outcome, Outcome::pass) << v.message;
  for (std::size_t i = 0; i < 3; ++i) EXPECT_FLOAT_EQ(given[i], wanted[i]);
  factor_ = 1.0001f;
  EXPECT_EQ(verdict().reason, "bound");
  factor_ = 0.69314718f;
  EXPECT_EQ(verdict().reason, "bound") << "natural, though base 2 is declared";
}

TEST_F(LseFormTest, AMaximumAndASumAreJudgedByWhatTheyComeTo) {
  declare({.apart = true});
  bool writes_sum = true;
  ON_CALL(mock_, forward).WillByDefault([&](auto& p, auto& in, auto& out, auto&) {
    EXPECT_EQ(out.lse.data, nullptr);
    for (Index i = 0; i < 3; ++i) {
      floats(out.o)[i] = floats(in.v)[0];
      floats(out.maximum)[i] = static_cast<float>(p.scale) * floats(in.q)[i] * floats(in.k)[0] - 1;
      if (writes_sum) floats(out.sum)[i] = 2.71828183f * factor_;
    }
    return ATTEST_OK;
  });
  EXPECT_EQ(verdict().outcome, Outcome::pass) << verdict().message;
  factor_ = 1.0001f;
  EXPECT_EQ(verdict().reason, "bound");
  writes_sum = false;
  EXPECT_EQ(verdict().reason, "unwritten");
}

TEST_F(LseFormTest, BackwardReadsTheMaximumAndTheSum) {
  declare({.apart = true});
  test_case_.problem.backward = true;
  description_.features = known_features();
  ON_CALL(mock_, forward).WillByDefault([&](auto& p, auto& in, auto& out, auto&) {
    for (Index i = 0; i < 3; ++i) {
      floats(out.o)[i] = floats(in.v)[0];
      floats(out.maximum)[i] = static_cast<float>(p.scale) * floats(in.q)[i] * floats(in.k)[0];
      floats(out.sum)[i] = 1;
    }
    return ATTEST_OK;
  });
  int calls = 0;
  ON_CALL(mock_, backward).WillByDefault([&](auto& p, auto& in, auto& out, auto& c) {
    ++calls;
    EXPECT_EQ(in.lse.data, nullptr);
    for (Index i = 0; i < 3; ++i) {
      EXPECT_EQ(floats(in.maximum)[i], 0.5f * floats(in.q)[i] * floats(in.k)[0]);
      EXPECT_EQ(floats(in.sum)[i], 1);
    }
    return right_backward(p, in, out, c);
  });
  EXPECT_EQ(verdict().outcome, Outcome::pass) << verdict().message;
  EXPECT_GT(calls, 0);
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

// ---- The same bits under other circumstances
// -----------------------------------------------------

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
