// In place of a testee where there is none: whatever is judged is there already.
#pragma once

#include <stdexcept>

#include "harness/process/executor.h"

namespace attest {

class Nobody : public Executor {
 public:
  Reply execute(nlohmann::json) override { throw std::logic_error("there is no testee"); }
  Arena& arena(std::size_t) override { throw std::logic_error("there is no testee"); }
};

}  // namespace attest
