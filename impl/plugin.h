// Makes a plug-in of a kernel written in C++: the table of attest_plugin.h, the checks of what a
// host hands over, the refusals, and the border that no exception crosses.
#pragma once

#include <cstdint>
#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "impl/call.h"
#include "spec/attest_plugin.h"

namespace attest::impl {

// What the file of a kernel provides.
struct KernelCode {
  std::string name;
  // The arithmetic that the kernel declares for a dtype, in the words of spec/arithmetic.h.
  nlohmann::json (*arithmetic)(const std::string& dtype);
  // Bytes of workspace for one worker. Of the call, only the problem is given.
  std::uint64_t (*workspace)(const Call& call, bool backward);
  void (*forward)(const Call& call);
  void (*backward)(const Call& call);
  std::string target = {};  // what Call::target is to be
};

// The kernel itself and, as NAME/TARGET, the same on each instruction set of the processor that the
// tile engine is made for.
template <class EnginesOfProcessor>
std::vector<KernelCode> for_each_target(const KernelCode& code, const EnginesOfProcessor& engines) {
  std::vector<KernelCode> codes = {code};
  for (const auto& engine : engines) {
    codes.push_back(code);
    codes.back().target = engine.target;
    codes.back().name += "/" + codes.back().target;
  }
  return codes;
}

// What the C table of a kernel leads back to.
struct Kernel {
  explicit Kernel(const KernelCode& the_code);
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  KernelCode code;
  std::string description;
  attest_kernel table;
};

class Plugin {
 public:
  explicit Plugin(const std::vector<KernelCode>& codes);
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  const attest_plugin* table() const { return &plugin_; }

 private:
  std::deque<Kernel> kernels_;
  std::vector<const attest_kernel*> tables_;
  attest_plugin plugin_;
};

// Where the workspace of a worker begins, `bytes` being what KernelCode::workspace answers.
inline void* workspace_of(const Call& call, int worker, std::uint64_t bytes) {
  return static_cast<char*>(call.context.workspace) + static_cast<std::uint64_t>(worker) * bytes;
}

}  // namespace attest::impl
