// Makes a plug-in of a kernel written in C++: the table of attest_plugin.h, the checks of what a
// host hands over, the refusals, and the border that no exception crosses.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "impl/call.h"
#include "spec/attest_plugin.h"

namespace attest::impl {

// What the file of a kernel provides.
struct KernelCode {
  const char* name;
  // The arithmetic that the kernel declares for a dtype, in the words of spec/arithmetic.h.
  nlohmann::json (*arithmetic)(const std::string& dtype);
  // Bytes of workspace for one worker. Of the call, only the problem is given.
  std::uint64_t (*workspace)(const Call& call, bool backward);
  void (*forward)(const Call& call);
  void (*backward)(const Call& call);
};

// A plug-in with one kernel.
class Plugin {
 public:
  explicit Plugin(const KernelCode& code);
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  const attest_plugin* table() const { return &plugin_; }
  const KernelCode& code() const { return code_; }
  const std::string& description() const { return description_; }

 private:
  const KernelCode& code_;
  std::string description_;
  attest_kernel kernel_;
  const attest_kernel* kernels_[1];
  attest_plugin plugin_;
};

// Where the workspace of a worker begins, `bytes` being what KernelCode::workspace answers.
inline void* workspace_of(const Call& call, int worker, std::uint64_t bytes) {
  return static_cast<char*>(call.context.workspace) + static_cast<std::uint64_t>(worker) * bytes;
}

}  // namespace attest::impl
