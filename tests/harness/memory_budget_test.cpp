#include "harness/run/memory_budget.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
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
  // And for each further arithmetic another value and bound of the 4 that are returned.
  EXPECT_NEAR(bytes_to_judge(large(32), 3) - bytes_to_judge(large(32)), elements * 4 * 32, 1e8);
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

TEST(MemoryBudgetTest, IsThatOfTheControlGroupsThatTheProcessIsIn) {
  const auto root = std::filesystem::temp_directory_path() / fmt::format("groups_{}", getpid());
  const auto put = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  };
  const double machine = memory_here(root);
  EXPECT_GT(machine, 1e8);
  put("proc/self/cgroup", "0::/pod/box\n");
  put("sys/fs/cgroup/pod/box/memory.max", "max\n");
  EXPECT_EQ(memory_here(root), machine);
  put("sys/fs/cgroup/pod/memory.max", "5000000\n");
  EXPECT_EQ(memory_here(root), 5e6);
  put("sys/fs/cgroup/memory.max", "4000000\n");  // as a container sees its own
  EXPECT_EQ(memory_here(root), 4e6);
  put("proc/self/cgroup", "5:cpu:/pod\n4:pids,memory:/pod\n");
  EXPECT_EQ(memory_here(root), machine);
  put("sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "9223372036854771712\n");  // without limit
  EXPECT_EQ(memory_here(root), machine);
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "3000000\n");
  EXPECT_EQ(memory_here(root), 3e6);
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace attest
