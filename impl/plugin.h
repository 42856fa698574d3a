// Makes a plug-in of a kernel written in C++: the table of attest_plugin.h, and the border that no
// exception crosses. What a host hands over is checked before a kernel sees it (accept.h).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "impl/call.h"
#include "spec/attest_plugin.h"

namespace attest::impl {

// What a kernel declares of its arithmetic for a dtype, in the words of spec/arithmetic.h; and of
// its blocks and its memory, in those of spec/description.h.
using ArithmeticDeclaration = std::map<std::string, std::variant<bool, std::int64_t, std::string>>;
struct ScheduleDeclaration {
  bool masks_partial_only;
  std::optional<double> imbalance = {};
};
struct MemoryDeclaration {
  std::string growth;
  std::map<std::string, double> workspace;
};

// What the file of a kernel provides.
struct KernelCode {
  std::string name;
  ArithmeticDeclaration (*arithmetic)(const std::string& dtype);
  // Bytes of workspace for one worker. Of the call, only the problem and its threads are given.
  std::uint64_t (*workspace)(const Call& call, bool backward);
  void (*forward)(const Call& call);
  void (*backward)(const Call& call);
  // Null: it declares nothing, and does not claim that profile.
  ScheduleDeclaration (*schedule)() = nullptr;
  MemoryDeclaration (*memory)() = nullptr;
  std::string target = {};  // what Call::target is to be
  // Bytes that all workers share, which lie behind those of the last; null: none.
  std::uint64_t (*shared_workspace)(const Call& call, bool backward) = nullptr;
  std::vector<std::string> dtypes = {"f64", "f32", "f16", "bf16"};
  // If it keeps something for each pair of a query and a key: the longest square that it takes, at
  // least 16384, and whatever has as many pairs. Without, it has the feature "long".
  std::optional<std::int64_t> longest = {};
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

// What a kernel declares that rounds neither P nor dS and computes in f32, or f64 for f64, with the
// C library's functions. It has yet to say where P is normalised, and what its sums depend on.
ArithmeticDeclaration unrounded_arithmetic(const std::string& dtype);

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
