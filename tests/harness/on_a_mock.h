// A case and a kernel of f32 that is a mock, and what comes of one on the other in this process: a
// base beside testing::Test.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cases/case.h"
#include "harness/process/in_process.h"
#include "harness/run/examine.h"
#include "tests/harness/mock_plugin.h"

namespace attest {

class OnAMock {
 protected:
  OnAMock(std::vector<std::string> features, std::string id, std::vector<std::string> clauses,
          Problem problem) {
    description_.name = "mock";
    description_.version = "1";
    description_.vendor = "test";
    description_.dtypes = {DType::f32};
    description_.features = std::move(features);
    description_.alignment = 4;
    test_case_.id = std::move(id);
    test_case_.clauses = std::move(clauses);
    test_case_.data = "normal";
    test_case_.problem = std::move(problem);
  }

  Verdict verdict() {
    PreparedCase prepared(test_case_, 1);
    return examine(prepared, description_, "mock", executor_, 1).verdict;
  }

  Case test_case_;
  Description description_;
  testing::NiceMock<MockPlugin> mock_;
  InProcessExecutor executor_{mock_.plugin()};
};

}  // namespace attest
