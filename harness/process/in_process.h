// Runs a plug-in in the harness's own process, without guards, limits or isolation: for a debugger
// (`attest repro --in-process`) and for mocks in tests.
#pragma once

#include <memory>

#include "harness/process/arena.h"
#include "harness/process/executor.h"
#include "spec/attest_plugin.h"

namespace attest {

class InProcessExecutor : public Executor {
 public:
  explicit InProcessExecutor(const attest_plugin& plugin) : plugin_(plugin) {}

  Reply execute(nlohmann::json request) override;
  Arena& arena(std::size_t bytes) override;

 protected:
  // When all is located, before a kernel sees any of a call.
  virtual void is_ready() {}

 private:
  const attest_plugin& plugin_;
  std::unique_ptr<Arena> arena_ = nullptr;
};

}  // namespace attest
