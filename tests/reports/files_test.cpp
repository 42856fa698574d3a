#include "reports/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>

#include "spec/json_reader.h"

namespace attest {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class FilesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "attest_files_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  static std::string content_of(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  std::string error_of(const fs::path& file, const std::string& text) {
    try {
      write_file(file, text);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }
  fs::path folder_;
};

TEST_F(FilesTest, AFolderIsThereWholeOrNotAtAll) {
  for (const bool empty : {false, true}) {
    const fs::path place = folder_ / (empty ? "empty" : "none") / "";
    if (empty) fs::create_directory(place);
    {
      const NewFolder folder(place);
      write_file(folder.path() / "a", "half");
      EXPECT_FALSE(fs::exists(place / "a"));
    }
    EXPECT_EQ(fs::exists(place), empty);
    EXPECT_TRUE(!empty || fs::is_empty(place));
    {
      NewFolder folder(place);
      write_file(folder.path() / "a", "whole");
      make_folder(folder.path() / "b");
      folder.put_in_place();
    }
    EXPECT_EQ(content_of(place / "a"), "whole");
    EXPECT_TRUE(fs::is_directory(place / "b"));
    EXPECT_EQ(std::distance(fs::directory_iterator(place), fs::directory_iterator()), 2);
    EXPECT_THROW(NewFolder folder(place), InputError) << "not empty";
  }
  EXPECT_EQ(files(), 2u);
  EXPECT_EQ(fs::status(folder_ / "none").permissions() & fs::perms::all,
            fs::status(folder_ / "empty").permissions() & fs::perms::all)
      << "as any folder that is made";
  { const NewFolder folder(folder_ / "above" / "more" / "none"); }
  EXPECT_FALSE(fs::exists(folder_ / "above"));
  write_file(folder_ / "file", "");
  EXPECT_THROW(NewFolder folder(folder_ / "file"), InputError);
}

TEST_F(FilesTest, TakesThePlaceOfWhatWasThereAndLeavesNothingElse) {
  write_file(folder_ / "a", "old");
  write_file(folder_ / "a", {"ne", "w"});
  EXPECT_EQ(content_of(folder_ / "a"), "new");
  EXPECT_EQ(files(), 1u);
  const mode_t mask = umask(0);
  umask(mask);
  struct stat about {};
  ASSERT_EQ(stat((folder_ / "a").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0666 & ~mask) << "as any file that is made";
}

// As a testee plants one where a report will be.
TEST_F(FilesTest, NeverWritesThroughALink) {
  std::ofstream(folder_ / "precious") << "mine";
  fs::create_symlink(folder_ / "precious", folder_ / "index.html");
  write_file(folder_ / "index.html", "report");
  EXPECT_EQ(content_of(folder_ / "precious"), "mine");
  EXPECT_EQ(content_of(folder_ / "index.html"), "report");
  EXPECT_FALSE(fs::is_symlink(folder_ / "index.html"));
}

TEST_F(FilesTest, WhatCannotBeWrittenSaysWhyAndLeavesWhatWasThere) {
  fs::create_directories(folder_ / "taken" / "by");
  EXPECT_THAT(error_of(folder_ / "taken", "x"), HasSubstr("Is a directory"));
  EXPECT_THAT(error_of(folder_ / "none" / "x", "x"), HasSubstr("No such file or directory"));
  EXPECT_EQ(files(), 1u) << "no half of a file";
}

TEST_F(FilesTest, WriteThatFailsIsSeen) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  EXPECT_FALSE(write_all(full, "x"));
  EXPECT_EQ(errno, ENOSPC);
  close(full);
}

TEST_F(FilesTest, FullDiskIsSaidAndLeavesWhatWasThere) {
  if (mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "only root makes a small disk";
  }
  write_file(folder_ / "a", "old");
  EXPECT_THAT(error_of(folder_ / "a", std::string(1 << 20, 'x')),
              HasSubstr("No space left on device"));
  EXPECT_EQ(content_of(folder_ / "a"), "old");
  EXPECT_EQ(files(), 1u);
  umount2(folder_.c_str(), MNT_DETACH);
}

TEST_F(FilesTest, FolderBehindALinkOfAnotherUserIsRefused) {
  fs::create_directories(folder_ / "real");
  fs::create_directory_symlink(folder_ / "real", folder_ / "link");
  make_folder(folder_ / "link" / "below");
  EXPECT_TRUE(fs::is_directory(folder_ / "real" / "below")) << "our own is followed";
  if (geteuid() != 0) GTEST_SKIP() << "only root gives a link away";
  ASSERT_EQ(lchown((folder_ / "link").c_str(), 65534, 65534), 0);
  EXPECT_THROW(make_folder(folder_ / "link" / "other"), InputError);
  EXPECT_THROW(make_folder(folder_ / "link"), InputError);
  EXPECT_FALSE(fs::exists(folder_ / "real" / "other"));
}

}  // namespace
}  // namespace attest
