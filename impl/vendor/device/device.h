// A device: its cores, each with memory of its own, and what the maker says of it. A program runs
// on one core after the other, in their order; in the model's time they run at once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "impl/vendor/device/dma.h"
#include "impl/vendor/device/error.h"
#include "impl/vendor/device/memory.h"
#include "impl/vendor/device/unit.h"

namespace attest::vendor::device {

struct DeviceRules {
  std::string name;   // "Atlas A2 (mock)"
  std::string model;  // "models ... as the seed describes it; no claim on hardware"
  int cores;
  std::vector<std::string> formats;  // of elements: "bf16"
  std::vector<std::string> layouts;  // "BSH"
};

// What a run took.
struct Elapsed {
  std::vector<Cycles> of_core;

  Cycles longest() const {
    return of_core.empty() ? 0 : *std::max_element(of_core.begin(), of_core.end());
  }
  Cycles sum() const { return std::accumulate(of_core.begin(), of_core.end(), Cycles(0)); }
};

class Device {
 public:
  explicit Device(DeviceRules rules) : rules_(std::move(rules)) {}

  const DeviceRules& rules() const { return rules_; }

  void check_format(const std::string& format) const { check(rules_.formats, format, "format"); }
  void check_layout(const std::string& layout) const { check(rules_.layouts, layout, "layout"); }

  // `program(core)` answers the cycles of that core. Cores beyond those of the device are an error.
  template <class Program>
  Elapsed run(int cores, const Program& program) const {
    if (cores < 1 || cores > rules_.cores) {
      throw DeviceError(rules_.name, std::to_string(cores) + " cores are asked for, of " +
                                         std::to_string(rules_.cores));
    }
    Elapsed elapsed;
    for (int core = 0; core < cores; ++core) elapsed.of_core.push_back(program(core));
    return elapsed;
  }

 private:
  void check(const std::vector<std::string>& known, const std::string& what,
             const char* kind) const {
    if (std::find(known.begin(), known.end(), what) != known.end()) return;
    throw DeviceError(rules_.name, std::string("there is no ") + kind + " " + what);
  }

  DeviceRules rules_;
};

}  // namespace attest::vendor::device
