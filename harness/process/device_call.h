// What a call tells a kernel that computes on a device, beside its tensors, and what such a kernel
// answers.
#pragma once

#include <deque>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "spec/attest_plugin.h"

namespace attest {

// As the request says; throws InputError for a mode that there isn't.
attest_call_mode mode_of(const nlohmann::json& request);

// The pages of each tensor that crosses.
class Regions {
 public:
  // Of a tensor of a request, whose first element lies at `data`.
  void note(const std::string& name, const nlohmann::json& tensor, void* data);
  // Of one that has no pages to itself.
  void note(const std::string& name, void* data, std::uint64_t bytes);

  // As long as this lives.
  void tell(attest_context& context) const;

 private:
  std::deque<std::string> names_;  // which stay where they are
  std::deque<std::vector<attest_stretch>> there_;
  std::vector<attest_region> regions_;
};

// To a call that ended with that status, which is not ok.
nlohmann::json reply_to(attest_status status, const char* message);

}  // namespace attest
