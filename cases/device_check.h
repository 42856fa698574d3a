// The checks that are about how a testee is called: each asked of those alone who declare the
// feature of that name (SPEC.md, DEV-1 to DEV-4).
#pragma once

#include <array>
#include <string_view>

#include "cases/case.h"

namespace attest {

struct DeviceCheck {
  Check check;
  std::string_view feature;  // also the mode of its calls, where they have one
  std::string_view clause;
};

inline constexpr std::array<DeviceCheck, 4> kDeviceChecks = {
    {{Check::stream, "stream", "DEV-1"},
     {Check::two_streams, "two-streams", "DEV-2"},
     {Check::graph, "graph", "DEV-3"},
     {Check::new_shapes, "new-shapes", "DEV-4"}}};

// Null if the check is another.
constexpr const DeviceCheck* find_device_check(Check check) {
  for (const DeviceCheck& each : kDeviceChecks) {
    if (each.check == check) return &each;
  }
  return nullptr;
}

}  // namespace attest
