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

  // A worker in Python that describes itself, and does that when it is called; as the command
  // takes it.
  std::string python_testee(const std::string& when_called) const {
    const std::filesystem::path file = folder_ / "testee.py";
    std::ofstream(file) << R"(
import json, sys, time
def frame(reply):
    text = json.dumps(reply).encode()
    open(4, "wb", buffering=0, closefd=False).write(len(text).to_bytes(4, "little") + text)
requests = open(3, "rb")
while size := int.from_bytes(requests.read(4), "little"):
    asked = json.loads(requests.read(size))
    description = {"name": "mine", "version": "1", "vendor": "", "profiles": [],
                   "dtypes": ["f32"], "features": []}
    if asked["op"] == "forward":
        )" << when_called
                        << R"(
    frame({"nonce": asked["nonce"], "status": "ok",
           "kernels": [{"name": "mine", "description": description}]})
)";
    return "'exec:python3 " + file.string() + "'";
  }

  std::filesystem::path folder_;
};

}  // namespace attest
