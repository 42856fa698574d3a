// The plug-in of a list of styles: each is a kernel, FAMILY/NAME, of all formats and all features
// but sequences too long for a kernel that keeps its scores.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "spec/attest_plugin.h"
#include "tests/bounds/kernel.h"

namespace attest::legitimate {

struct Kernel {
  std::string name, description;
  bounds::Style style;
  attest_kernel table = {};
};

class Plugin {
 public:
  Plugin(const std::string& family, const std::vector<bounds::Style>& styles);
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  const attest_plugin* table() const { return &plugin_; }

 private:
  std::deque<Kernel> kernels_;
  std::vector<const attest_kernel*> tables_;
  attest_plugin plugin_ = {};
};

// A style's name as part of a kernel's: "fa2 16, exp2" is fa2_16_exp2.
std::string name_of(const bounds::Style& style);

}  // namespace attest::legitimate
