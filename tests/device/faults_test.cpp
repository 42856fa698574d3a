// Faults planted in the memory of a device, one for each guard and each mode, judged through the
// worker: all are caught, and the kernel without one is right in every order of its streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "harness/process/testee.h"
#include "harness/run/examine.h"

namespace attest {
namespace {

using testing::HasSubstr;

Case a_case(Check check, bool backward = false, Index query_len = 9) {
  Case c = {.id = "test/device/dtype=f32/data=normal/s=1",
            .clauses = {"MASK-1"},
            .because = "",
            .problem = {.dtype = DType::f32,
                        .batch = 2,
                        .query_heads = 2,
                        .query_len = query_len,
                        .key_len = 7,
                        .head_dim = 5,
                        .value_dim = 3,
                        .scale = 0.5},
            .data = "normal",
            .check = check};
  c.problem.backward = backward;
  return c;
}

// One kernel in a worker of its own.
class OnTheFake {
 public:
  explicit OnTheFake(const std::string& kernel)
      : testee_(find_testees({std::string(FAULTS ":fake/") + kernel},
                             {.worker = WORKER, .plugins = {}, .cases = {}}, {}, {})
                    .front()),
        executor_(worker_options(testee_, {}, {})) {}

  Verdict verdict(const Case& c) {
    PreparedCase prepared(c, 1);
    return examine(prepared, testee_.description, testee_.kernel, executor_, 1).verdict;
  }

