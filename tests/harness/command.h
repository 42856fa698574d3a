// The command `attest` as a user meets it, for tests.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "spec/record.h"

namespace attest {

struct Result {
  int exit_code;
  std::string text;  // stdout and stderr
};

inline Result shell(const std::string& command) {
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  Result result{-1, ""};
  std::array<char, 4096> buffer{};
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    result.text.append(buffer.data(), n);
  }
  result.exit_code = WEXITSTATUS(pclose(pipe));
  return result;
}

inline Result attest_command(const std::string& arguments) {
  return shell(std::string(ATTEST) + " " + arguments);
}

inline std::string contents(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// With a folder of its own.
class CommandFixture : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::path(testing::TempDir()) /
        (std::string("attest_") + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string out() const { return " --out " + (folder_ / "out").string(); }
  Record record() const {
    std::ifstream in(folder_ / "out" / "results.jsonl");
    return read_record(in);
  }

  std::filesystem::path folder_;
};

}  // namespace attest
