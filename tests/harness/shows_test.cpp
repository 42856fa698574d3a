#include "harness/selfcheck/shows.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/process/in_process.h"
#include "tests/harness/mock_plugin.h"
#include "tests/harness/plain_kernel.h"

namespace attest {
namespace {

using testing::Invoke;
using testing::NiceMock;

// A kernel beside the same without its fault.
class ShowsTest : public testing::Test {
 protected:
  // Spoils what a right kernel returned.
  using Fault = std::function<void(const attest_problem&, const attest_outputs&, int threads)>;

  // Tells problems apart by their numbers of queries.
  static Case asks(Index queries, const std::string& clause = "MASK-1") {
    Case c;
    c.id = fmt::format("sq={}", queries);
    c.clauses = {clause};
    c.data = "normal";
    c.problem = {.dtype = DType::f32, .query_len = queries, .key_len = 3, .head_dim = 2};
    c.problem.value_dim = 2;
    return c;
  }

  static float* first_of(const attest_tensor& tensor) { return static_cast<float*>(tensor.data); }

  // The problem in which it shows; empty if it shows in none.
  std::string shown(const Fault& fault, const std::vector<Case>& random,
                    const std::vector<Case>& asked = {}) {
    spoil(mutant_, fault);
    spoil(control_, spoils_control_);
    const Catalogue catalogue = parse_catalogue({{"mutants",
                                                  {{{"name", "mutant"},
                                                    {"id", "X1"},
                                                    {"class", "masks"},
                                                    {"about", "a fault"},
                                                    {"clauses", {"MASK-1"}},
                                                    {"dtypes", {"f32"}},
                                                    {"control", "none"}}}},
                                                 {"controls", {"none"}}});
    const Shows shows = where_faults_show(
        random, asked, catalogue, {testee("mutant"), testee("none")}, {},
        [&](const Testee&) { return std::make_unique<InProcessExecutor>(plugin_); },
        [] { return false; });
    if (shows.empty()) return "";
    EXPECT_EQ(shows.size(), 1u);
    EXPECT_EQ(shows.begin()->first, std::pair(std::size_t(0), DType::f32));
    return shows.begin()->second;
  }

  NiceMock<MockPlugin> mutant_, control_;
  Fault spoils_control_ = [](const auto&, const auto&, int) {};

 private:
  static void spoil(NiceMock<MockPlugin>& kernel, const Fault& fault) {
    ON_CALL(kernel, forward)
        .WillByDefault(Invoke([=](const auto& p, const auto& in, const auto& out, const auto& c) {
          const attest_status status = plain::forward(p, in, out, c);
          fault(p, out, c.threads);
          return status;
        }));
  }

  static Testee testee(const std::string& kernel) {
    Testee t{.name = kernel, .spec = kernel, .kernel = kernel, .command = {}, .description = {}};
    t.description.features = {"lse"};
    t.description.dtypes = {DType::f32};
    t.description.arithmetic = {{DType::f32, loosest(DType::f32)}};
    t.description.alignment = 4;
    return t;
  }

  // Both of them, as executors of one plug-in know them.
  static attest_kernel named(NiceMock<MockPlugin>& kernel, const char* name) {
    kernel.kernel().name = name;
    return kernel.kernel();
  }
  const attest_kernel kernels_[2] = {named(mutant_, "mutant"), named(control_, "none")};
  const attest_kernel* const pointers_[2] = {&kernels_[0], &kernels_[1]};
  const attest_plugin plugin_ = {.struct_size = sizeof(attest_plugin),
                                 .abi_version = ATTEST_ABI_VERSION,
                                 .kernel_count = 2,
                                 .kernels = pointers_,
                                 .absent_kernels = nullptr,
                                 .absent_kernel_count = 0,
                                 .reserved = 0};
};

TEST_F(ShowsTest, KernelLikeItsControlShowsNowhere) {
  EXPECT_EQ(shown([](const auto&, const auto&, int) {}, {asks(1), asks(2)}, {asks(3)}), "");
}

TEST_F(ShowsTest, FaultShowsInTheFirstProblemWithOtherBits) {
  const auto by_an_ulp = [](const attest_problem& p, const attest_outputs& out, int) {
    float* const o = first_of(out.o);
    if (p.query_len >= 2) *o = std::nextafter(*o, 2 * *o);
  };
  EXPECT_EQ(shown(by_an_ulp, {asks(1), asks(2), asks(3)}), "sq=2");
}

TEST_F(ShowsTest, BothNumbersOfThreadsAreTried) {
  const auto of_threads = [](const attest_problem&, const attest_outputs& out, int threads) {
    if (threads == 3) *first_of(out.lse) += 1;
  };
  EXPECT_EQ(shown(of_threads, {asks(1), asks(2), asks(3)}), "sq=2");
}

TEST_F(ShowsTest, CaseIsTriedThatCitesWhatItViolates) {
  const auto always = [](const attest_problem&, const attest_outputs& out, int) {
    *first_of(out.o) += 1;
  };
  EXPECT_EQ(shown(always, {}, {asks(1, "LSE-1"), asks(2, "MASK-1")}), "sq=2");
}

TEST_F(ShowsTest, AnythingMayBeWhereTheControlIsNan) {
  spoils_control_ = [](const attest_problem&, const attest_outputs& out, int) {
    *first_of(out.o) = std::numeric_limits<float>::quiet_NaN();
  };
  const auto otherwise = [](const attest_problem&, const attest_outputs& out, int) {
    *first_of(out.o) = 7;
  };
  EXPECT_EQ(shown(otherwise, {asks(1), asks(2)}), "");
}

TEST_F(ShowsTest, RefusalShows) {
  ON_CALL(mutant_, supports).WillByDefault(testing::Return("not today"));
  EXPECT_EQ(shown([](const auto&, const auto&, int) {}, {asks(1), asks(2)}), "sq=1");
}

}  // namespace
}  // namespace attest
