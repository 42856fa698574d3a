// Ways in which test suites of attention kernels are known to pass what is broken. Each is tried
// here: whoever brings one back finds it in this file.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cases/generate.h"
#include "harness/judge/judge.h"
#include "harness/process/in_process.h"
#include "harness/run/conclude.h"
#include "harness/run/run.h"
#include "reference/working.h"
#include "reports/reports.h"
#include "tests/harness/mock_plugin.h"
#include "tests/harness/not_finite.h"
#include "tests/harness/plain_kernel.h"

namespace attest {
namespace {

using testing::_;
using testing::HasSubstr;
using testing::Invoke;
using testing::NiceMock;
using testing::Return;

// Training with a bias, so that every tensor but dSink comes back; the first two rows see no key.
Case training_case(int number = 0) {
  Case c;
  c.id = fmt::format("test/false_passes/n={}/dtype=f32/data=normal/s=1", number);
  c.clauses = {"MASK-3", "EMPTY-1"};
  c.data = "normal";
  c.problem = {.dtype = DType::f32,
               .query_heads = 2,
               .key_heads = 1,
               .query_len = 6,
               .key_len = 4,
               .head_dim = 3,
               .value_dim = 2,
               .scale = 0.5,
               .mask = Mask::causal(Anchor::bottom_right),
               .bias_shape = Shape{1, 2, 1, 4},
               .backward = true};
  return c;
}

// The same without the tensors that a mask and a bias of one row make hard to tell.
Case plain_case(int number) {
  Case c = training_case(number);
  c.clauses = {"SOFTMAX-1"};
  c.problem.mask = Mask::full();
  c.problem.bias_shape.reset();
  return c;
}

// A right kernel whose results a test spoils on their way back.
class FalsePassTest : public testing::Test {
 protected:
  using Spoil = std::function<void(const attest_outputs&)>;

  FalsePassTest() {
    testee_.name = testee_.kernel = "mock";
    testee_.spec = "./mock.so";
    testee_.description = {
        .name = "mock",
        .version = "1",
        .vendor = "test",
        .profiles = {},
        .dtypes = {DType::f32},
        .features = {"lse", "backward", "bias", "dbias", "sink", "causal", "gqa", "value-dim"},
        .alignment = 4,
        .arithmetic = {},
        .declared_arithmetic = {}};
    header_.testees = {{.name = "mock", .features = {"lse"}, .dtypes = {"f32"}}};
    header_.profiles = {kNoProfile};
    ON_CALL(mock_, forward)
        .WillByDefault(
            Invoke([this](const auto& p, const auto& in, const auto& out, const auto& c) {
              const attest_status status = plain::forward(p, in, out, c);
              if (spoil_forward_) spoil_forward_(out);
              return status;
            }));
    ON_CALL(mock_, backward)
        .WillByDefault(
            Invoke([this](const auto& p, const auto& in, const auto& out, const auto& c) {
              const attest_status status = plain::backward(p, in, out, c);
              if (spoil_backward_) spoil_backward_(out);
              return status;
            }));
  }

  Verdict verdict(const Case& test_case) {
    InProcessExecutor executor(mock_.plugin());
    return examine_safely(prepare(test_case), test_case, testee_, executor, {}).verdict;
  }

  Record run_all(const std::vector<Case>& cases, const MakeExecutor& make_executor) {
    return run(
        cases, {testee_}, header_, {.jobs = 1}, make_executor, out_, [](const VerdictRecord&) {},
        [] { return false; });
  }
  Record run_all(const std::vector<Case>& cases) {
    return run_all(cases, [this](const Testee&) {
      return std::make_unique<InProcessExecutor>(mock_.plugin());
    });
  }

