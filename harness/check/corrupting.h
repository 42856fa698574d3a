// A testee whose replies are damaged on their way: the harness has to see it, or nothing that it
// says of that testee is worth anything.
#pragma once

#include "harness/process/executor.h"

namespace attest {

enum class Corruption {
  value,   // the largest element of O is a quarter larger
  beside,  // a byte that belongs to no element of O is another one
};

const char* describe(Corruption corruption);

// `executor` must outlive it.
class Corrupting : public Executor {
 public:
  Corrupting(Executor& executor, Corruption corruption)
      : executor_(executor), corruption_(corruption) {}

  Reply execute(nlohmann::json request) override;
  void renew() override { executor_.renew(); }
  Reply settle() override { return executor_.settle(); }
  Arena& arena(std::size_t bytes) override;

 private:
  Executor& executor_;
  Corruption corruption_;
  Arena* arena_ = nullptr;
};

}  // namespace attest
