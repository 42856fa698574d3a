// A testee whose worker is told of a call before it may carry it out: memory is mapped by then, and
// the time from the word to the reply is the kernel's. The inputs are put into that memory in
// between, while the worker is still: who looks at it sooner sees that none are there.
#pragma once

#include "harness/process/executor.h"

namespace attest {

class Armed : public Executor {
 public:
  // `executor` must outlive it; its worker is still between requests.
  explicit Armed(Executor& executor) : executor_(executor) {}

  // To be asked once, before anything is timed: loads the testee, too. A worker that cannot be told
  // beforehand is asked as ever.
  void load();

  Reply execute(nlohmann::json request) override;
  // Asks as ever: what memory a call takes begins with its tensors.
  Reply measure(nlohmann::json request) override { return executor_.measure(std::move(request)); }
  void renew() override { executor_.renew(); }
  Reply settle() override { return executor_.settle(); }
  Arena& arena(std::size_t bytes) override;

 private:
  Executor& executor_;
  Arena* arena_ = nullptr;
  bool arms_ = false;
};

}  // namespace attest