  Testee testee_;
  Header header_;
  NiceMock<MockPlugin> mock_;
  Spoil spoil_forward_, spoil_backward_;
  std::ostringstream out_;
};

const std::vector<Case> kFourCases = {plain_case(1), plain_case(2), plain_case(3), plain_case(4)};

// The tensors of a call.
constexpr PerTensor<attest_tensor attest_outputs::*> kTargets = {
    {&attest_outputs::o, &attest_outputs::lse},
    {&attest_outputs::dq, &attest_outputs::dk, &attest_outputs::dv, &attest_outputs::dbias,
     &attest_outputs::dsink}};

Case case_with(TensorName target) {
  Case c = training_case();
  c.problem.sink = target == TensorName::dsink;
  return c;
}

Index elements_of(const attest_tensor& t) {
  return t.shape[0] * t.shape[1] * t.shape[2] * t.shape[3];
}

TEST_F(FalsePassTest, RightKernelPasses) {
  const Verdict v = verdict(training_case());
  EXPECT_EQ(v.outcome, Outcome::pass) << v.message;
}

// A share of elements that may be garbage; the reference compared with itself; a tensor that is
// returned and never looked at.
TEST_F(FalsePassTest, EveryElementOfEveryTensorIsCompared) {
  for (const TensorName target : kReturnedTensors) {
    Index count = 1;
    for (Index i = 0; i < count; ++i) {
      (is_gradient(target) ? spoil_backward_ : spoil_forward_) = [&](const attest_outputs& out) {
        const attest_tensor& tensor = out.*kTargets[target];
        count = elements_of(tensor);
        float& x = static_cast<float*>(tensor.data)[i];
        x = std::isinf(x) ? 0 : x + 0.01f;
      };
      EXPECT_EQ(verdict(case_with(target)).outcome, Outcome::fail) << name(target) << " " << i;
    }
    EXPECT_GT(count, 1) << name(target);
    spoil_forward_ = spoil_backward_ = {};
  }
}

// fabs(error) > tolerance is false of NaN; and some count mismatches in just that way.
TEST_F(FalsePassTest, NanIsNoSmallError) {
  for (const TensorName target : kReturnedTensors) {
    (is_gradient(target) ? spoil_backward_ : spoil_forward_) = [&](const attest_outputs& out) {
      const attest_tensor& tensor = out.*kTargets[target];
      static_cast<float*>(tensor.data)[elements_of(tensor) - 1] = kNan;
    };
    const Verdict v = verdict(case_with(target));
    EXPECT_EQ(v.outcome, Outcome::fail) << name(target);
    EXPECT_EQ(v.reason, "nonfinite") << name(target);
    spoil_forward_ = spoil_backward_ = {};
  }
}

// NaN and Inf set to 0 on both sides first.
TEST_F(FalsePassTest, WhatIsNotFiniteIsNotSetToZeroBeforeItIsCompared) {
  const auto lse_of_first_row = [&](float value) {  // which sees no key: -inf
    spoil_forward_ = [value](const attest_outputs& out) {
      static_cast<float*>(out.lse.data)[0] = value;
    };
    return verdict(training_case()).outcome;
  };
  EXPECT_EQ(lse_of_first_row(-kInfinity), Outcome::pass);
  for (const float wrong : {kNan, kInfinity, 0.0}) {
    EXPECT_EQ(lse_of_first_row(wrong), Outcome::fail) << wrong;
  }
  for (const float wrong : {kNan, kInfinity, -kInfinity}) {
    spoil_forward_ = [wrong](const attest_outputs& out) {
      static_cast<float*>(out.o.data)[0] = wrong;  // exactly 0
    };
    EXPECT_EQ(verdict(training_case()).outcome, Outcome::fail) << wrong;
  }
}

// ---- Tolerances --------------------------------------------------------------------------------

// Whether zeros are among what the bounds admit.
bool admits_zeros(const Expected& expected, DType dtype) {
  const std::vector<std::uint64_t> zeros(expected.value.size(), 0);
  const Shape shape = {1, 1, 1, static_cast<Index>(zeros.size())};
  return judge(zeros, dtype, shape, expected, Rounding::faithful).passed;
}

// Tries a case in each format, one of its inputs ever smaller, down to what can be told from zero.
void try_small(Case c, Values Inputs::*small,
               const std::function<void(const Problem&, const Inputs&)>& check) {
  for (const DType dtype : kDTypes) {
    c.problem.dtype = dtype;
    const std::vector<double> factors = dtype == DType::f16
                                            ? std::vector<double>{1, 1e-1, 1e-2}
                                            : std::vector<double>{1, 1e-4, 1e-9, 1e-18};
    for (const double factor : factors) {
      SCOPED_TRACE(fmt::format("{} times {}", name(dtype), factor));
      Inputs inputs = generate(c);
      for (double& x : (inputs.*small).data) x = round_to(dtype, x * factor);
      check(c.problem, inputs);
    }
  }
}

// Gradients of a mean are as small as an absolute tolerance.
TEST_F(FalsePassTest, ZeroGradientsAreNoneHoweverSmallTheLoss) {
  Case c = training_case();
  c.problem.sink = true;
  try_small(c, &Inputs::d_o, [](const Problem& p, const Inputs& inputs) {
    const BackwardExpected e = expect_backward(p, inputs, loosest(p.dtype), 1, nullptr);
    for (const Expected* each : {&e.dq, &e.dk, &e.dv, &e.dbias}) {
      EXPECT_FALSE(admits_zeros(*each, p.dtype));
    }
    EXPECT_FALSE(admits_zeros(e.dsink, DType::f32));
  });
}

TEST_F(FalsePassTest, ZerosAreNoResultHoweverSmallTheValues) {
  try_small(plain_case(0), &Inputs::v, [](const Problem& p, const Inputs& inputs) {
    const ForwardExpected e = expect_forward(p, inputs, loosest(p.dtype), 1, nullptr);
    EXPECT_FALSE(admits_zeros(e.o, p.dtype));
  });
}

// Arguments of a comparison that nobody looks at.
TEST_F(FalsePassTest, BoundIsThatOfTheDeclaredArithmetic) {
  const Case c = plain_case(0);
  const Inputs inputs = generate(c);
  Arithmetic tight = loosest(DType::f32);
  tight.exp_error = std::ldexp(1.0, -24);
  tight.softmax_roundoff = std::ldexp(1.0, -24);
  tight.output_rounding = Rounding::nearest;
  const Expected loose_one = expect_forward(c.problem, inputs, loosest(DType::f32), 1, nullptr).o;
  const Expected tight_one = expect_forward(c.problem, inputs, tight, 1, nullptr).o;
  const double between = (loose_one.bound[0] + tight_one.bound[0]) / 2;
  ASSERT_LT(tight_one.bound[0], between);
  const auto passes = [&](const Expected& expected, double error) {
    Expected one = {.value = {expected.value[0]}, .rest = {}, .bound = {expected.bound[0]}};
    const double actual = expected.value[0] + error;
    return judge({encode(DType::f64, actual)}, DType::f64, {1, 1, 1, 1}, one, Rounding::nearest)
        .passed;
  };
  EXPECT_TRUE(passes(loose_one, between));
  EXPECT_FALSE(passes(tight_one, between));
  EXPECT_FALSE(passes(loose_one, 1.01 * loose_one.bound[0]));
}

// ---- Runs --------------------------------------------------------------------------------------

TEST_F(FalsePassTest, OneFailureAmongPassesDecidesTheRun) {
  int calls = 0;
  spoil_forward_ = [&](const attest_outputs& out) {
    if (++calls > 2 && calls < 5) static_cast<float*>(out.o.data)[0] += 1;  // the second case
  };
  const Record record = run_all(kFourCases);
  EXPECT_EQ(record.footer->counts.at("FAIL"), 1);
  EXPECT_EQ(record.footer->counts.at("PASS"), 3);
  EXPECT_EQ(record.footer->exit_code, kNotConformant);
  EXPECT_EQ(exit_code_of(record), kNotConformant);
}

TEST_F(FalsePassTest, NotImplementedIsNoPass) {
  ON_CALL(mock_, forward).WillByDefault(Return(ATTEST_ERROR));
  EXPECT_EQ(verdict(training_case()).outcome, Outcome::fail);
  ON_CALL(mock_, supports).WillByDefault(Return("not implemented"));
  const Verdict refused = verdict(training_case());
  EXPECT_EQ(refused.outcome, Outcome::fail);
  EXPECT_EQ(refused.reason, "wrong_refusal");
  // Where it declares nothing of the kind it may refuse; but to refuse everything is no run.
  testee_.description.features = {"lse"};
  const Record record = run_all(kFourCases);
  EXPECT_EQ(record.footer->counts.at("UNSUPPORTED"), 4);
  EXPECT_EQ(record.footer->exit_code, kIncomplete);
}

TEST_F(FalsePassTest, NothingRanIsNoSuccess) {
  EXPECT_EQ(run_all({}).footer->exit_code, kIncomplete);
  EXPECT_EQ(exit_code_of(Record()), kIncomplete);
}

// Carries requests out, but for those that a test breaks.
class BreakingExecutor : public Executor {
 public:
  using Break = std::function<std::optional<Reply>(const nlohmann::json& request)>;
  BreakingExecutor(const attest_plugin& plugin, Break breaks)
      : plugin_(plugin), breaks_(std::move(breaks)) {}
  Reply execute(nlohmann::json request) override {
    if (auto reply = breaks_(request)) return *reply;
    return plugin_.execute(std::move(request));
  }
  Arena& arena(std::size_t bytes) override { return plugin_.arena(bytes); }