 private:
  Testee testee_;
  WorkerExecutor executor_;
};

constexpr Check kChecks[] = {Check::none, Check::stream, Check::two_streams, Check::graph,
                             Check::new_shapes};

struct Planted {
  const char* kernel;
  Check check;
  const char* reason;
  const char* clause;
  const char* message = "";
};
void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.kernel; }

class PlantedFaultTest : public testing::TestWithParam<Planted> {};

TEST_P(PlantedFaultTest, IsCaughtByItsClause) {
  const Planted& planted = GetParam();
  Case c = a_case(planted.check);
  if (std::string(planted.kernel) == "writes_into_gap") {
    c.problem.layouts.o = Layout::parse("bhsd gap=3");
  }
  if (std::string(planted.kernel) == "bakes_lengths") c.problem.key_lens = std::vector<Index>{7, 2};
  const Verdict v = OnTheFake(planted.kernel).verdict(c);
  EXPECT_EQ(v.outcome, Outcome::fail) << v.message;
  EXPECT_EQ(v.reason, planted.reason) << v.message;
  EXPECT_EQ(v.clauses.front(), planted.clause);
  EXPECT_THAT(v.message, HasSubstr(planted.message));
}

INSTANTIATE_TEST_SUITE_P(
    AllGuards, PlantedFaultTest,
    testing::Values(
        Planted{"writes_before", Check::none, "guard", "SAFE-1", "1 bytes before the start of o"},
        Planted{"writes_behind", Check::none, "guard", "SAFE-1", "1 bytes behind the end of o"},
        Planted{"writes_far_before", Check::none, "guard", "SAFE-1",
                "4097 bytes before the start of"},
        Planted{"writes_far_behind", Check::none, "guard", "SAFE-1",
                "3000 bytes behind the end of o, in device memory"},
        Planted{"writes_into_gap", Check::none, "guard", "SAFE-1", "the gap between rows of o"},
        Planted{"mutates_input", Check::none, "input_mutated", "SAFE-2",
                "changed the input k, 4 bytes from its start, in device memory"},
        Planted{"mutates_slack_of_input", Check::none, "input_mutated", "SAFE-2",
                "changed the input v, 168 bytes from its start"},
        Planted{"leaves_one_unwritten", Check::none, "unwritten", "SAFE-3", "O[0,0,0,0]"},
        Planted{"reads_slack", Check::none, "nonfinite", "MASK-1", ""},
        Planted{"overruns_workspace", Check::none, "guard", "SAFE-1",
                "1 bytes behind the end of its workspace, in device memory"},
        Planted{"underruns_workspace", Check::none, "guard", "SAFE-1",
                "8 bytes before the start of its workspace, in device memory"},
        Planted{"trusts_workspace", Check::none, "nonfinite", "MASK-1", ""}));

INSTANTIATE_TEST_SUITE_P(
    AllModes, PlantedFaultTest,
    testing::Values(
        Planted{"default_stream", Check::stream, "unwritten", "DEV-1", "stream: "},
        Planted{"waits_then_default_stream", Check::stream, "unwritten", "DEV-1", "stream: "},
        Planted{"shares_plan", Check::two_streams, "bound", "DEV-2", "two-streams: "},
        Planted{"bakes_lengths", Check::graph, "bound", "DEV-3", "graph: "},
        Planted{"clears_on_the_host", Check::graph, "unwritten", "DEV-3", "graph: "},
        Planted{"shares_scratch", Check::two_streams, "nonfinite", "DEV-2", "two-streams: "},
        Planted{"bakes_inputs", Check::graph, "nonfinite", "DEV-3", "graph: "},
        Planted{"default_stream", Check::graph, "unwritten", "DEV-3", "graph: "},
        Planted{"allocates", Check::graph, "wrong_refusal", "DEV-3", "a stream is capturing"},
        Planted{"keeps_first_shape", Check::new_shapes, "bound", "DEV-4", "after other shapes: "},
        Planted{"keeps_last_shape", Check::new_shapes, "bound", "DEV-4", "after other shapes: "}));

class CorrectKernelTest : public testing::TestWithParam<const char*> {};

// Each call has another order of its streams.
TEST_P(CorrectKernelTest, PassesEveryCheckInEveryOrder) {
  OnTheFake fake(GetParam());
  for (const Check check : kChecks) {
    for (int times = 0; times < 6; ++times) {
      const Verdict v = fake.verdict(a_case(check));
      EXPECT_EQ(v.outcome, Outcome::pass) << static_cast<int>(check) << ": " << v.message;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, CorrectKernelTest, testing::Values("right", "own_scratch"));

// What each planted fault of a mode does not break, it passes: so that the mode is what catches it.
TEST(DeviceTest, FaultOfAModePassesOrdinaryCalls) {
  for (const char* kernel :
       {"default_stream", "shares_scratch", "bakes_inputs", "allocates", "bakes_lengths",
        "clears_on_the_host", "shares_plan", "waits_then_default_stream"}) {
    const Verdict v = OnTheFake(kernel).verdict(a_case(Check::none));
    EXPECT_EQ(v.outcome, Outcome::pass) << kernel << ": " << v.message;
  }
}

TEST(DeviceTest, BackwardPassIsMirroredAndGuardedToo) {
  for (const Check check : kChecks) {
    const Verdict v = OnTheFake("right").verdict(a_case(check, true));
    EXPECT_EQ(v.outcome, Outcome::pass) << static_cast<int>(check) << ": " << v.message;
  }
}

TEST(DeviceTest, TablesAndLengthsLieOnTheDevice) {
  Case c = a_case(Check::graph);
  c.problem.key_lens = std::vector<Index>{7, 2};
  c.clauses.push_back("MASK-5");
  const Verdict v = OnTheFake("right").verdict(c);
  EXPECT_EQ(v.outcome, Outcome::pass) << v.message;
}

// Two rows of K, 200 MB apart, are more than that device has.
TEST(DeviceTest, LackOfMemoryIsNoVerdictOnTheKernel) {
  Case c = a_case(Check::none);
  c.problem.layouts.k = Layout::parse("bhsd gap=50000000");
  const Verdict v = OnTheFake("right").verdict(c);
  EXPECT_EQ(v.outcome, Outcome::not_run) << v.message;
  EXPECT_EQ(v.reason, "no_memory") << v.message;
}

TEST(DeviceTest, CheckIsNotAskedOfWhoDoesNotDeclareIt) {
  const auto testees =
      find_testees({FAULTS ":fake/right"}, {.worker = WORKER, .plugins = {}, .cases = {}}, {}, {});
  Description description = testees.front().description;
  description.features = {"lse", "stream"};
  WorkerExecutor executor(worker_options(testees.front(), {}, {}));
  PreparedCase prepared(a_case(Check::graph), 1);
  const Verdict v = examine(prepared, description, testees.front().kernel, executor, 1).verdict;
  EXPECT_EQ(v.outcome, Outcome::unsupported);
  EXPECT_EQ(v.message, "does not declare graph");
}

TEST(DeviceTest, ErrorThatLastsEndsThatCaseAndItsWorkerAlone) {
  OnTheFake fake("illegal_address");
  EXPECT_EQ(fake.verdict(a_case(Check::none)).outcome, Outcome::pass);
  for (const Check check : {Check::none, Check::stream, Check::graph}) {
    const Verdict v = fake.verdict(a_case(check, false, 1));
    EXPECT_EQ(v.reason, "wrong_refusal") << v.message;
    EXPECT_THAT(v.message, HasSubstr("the device is lost: an illegal memory access"));
    EXPECT_EQ(fake.verdict(a_case(Check::none)).outcome, Outcome::pass);
  }
}

TEST(DeviceTest, ErrorThatDoesNotLastIsAnError) {
  OnTheFake fake("bad_launch");
  const Verdict v = fake.verdict(a_case(Check::none, false, 1));
  EXPECT_EQ(v.reason, "wrong_refusal");
  EXPECT_THAT(v.message, HasSubstr("status 1: invalid configuration argument"));
  EXPECT_EQ(fake.verdict(a_case(Check::none)).outcome, Outcome::pass);
}

}  // namespace
}  // namespace attest
