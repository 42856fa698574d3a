#include "harness/run/memory_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace attest {
namespace {

Problem large(Index heads) {
  return {.dtype = DType::bf16,
          .query_heads = heads,
          .key_heads = heads,
          .query_len = 8192,
          .key_len = 8192,
          .head_dim = 128,
          .value_dim = 128,
          .backward = true};
}

TEST(MemoryBudgetTest, CountsInputsResultsAndWhatTheyAreComparedWith) {
  // 8 tensors, as doubles or twice as words with value and bound, and as they cross.
  const double elements = 32.0 * 8192 * 128;
  EXPECT_NEAR(bytes_to_judge(large(32)), elements * (4 * 8 + 4 * 32 + 2 * (4 + 2 * 4)), 1e8);
}

TEST(MemoryBudgetTest, RefusesWhatDoesNotFitAndSaysHowMuchItTakes) {
  const MemoryBudget budget(4e9);
  EXPECT_EQ(budget.refuses(large(1)), "");
  EXPECT_THAT(budget.refuses(large(32)), testing::HasSubstr("MiB"));
}

TEST(MemoryBudgetTest, HasNoMoreAtATimeThanThereIsButForWhoIsAlone) {
  MemoryBudget budget(100);
  std::atomic<int> taken = 0, most = 0;
  std::vector<std::thread> threads;
  for (int n = 0; n < 8; ++n) {
    threads.emplace_back([&, n] {
      for (int again = 0; again < 40; ++again) {
        const int bytes = n == 0 ? 1000 : 40;
        const MemoryBudget::Share share(budget, bytes);
        const int now = taken += bytes;
        EXPECT_TRUE(bytes != 1000 || now == 1000);
        for (int before = most; now > before && !most.compare_exchange_weak(before, now);) {
        }
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        taken -= bytes;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, 1000);
}

}  // namespace
}  // namespace attest