 private:
  InProcessExecutor plugin_;
  Break breaks_;
};

std::vector<Outcome> outcomes_of(const Record& record) {
  std::vector<Outcome> outcomes;
  for (const VerdictRecord& each : record.verdicts) outcomes.push_back(each.verdict.outcome);
  return outcomes;
}

TEST_F(FalsePassTest, TimeoutIsNoPass) {
  const Record record = run_all(kFourCases, [&](const Testee&) {
    return std::make_unique<BreakingExecutor>(
        mock_.plugin(), [](const nlohmann::json& request) -> std::optional<Reply> {
          if (request["op"] != "backward") return std::nullopt;
          return Reply{.kind = Reply::Kind::timed_out, .message = "no reply"};
        });
  });
  EXPECT_EQ(outcomes_of(record), std::vector<Outcome>(4, Outcome::timeout));
  EXPECT_EQ(record.footer->exit_code, kNotConformant);
}

TEST_F(FalsePassTest, CrashLeavesARowAndTheRestIsTried) {
  int forwards = 0;
  const Record record = run_all(kFourCases, [&](const Testee&) {
    return std::make_unique<BreakingExecutor>(
        mock_.plugin(), [&](const nlohmann::json& request) -> std::optional<Reply> {
          if (request["op"] != "forward" || ++forwards != 3) return std::nullopt;
          return Reply{.kind = Reply::Kind::crashed, .message = "signal 11"};
        });
  });
  using enum Outcome;
  EXPECT_EQ(outcomes_of(record), (std::vector<Outcome>{pass, crash, pass, pass}));
  EXPECT_EQ(record.footer->exit_code, kNotConformant);
  // A row that is gone is missed.
  Record shorter = record;
  shorter.verdicts.erase(shorter.verdicts.begin() + 1);
  EXPECT_EQ(exit_code_of(shorter), kIncomplete);
}

// After a crash a device may refuse all further work: none of that passes, and none of it is lost.
TEST_F(FalsePassTest, DeviceThatStaysBrokenFailsEveryCaseFromThenOn) {
  int forwards = 0;
  const Record record = run_all(kFourCases, [&](const Testee&) {
    return std::make_unique<BreakingExecutor>(
        mock_.plugin(), [&](const nlohmann::json& request) -> std::optional<Reply> {
          if (request["op"] != "forward" || ++forwards < 3) return std::nullopt;
          if (forwards == 3) return Reply{.kind = Reply::Kind::crashed, .message = "signal 6"};
          return Reply{.body = {{"status", "error"}, {"message", "the device is lost"}}};
        });
  });
  using enum Outcome;
  EXPECT_EQ(outcomes_of(record), (std::vector<Outcome>{pass, crash, fail, fail}));
  EXPECT_THAT(record.verdicts.back().verdict.message, HasSubstr("the device is lost"));
}

// A device that keeps what the last kernel left gives the right answer to the wrong question.
TEST_F(FalsePassTest, ResultsOfTheCaseBeforeAreNoResults) {
  ON_CALL(mock_, forward).WillByDefault(Return(ATTEST_OK));
  const Verdict v = verdict(plain_case(0));
  EXPECT_EQ(v.outcome, Outcome::fail);
  EXPECT_EQ(v.reason, "unwritten");
}

// ---- Who is tested -----------------------------------------------------------------------------

TEST_F(FalsePassTest, KernelThatIsNamedIsTheOneThatRuns) {
  NiceMock<MockPlugin> wrong;
  wrong.kernel().name = "wrong";
  ON_CALL(wrong, forward)
      .WillByDefault(Invoke([](const auto& p, const auto& in, const auto& out, const auto& c) {
        const attest_status status = plain::forward(p, in, out, c);
        static_cast<float*>(out.o.data)[0] += 1;
        return status;
      }));
  const std::array<const attest_kernel*, 2> kernels = {&mock_.kernel(), &wrong.kernel()};
  attest_plugin plugin = mock_.plugin();
  plugin.kernels = kernels.data();
  plugin.kernel_count = 2;
  const auto outcome_of = [&](const std::string& kernel) {
    testee_.kernel = kernel;
    InProcessExecutor executor(plugin);
    return examine_safely(prepare(kFourCases[0]), kFourCases[0], testee_, executor, {})
        .verdict.outcome;
  };
  EXPECT_CALL(mock_, forward).Times(testing::AtLeast(1));
  EXPECT_CALL(wrong, forward).Times(0);
  EXPECT_EQ(outcome_of("mock"), Outcome::pass);
  testing::Mock::VerifyAndClearExpectations(&mock_);
  testing::Mock::VerifyAndClearExpectations(&wrong);
  EXPECT_CALL(mock_, forward).Times(0);
  EXPECT_CALL(wrong, forward).Times(testing::AtLeast(1));
  EXPECT_EQ(outcome_of("wrong"), Outcome::fail);
  EXPECT_FALSE(conforms(outcome_of("absent")));
}

TEST(RecordOfOthersTest, ChangedVerdictConcludesNothing) {
  Record record = {.header = {.suite_version = "0", .testees = {{.name = "a"}}, .tier = "smoke"},
                   .verdicts = {{.case_id = "x", .testee = "a", .dtype = "f32", .verdict = {}}},
                   .footer = {}};
  record.verdicts[0].verdict.outcome = Outcome::fail;
  record.footer = conclude(record.header, record.verdicts);
  EXPECT_EQ(exit_code_of(record), kNotConformant);
  record.verdicts[0].verdict.outcome = Outcome::pass;
  EXPECT_EQ(exit_code_of(record), kIncomplete);
}

TEST(RecordOfOthersTest, TesteeCannotRewriteTheResults) {
  const std::string file = testing::TempDir() + "attest_results";
  std::ofstream(file) << "FAIL";
  const Isolation isolation = strongest_isolation({ROGUE});
  if (!has_namespaces(isolation)) {
    GTEST_SKIP() << "no namespaces here; records say so";
  }
  Surroundings around;
  hide(around, {file});
  WorkerExecutor worker({.command = {ROGUE, "rewrites", file},
                         .limits = {.start_seconds = 20},
                         .isolation = isolation,
                         .around = around});
  const Reply reply = worker.execute({{"op", "describe"}});
  EXPECT_TRUE(reply.ok()) << reply.message;
  std::ifstream still(file);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(still), {}), "FAIL");
}

}  // namespace
}  // namespace attest
