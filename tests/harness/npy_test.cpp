#include "harness/command/npy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "spec/json_reader.h"

namespace attest {
namespace {

std::string contents(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class NpyTest : public testing::Test {
 protected:
  std::filesystem::path file_ = std::filesystem::path(testing::TempDir()) / "attest_npy_test.npy";
  void TearDown() override { std::filesystem::remove(file_); }
};

TEST_F(NpyTest, FileHasTheFormatsHeaderAndThenTheNumbers) {
  write_npy(file_, {1, 2, 1, 3}, std::vector<double>{0, 1, 2, 3, 4, 5.5});
  const std::string text = contents(file_);
  EXPECT_EQ(text.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const std::size_t header =
      static_cast<unsigned char>(text[8]) + 256u * static_cast<unsigned char>(text[9]);
  EXPECT_EQ((10 + header) % 64, 0u);
  const std::string description = text.substr(10, header);
  EXPECT_EQ(description.back(), '\n');
  EXPECT_EQ(description.find("{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2, 1, 3), }"),
            0u);
  ASSERT_EQ(text.size(), 10 + header + 6 * sizeof(double));
  double last;
  std::memcpy(&last, text.data() + text.size() - sizeof(double), sizeof(double));
  EXPECT_EQ(last, 5.5);
}

TEST_F(NpyTest, WholeNumbersKeepTheirSignAndFlagsTheirByte) {
  write_npy(file_, {1, 1, 1, 2}, std::vector<std::int64_t>{1, -2});
  std::string text = contents(file_);
  EXPECT_NE(text.find("'<i8'"), std::string::npos);
  EXPECT_EQ(text.substr(text.size() - 8), "\xfe\xff\xff\xff\xff\xff\xff\xff");
  write_npy(file_, {1, 1, 1, 2}, std::vector<std::uint8_t>{0, 1});
  text = contents(file_);
  EXPECT_NE(text.find("'|u1'"), std::string::npos);
  EXPECT_EQ(text.substr(text.size() - 2), std::string("\0\1", 2));
}

TEST_F(NpyTest, FolderThatIsNotThereIsAnError) {
  EXPECT_THROW(write_npy("/nonexistent/x.npy", {1, 1, 1, 1}, std::vector<double>{0}), InputError);
}

}  // namespace
}  // namespace attest
