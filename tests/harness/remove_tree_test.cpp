#include "harness/process/remove_tree.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace attest {
namespace {

namespace fs = std::filesystem;

class RemoveTreeTest : public testing::Test {
 protected:
  RemoveTreeTest() { fs::create_directory(folder_); }
  ~RemoveTreeTest() override { remove_tree(folder_); }
  fs::path folder_ = fs::path(testing::TempDir()) / "attest_remove_tree";
};

TEST_F(RemoveTreeTest, FilesFoldersAndLinksAreGoneAndWhatLinksNameIsNot) {
  const fs::path precious = testing::TempDir() + "attest_precious";
  fs::create_directories(precious / "within");
  fs::create_directories(folder_ / "a" / "b" / "c");
  std::ofstream(folder_ / "a" / "b" / "file") << "text";
  fs::create_directory_symlink(precious, folder_ / "a" / "link");
  fs::create_symlink("/nonexistent", folder_ / "dangling");
  EXPECT_TRUE(remove_tree(folder_));
  EXPECT_FALSE(fs::exists(folder_));
  EXPECT_TRUE(fs::exists(precious / "within"));
  fs::remove_all(precious);
}

// Deeper than a path is long, and than this process may have descriptors.
TEST_F(RemoveTreeTest, FoldersMayNestThousandsDeep) {
  int here = open(folder_.c_str(), O_PATH | O_DIRECTORY);
  for (int level = 0; level < 3000; ++level) {
    ASSERT_EQ(mkdirat(here, "nested", 0700), 0) << level;
    const int below = openat(here, "nested", O_PATH | O_DIRECTORY);
    close(here);
    here = below;
  }
  close(here);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few = {64, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_TRUE(remove_tree(folder_));
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(RemoveTreeTest, FolderThatIsClosedToItsOwnerIsRemovedToo) {
  fs::create_directories(folder_ / "closed" / "within" / "deeper");
  fs::permissions(folder_ / "closed" / "within", fs::perms::none);
  fs::permissions(folder_ / "closed", fs::perms::none);
  EXPECT_TRUE(remove_tree(folder_));
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(RemoveTreeTest, WhatIsNotThereIsNotRemoved) { EXPECT_FALSE(remove_tree(folder_ / "no")); }

}  // namespace
}  // namespace attest
