#include "harness/run/record_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "reports/files.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string refusal_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

std::string file_text(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class RecordFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "attest_record_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    umount2(folder_.c_str(), MNT_DETACH);
    fs::remove_all(folder_);
  }
  fs::path folder_;
  std::vector<std::string> said_;
  std::function<void(const std::string&)> say_ = [this](const std::string& why) {
    said_.push_back(why);
  };
};

TEST_F(RecordFileTest, BeginsAnewAndRemovesWhatAnEarlierRunLeft) {
  for (const fs::path& file : files_of_record(folder_)) std::ofstream(file) << "old";
  std::ofstream(folder_ / "notes") << "mine";
  RecordFile file(folder_, say_);
  EXPECT_EQ(file_text(folder_ / kResults), "");
  EXPECT_FALSE(fs::exists(folder_ / "index.html"));
  EXPECT_TRUE(fs::exists(folder_ / "notes"));
  struct stat about {};
  stat((folder_ / kResults).c_str(), &about);
  EXPECT_EQ(about.st_mode & 0777, 0600u) << "nobody else reads it before the end";
  file.stream() << "line\n" << std::flush;
  EXPECT_EQ(file_text(folder_ / kResults), "line\n");
  file.publish();
  stat((folder_ / kResults).c_str(), &about);
  EXPECT_EQ(about.st_mode & 0777, 0644u);
}

TEST_F(RecordFileTest, NeverWritesThroughALink) {
  const fs::path precious = folder_ / "precious";
  std::ofstream(precious) << "mine";
  fs::create_symlink(precious, folder_ / kResults);
  RecordFile file(folder_, say_);
  file.stream() << "line\n" << std::flush;
  EXPECT_EQ(file_text(precious), "mine");
}

TEST_F(RecordFileTest, SecondRunInAFolderIsRefused) {
  {
    const RecordFolder first(folder_);
    EXPECT_EQ(refusal_of([&] { RecordFolder second(folder_); }),
              "another run writes into the folder " + folder_.string() + "; --out names another");
  }
  RecordFolder third(folder_);
  third.check_identity();
  fs::rename(folder_, folder_.string() + "_moved");
  fs::create_directories(folder_);
  EXPECT_THAT(refusal_of([&] { third.check_identity(); }), HasSubstr("another folder was put"));
  fs::remove_all(folder_.string() + "_moved");
}

// A testee may, where nothing but its user keeps it apart and the folder is everybody's.
TEST_F(RecordFileTest, AnotherFileInItsPlaceIsNotPublished) {
  RecordFile file(folder_, say_);
  file.stream() << "line\n" << std::flush;
  fs::rename(folder_ / kResults, folder_ / "kept");
  EXPECT_THAT(refusal_of([&] { file.publish(); }), HasSubstr("another file was put in the place"));
  fs::create_symlink(folder_ / "kept", folder_ / kResults);
  EXPECT_THAT(refusal_of([&] { file.publish(); }), HasSubstr("another file was put in the place"));
}

TEST_F(RecordFileTest, FullDiskIsSaidOnceWhenItHappens) {
  if (mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=128k") != 0) {
    GTEST_SKIP() << "only root makes a small disk";
  }
  RecordFile file(folder_, say_);
  file.stream() << "first\n" << std::flush;
  EXPECT_TRUE(said_.empty());
  for (int i = 0; i < 4; ++i) file.stream() << std::string(100 << 10, 'x') << std::flush;
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_EQ(said_[0],
            "cannot write " + (folder_ / kResults).string() + ": No space left on device");
  EXPECT_EQ(refusal_of([&] { file.publish(); }), said_[0]);
  EXPECT_EQ(file_text(folder_ / kResults).substr(0, 6), "first\n");
}

TEST_F(RecordFileTest, FullDiskLeavesTheRecordOfTheRunBefore) {
  if (mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "only root makes a small disk";
  }
  for (const fs::path& file : files_of_record(folder_)) std::ofstream(file) << "old";
  std::ofstream(folder_ / "ballast") << std::string(1 << 20, 'x');
  EXPECT_THAT(refusal_of([&] { RecordFile file(folder_, say_); }),
              HasSubstr("No space left on device"));
  for (const fs::path& file : files_of_record(folder_)) EXPECT_EQ(file_text(file), "old") << file;
}

}  // namespace
}  // namespace attest
