// A testee whose outputs may hold numbers before a call, as memory does that was used before, in
// place of poison: it can tell neither an output that nobody wrote, nor that it is judged.
#pragma once

#include <cstdint>

#include "harness/process/executor.h"

namespace attest {

class Stale : public Executor {
 public:
  // `executor` must outlive it. What an output holds depends on `seed` and the request alone.
  Stale(Executor& executor, std::uint64_t seed) : executor_(executor), seed_(seed) {}

  Reply execute(nlohmann::json request) override;
  Reply measure(nlohmann::json request) override;
  void renew() override { executor_.renew(); }
  Reply settle() override { return executor_.settle(); }
  Arena& arena(std::size_t bytes) override;

 private:
  void fill(const nlohmann::json& request);

  Executor& executor_;
  std::uint64_t seed_;
  Arena* arena_ = nullptr;
};

}  // namespace attest
