// What the file of a kernel provides, in C++, and what is declared of it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "impl/call.h"

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
  // least 16384, and whatever has as many pairs.
  std::optional<std::int64_t> longest = {};
  bool takes_stored = false;  // Q, K and V in 8 bits, with scales
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

// What the kernel says of itself, as attest_kernel::describe gives it.
std::string description_of(const KernelCode& code);

}  // namespace attest::impl
