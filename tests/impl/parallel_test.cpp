#include "impl/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <stdexcept>

namespace attest::impl {
namespace {

TEST(WorkersTest, EveryRoundDoesEachUnitOnce) {
  for (const int count : {1, 2, 3, 8}) {
    Workers workers(count);
    for (const std::int64_t units : {0, 1, 7, 64}) {
      std::vector<std::atomic<int>> done(static_cast<std::size_t>(units));
      workers.share_out(units, [&](int, std::int64_t begin, std::int64_t end) {
        for (std::int64_t unit = begin; unit < end; ++unit) ++done[static_cast<std::size_t>(unit)];
      });
      for (const std::atomic<int>& times : done) EXPECT_EQ(times, 1) << count << " of " << units;
    }
  }
}

TEST(WorkersTest, AnExceptionIsThrownOnceAllHaveEndedAndTheNextRoundIsAsAny) {
  for (const int thrower : {0, 2}) {
    Workers workers(3);
    std::atomic<int> ended = 0;
    const auto round = [&](bool throws) {
      ended = 0;
      workers.share_out(3, [&](int worker, std::int64_t, std::int64_t) {
        ++ended;
        if (throws && worker == thrower) throw std::runtime_error("in a worker");
      });
    };
    EXPECT_THROW(round(true), std::runtime_error);
    EXPECT_EQ(ended, 3);
    EXPECT_NO_THROW(round(false));
    EXPECT_EQ(ended, 3);
  }
}

}  // namespace
}  // namespace attest::impl
