#include "spec/read_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "spec/json_reader.h"

namespace attest {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::EndsWith;
using testing::StartsWith;

class ReadFileTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string complaint(const fs::path& file, std::size_t most = kMostOfAFile) {
    try {
      read_file(file, most);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / "attest_read_file";
};

TEST_F(ReadFileTest, AFileIsReadWholeThroughALinkToo) {
  const std::string content(200'000, '\0');
  std::ofstream(folder_ / "file") << content;
  fs::create_symlink("file", folder_ / "link");
  EXPECT_EQ(read_file(folder_ / "link"), content);
  EXPECT_EQ(read_file(folder_ / "file", content.size()), content);
  EXPECT_THAT(complaint(folder_ / "file", content.size() - 1), EndsWith("more than 199999 bytes"));
}

TEST_F(ReadFileTest, NothingElseIsRead) {
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", folder_ / "link");
  for (const auto& [name, what] : {std::pair{"pipe", ": is a pipe, not a file"},
                                   {"link", ": is a device, not a file"},
                                   {".", ": is a folder, not a file"},
                                   {"none", ": there is no such file"},
                                   {"pipe/none", ": there is no such file"}}) {
    const fs::path file = folder_ / name;
    EXPECT_THAT(complaint(file), AllOf(StartsWith(file.string()), EndsWith(what)));
    EXPECT_THROW(check_is_file(file), InputError) << file;
  }
}

}  // namespace
}  // namespace attest
