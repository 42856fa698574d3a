#include "impl/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <vector>

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

TEST(TurnsTest, AtEachPlaceAllComeInOrderHoweverTheyAreDealt) {
  constexpr std::size_t kPlaces = 5;
  constexpr std::int64_t kNumbers = 40;
  const auto adds = [](std::int64_t number, std::size_t place) {
    return (number + static_cast<std::int64_t>(place)) % 3 != 0;
  };
  for (const int count : {1, 2, 3, 8}) {
    Workers workers(count);
    Turns turns(kPlaces);
    std::vector<std::vector<std::int64_t>> came(kPlaces), expected(kPlaces);
    workers.share_out(count, [&](int worker, std::int64_t, std::int64_t) {
      for (std::int64_t number = worker; number < kNumbers; number += count) {
        const Turns::Turn turn = turns.of(number);
        for (std::size_t place = 0; place < kPlaces; ++place) {
          const auto n = static_cast<std::int64_t>(place);
          if (adds(number, place)) {
            turn.wait(n);
            came[place].push_back(number);
          }
          turn.pass(n);
        }
      }
    });
    for (std::size_t place = 0; place < kPlaces; ++place) {
      for (std::int64_t number = 0; number < kNumbers; ++number) {
        if (adds(number, place)) expected[place].push_back(number);
      }
    }
    EXPECT_EQ(came, expected) << count;
  }
}

TEST(TurnsTest, NobodyWaitsForAWorkerThatFailed) {
  Workers workers(3);
  Turns turns(1);
  const auto work = [&](int worker, std::int64_t, std::int64_t) {
    turns.or_abandon([&] {
      if (worker == 0) throw std::runtime_error("in a worker");
      turns.of(worker).pass(0);
    });
  };
  EXPECT_THROW(workers.share_out(3, work), std::runtime_error);
}

}  // namespace
}  // namespace attest::impl
