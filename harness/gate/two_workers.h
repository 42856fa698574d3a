// Two workers of one kernel, that share nothing: which of them a call meets is drawn. A backward
// call that is timed meets the one that has not seen its inputs, of which much could be computed
// ahead; so that no worker is known by that, others are carried out so, too.
#pragma once

#include <string_view>

#include "harness/process/executor.h"

namespace attest {

class TwoWorkers : public Executor {
 public:
  // Both must outlive it.
  TwoWorkers(Executor& first, Executor& second) : first_(&first), second_(&second) {}

  // For all calls until the next draw. `bits` is what it depends on.
  void draw(std::string_view bits, bool timed);

  Reply execute(nlohmann::json request) override { return forward_->execute(std::move(request)); }
  Reply measure(nlohmann::json request) override { return forward_->measure(std::move(request)); }
  Executor& of_backward() override { return *backward_; }
  void renew() override;
  Reply settle() override;
  Arena& arena(std::size_t bytes) override { return forward_->arena(bytes); }

 private:
  Executor *first_, *second_;
  Executor *forward_ = first_, *backward_ = second_;
};

}  // namespace attest
