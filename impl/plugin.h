// Makes a plug-in of a kernel written in C++: the table of attest_plugin.h, and the border that no
// exception crosses. What a host hands over is checked before a kernel sees it (accept.h).
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "impl/call.h"
#include "impl/kernel_code.h"
#include "spec/attest_plugin.h"

namespace attest::impl {

// What the C table of a kernel leads back to.
struct Kernel {
  explicit Kernel(const KernelCode& the_code);
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  KernelCode code;
  std::string description;
  attest_kernel table;
};

// A kernel that the library would have elsewhere: what its processor or system lacks.
struct AbsentKernel {
  std::string name, why;
};

class Plugin {
 public:
  explicit Plugin(const std::vector<KernelCode>& codes, std::vector<AbsentKernel> absent = {});
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  const attest_plugin* table() const { return &plugin_; }

 private:
  std::deque<Kernel> kernels_;
  std::vector<const attest_kernel*> tables_;
  std::vector<AbsentKernel> absent_;
  std::vector<attest_absent_kernel> absent_tables_;
  std::vector<const attest_absent_kernel*> absent_list_;
  attest_plugin plugin_;
};

// Where the workspace of a worker begins, `bytes` being what KernelCode::workspace answers.
inline void* workspace_of(const Call& call, int worker, std::uint64_t bytes) {
  return static_cast<char*>(call.context.workspace) + static_cast<std::uint64_t>(worker) * bytes;
}

// Where the memory begins that all of them share.
inline void* shared_workspace_of(const Call& call, std::uint64_t bytes) {
  return workspace_of(call, call.workers, bytes);
}

}  // namespace attest::impl
