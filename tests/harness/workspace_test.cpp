#include "harness/process/workspace.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "spec/json_reader.h"

namespace attest {
namespace {

using From = Workspace::From;

// A few bytes, a page and its neighbours, large ones, and one that is not kept.
constexpr std::size_t kSizes[] = {1,      512,      4095,      4096,           4097,
                                  100000, 5u << 20, 64u << 20, (64u << 20) + 1};
constexpr From kOrigins[] = {From::kept, From::fresh};

std::byte* bytes_of(const Workspace& workspace) {
  return static_cast<std::byte*>(workspace.data());
}

TEST(WorkspaceTest, IsNaNWhateverACallBeforeWrote) {
  for (const From from : kOrigins) {
    for (const std::size_t size : kSizes) {
      for (int call = 0; call < 2; ++call) {
        const Workspace workspace(size, from);
        std::byte* const data = bytes_of(workspace);
        EXPECT_EQ(workspace.bytes(), size);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 512, 0u);
        EXPECT_EQ(data[0], std::byte(0xff));
        EXPECT_EQ(std::memcmp(data, data + 1, size - 1), 0);  // and so is each that follows
        std::memset(data, 0, size);
        EXPECT_EQ(workspace.damage(), "");
      }
    }
  }
}

TEST(WorkspaceTest, NobodyTouchesAnythingBesideASmallOneAfterALargeOne) {
  for (const From from : kOrigins) {
    std::fill_n(bytes_of(Workspace(1 << 20, from)), 1 << 20, std::byte(0));
    const Workspace workspace(8192, from);
    volatile std::byte* const data = bytes_of(workspace);
    EXPECT_DEATH(data[-1] = std::byte(0), "");
    EXPECT_DEATH(data[8192] = std::byte(0), "");
  }
}

TEST(WorkspaceTest, NobodyTouchesAnythingBesideTheLargestThatIsKept) {
  const Workspace workspace(16u << 20, From::kept);
  volatile std::byte* const data = bytes_of(workspace);
  EXPECT_DEATH(data[-1] = std::byte(0), "");
  EXPECT_DEATH(data[16u << 20] = std::byte(0), "");
}

TEST(WorkspaceTest, NobodyTouchesThatOfAnEarlierCall) {
  std::vector<volatile std::byte*> earlier;
  const auto call = [&] {
    const Workspace workspace(8192, From::kept);
    for (volatile std::byte* const data : earlier) EXPECT_DEATH(data[0] = std::byte(0), "");
    earlier.push_back(bytes_of(workspace));
  };
  for (int i = 0; i < 3; ++i) call();
  EXPECT_DEATH(static_cast<void>(earlier.back()[0]), "");  // nor between two calls
}

TEST(WorkspaceTest, PagesAreKept) {
  std::set<std::byte*> given;
  for (int i = 0; i < 12; ++i) given.insert(bytes_of(Workspace(8192, From::kept)));
  EXPECT_EQ(given.size(), 3u);
}

TEST(WorkspaceTest, WhereACallTookThePagesAwayOthersAreHad) {
  // In a thread of its own, whose pages no other test has.
  std::thread([] {
    std::set<std::byte*> gone;
    for (int i = 0; i < 3; ++i) {
      const Workspace workspace(8192, From::kept);
      gone.insert(bytes_of(workspace));
      munmap(bytes_of(workspace), 8192);
    }
    for (int i = 0; i < 3; ++i) {
      const Workspace workspace(8192, From::kept);
      EXPECT_FALSE(gone.contains(bytes_of(workspace)));
      EXPECT_EQ(bytes_of(workspace)[8191], std::byte(0xff));
    }
  }).join();
}

TEST(WorkspaceTest, WhatIsWrittenWithinItsPagesIsDamage) {
  for (const From from : kOrigins) {
    Workspace workspace(1000, from);  // 24 bytes behind it, 3072 before
    EXPECT_EQ(workspace.damage(), "");
    bytes_of(workspace)[1002] = std::byte(0);
    EXPECT_EQ(workspace.damage(), "wrote 3 bytes behind the end of its workspace");
    bytes_of(workspace)[-7] = std::byte(0);
    EXPECT_EQ(workspace.damage(), "wrote 7 bytes before the start of its workspace");
  }
}

TEST(WorkspaceTest, MostIsGivenBackAndCanBeHadAgain) {
  constexpr std::size_t kSize = 16u << 20, kPage = 4096;
  const auto in_memory = [](const std::byte* data) {
    std::vector<unsigned char> pages(kSize / kPage);
    EXPECT_EQ(mincore(const_cast<std::byte*>(data), kSize, pages.data()), 0);
    return static_cast<std::size_t>(
        std::count_if(pages.begin(), pages.end(), [](auto page) { return (page & 1) != 0; }));
  };
  std::byte* const data = bytes_of(Workspace(kSize, From::kept));
  EXPECT_EQ(in_memory(data), kSize / kPage);
  Workspace::give_back_most();
  EXPECT_LE(in_memory(data), kSize / kPage / 8);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(bytes_of(Workspace(kSize, From::kept))[0], std::byte(0xff));
}

TEST(WorkspaceTest, NoneHasNoData) { EXPECT_EQ(Workspace(0, From::kept).data(), nullptr); }

TEST(WorkspaceTest, WhatCannotBeHadIsAnError) {
  for (const std::size_t size : {std::size_t(1) << 47, ~std::size_t(0)}) {
    EXPECT_THROW(Workspace(size, From::kept), InputError) << size;
  }
}

}  // namespace
}  // namespace attest
