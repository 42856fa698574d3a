// The kernels of a plug-in of mutants: one for each fault of the catalogue.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "spec/attest_plugin.h"
#include "tests/mutants/fault.h"
#include "tests/mutants/hosts.h"

namespace attest::mutants {

// A fault, in a host or in the kernel that can do everything.
struct Mutant {
  const Fault* fault;
  const Host* host = nullptr;
  std::string name;
  std::string description = {};  // once it was asked for
};

class Kernels {
 public:
  // "mutant/NAME"; with hosts, "HOST/NAME" in each.
  explicit Kernels(std::span<const Host> hosts = {});
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  const attest_plugin* plugin() const { return &plugin_; }

 private:
  std::vector<Mutant> mutants_;
  std::vector<attest_kernel> kernels_;
  std::vector<const attest_kernel*> pointers_;
  attest_plugin plugin_{};
};

}  // namespace attest::mutants
