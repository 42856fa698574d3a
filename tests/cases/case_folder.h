// A folder of case files that lives as long as the object, and what loading it says.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cases/case.h"
#include "spec/json_reader.h"

namespace attest {

class CaseFolder {
 public:
  CaseFolder() : root_(std::filesystem::temp_directory_path() / unique_name()) {
    std::filesystem::create_directories(root_);
  }
  CaseFolder(const CaseFolder&) = delete;
  CaseFolder& operator=(const CaseFolder&) = delete;
  ~CaseFolder() { std::filesystem::remove_all(root_); }

  CaseFolder& write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
    return *this;
  }

  std::vector<Case> load(std::uint64_t seed = 1) const { return load_cases(root_, seed); }

  const std::filesystem::path& path() const { return root_; }

  // The text of the error, without the name of the folder; empty if there is none.
  std::string error() const {
    try {
      load();
      return "";
    } catch (const InputError& error) {
      std::string text = error.what();
      const std::string prefix = root_.generic_string() + "/";
      return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
    }
  }

 private:
  static std::string unique_name() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    return std::string("attest_cases_") + test->test_suite_name() + "_" + test->name();
  }

  std::filesystem::path root_;
};

}  // namespace attest
