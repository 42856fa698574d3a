// Testees that say otherwise than the standard.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "spec/feature.h"
#include "tests/harness/examine_on_a_mock.h"
#include "tests/harness/plain_kernel.h"

namespace attest {
namespace {

using testing::HasSubstr;

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
  const Verdict unwritten = verdict();
  EXPECT_EQ(unwritten.reason, "unwritten");
  EXPECT_THAT(unwritten.message, HasSubstr("sum[0,0,0,0] was never written"));
}

// A testee whose forward calls kill it.
class Dying : public InProcessExecutor {
 public:
  using InProcessExecutor::InProcessExecutor;
  Reply execute(nlohmann::json request) override {
    if (request["op"] != "forward") return InProcessExecutor::execute(std::move(request));
    return {.kind = Reply::Kind::crashed, .message = of};
  }

  std::string of = "killed by signal 11 (Segmentation fault)";
};

TEST_F(LseFormTest, WhoDiesIsToldWhereThereIsNoLse) {
  Dying executor(mock_.plugin());
  const auto message = [&] {
    PreparedCase prepared(test_case_, 1);
    return examine(prepared, description_, "mock", executor, 1).verdict.message;
  };
  const std::string died = "forward: killed by signal 11 (Segmentation fault)";
  EXPECT_EQ(message(), died);
  declare({.base_2 = true});
  EXPECT_EQ(message(), died);
  declare({.apart = true});
  EXPECT_EQ(message(), died +
                           " (lse is absent, its data NULL: as declared, maximum and sum stand in "
                           "its place)");
  declare({});
  description_.features = {};
  EXPECT_EQ(message(), died + " (lse is absent, its data NULL: the feature is not declared)");
  executor.of = "killed by signal 6 (Aborted)";
  EXPECT_EQ(message(), "forward: killed by signal 6 (Aborted)") << "not for the lack of an LSE";
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

}  // namespace
}  // namespace attest
