#include "harness/process/workspace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

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

TEST(WorkspaceTest, NobodyTouchesItBetweenTwoCalls) {
  const volatile std::byte* data = nullptr;
  {
    const Workspace workspace(8192, From::kept);
    data = bytes_of(workspace);
  }
  EXPECT_DEATH(static_cast<void>(data[0]), "");
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

TEST(WorkspaceTest, FreshOneIsNotWhereTheKeptAre) {
  const Workspace kept(100, From::kept);
  const Workspace fresh(100, From::fresh);
  EXPECT_NE(kept.data(), fresh.data());
}

TEST(WorkspaceTest, WhatIsGivenBackCanBeHadAgain) {
  std::fill_n(bytes_of(Workspace(32u << 20, From::kept)), 32u << 20, std::byte(0));
  Workspace::give_back_most();
  const Workspace workspace(32u << 20, From::kept);
  EXPECT_EQ(bytes_of(workspace)[0], std::byte(0xff));
}

TEST(WorkspaceTest, NoneHasNoData) { EXPECT_EQ(Workspace(0, From::kept).data(), nullptr); }

TEST(WorkspaceTest, WhatCannotBeHadIsAnError) {
  for (const std::size_t size : {std::size_t(1) << 47, ~std::size_t(0)}) {
    EXPECT_THROW(Workspace(size, From::kept), InputError) << size;
  }
}

}  // namespace
}  // namespace attest
