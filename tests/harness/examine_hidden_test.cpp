// What is less than a failure, and what is no number: padding, what is hidden, what lies beyond the
// caps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "cases/case.h"
#include "spec/clause.h"
#include "spec/feature.h"
#include "tests/harness/examine_on_a_mock.h"
#include "tests/harness/plain_kernel.h"

namespace attest {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Return;

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
    // The kernel here takes nothing that is stored.
    if (c.hidden == Hidden::plain || c.problem.stored.any()) continue;
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
  float value = std::nanf("");
  ON_CALL(mock_, backward).WillByDefault([&](auto& p, auto& in, auto& out, auto& c) {
    plain::backward(p, in, out, c);
    const bool finite =
        std::all_of(floats(in.q), floats(in.q) + 6, [](float x) { return std::isfinite(x); });
    for (const std::string& tensor : {wrong, also}) {
      if (finite) break;
      if (tensor == "dK") floats(out.dk)[3] = std::nanf("");
      if (tensor == "dQ") floats(out.dq)[3] = std::nanf("");  // of the other head
      if (tensor == "dSink") plain::element<float>(out.dsink, 0, 1, 0, 0) = value;
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
  value = 1e3f;  // a sum that is wrong, and a number
  v = verdict();
  EXPECT_EQ(v.outcome, Outcome::fail);
  EXPECT_EQ(v.clauses.front(), "SINK-2");
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

}  // namespace
}  // namespace attest
